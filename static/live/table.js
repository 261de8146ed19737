// The plane as a table around the chosen cell: every value in full, for reading, copying and screen readers.

import { getNumbers } from "./api.js";
import { el, latest } from "./build.js";
import { FLAGS } from "./color.js";
import { shortest, visible } from "./format.js";
import { TILE } from "./geometry.js";
import { onPlane, withPlace } from "./look.js";

const ROWS = 10;

export function create({ place, panel, failed }) {
  const newest = latest(failed);
  const words = el("p", { class: "about" });
  const holder = el("div", { class: "scroll" });
  const ways = [["←", "Columns before", 0, -1], ["→", "Columns after", 0, 1], ["↑", "Rows before", -1, 0], ["↓", "Rows after", 1, 0]];
  const buttons = el("p", { class: "acts" }, ...ways.map(([sign, label, down, across]) =>
    el("button", { type: "button", "aria-label": label, title: label, text: sign, onclick: () => step(down, across) })));
  place.append(words, buttons, holder);
  const tiles = new Map();
  let context = null;
  let corner = { row: 0, column: 0 };
  const columnsShown = () => Math.max(2, Math.min(8, Math.floor((place.clientWidth - 110) / 92)));

  const size = () => panel.scene()?.size;

  function step(down, across) {
    const limits = size();
    corner = {
      row: clamp(corner.row + down * ROWS, limits.rows - ROWS),
      column: clamp(corner.column + across * columnsShown(), limits.columns - columnsShown()),
    };
    show();
  }

  async function valueAt(scene, row, column, signal) {
    const local = panel.heatmap.valueAt(row, column);
    if (local) return local;
    const tile = { row: Math.floor(row / TILE), column: Math.floor(column / TILE) };
    const url = scene.address({ row: 0, column: 0 }, tile);
    if (!tiles.has(url)) {
      if (tiles.size > 4) tiles.clear();
      tiles.set(url, getNumbers(url, signal).catch(error => {
        tiles.delete(url);
        throw error;
      }));
    }
    const { shape, values, flags } = await tiles.get(url);
    const at = (row % TILE) * shape[1] + (column % TILE);
    return { value: values[at], flag: flags[at] };
  }

  function show() {
    const scene = panel.scene();
    if (!scene || !context) return;
    const { summary, index, plane } = context;
    const chosen = onPlane(summary, index, plane);
    const across = columnsShown();
    const rows = range(corner.row, ROWS, scene.size.rows);
    const columns = range(corner.column, across, scene.size.columns);
    newest(async signal => {
      const cells = await Promise.all(rows.map(row => Promise.all(columns.map(column => valueAt(scene, row, column, signal)))));
      const name = (axis, at) => {
        const token = axis.token?.(at);
        return `${(axis.first ?? 0) + at}${token === undefined ? "" : ` ${visible(token)}`}`;
      };
      const head = el("tr", {}, el("td"), ...columns.map(column => el("th", { scope: "col", text: name(scene.columnAxis, column) })));
      const body = rows.map((row, r) => el("tr", {},
        el("th", { scope: "row", text: name(scene.rowAxis, row) }),
        ...columns.map((column, c) => el("td", {
          "data-chosen": row === chosen.row && column === chosen.column,
          "data-odd": !(cells[r][c].flag & FLAGS.finite),
          onclick: () => panel.pin(withPlace(summary, index, plane, row, column)),
          text: shortest(cells[r][c].value, summary.dtype),
        })),
      ));
      const caption = `${summary.node}: ${scene.rowAxis.name || "one row"} down, ${scene.columnAxis.name} across`;
      holder.replaceChildren(el("table", { class: "values" }, el("caption", { class: "hidden", text: caption }), el("thead", {}, head), el("tbody", {}, ...body)));
      words.textContent = `Rows ${rows[0]} to ${rows.at(-1)} of ${scene.size.rows.toLocaleString("en-US")}, columns ${columns[0]} to ${columns.at(-1)} of ${scene.size.columns.toLocaleString("en-US")}.`;
    });
  }

  return {
    update(next) {
      context = next;
      const { row, column } = onPlane(next.summary, next.index, next.plane);
      const across = columnsShown();
      const limits = size();
      if (!limits) return;
      if (row < corner.row || row >= corner.row + ROWS) corner.row = clamp(row - 2, limits.rows - ROWS);
      if (column < corner.column || column >= corner.column + across) corner.column = clamp(column - 1, limits.columns - across);
      show();
    },
  };
}

const clamp = (at, most) => Math.max(0, Math.min(at, most));
const range = (start, count, size) => Array.from({ length: Math.max(0, Math.min(count, size - start)) }, (_, at) => start + at);
