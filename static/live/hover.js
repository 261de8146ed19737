// What lies under the pointer, in words below the plane: the element, or the cell that stands for several.

import { address, getJson } from "./api.js";
import { FLAGS } from "./color.js";
import { placeWords } from "./cell.js";
import { ordinal, readable, shortest } from "./format.js";
import { partOf, passOf, tensorPath, withPlace } from "./look.js";

const PATIENCE = 90; // milliseconds at rest before a rank is asked for
const REDUCED = { absmax: "largest magnitude", mean: "mean", max: "maximum", min: "minimum" };

/** `context()` gives {run, summary, state, index, tokens, plane}; `pointed(positions)` and `value(number)` are told. */
export function createHover(line, { context, pointed, value }) {
  let timer = 0;
  let asking = null;

  /** The address of the element that a reduced cell stands for. */
  function addressOf(cell, pick) {
    const { run, summary, state, index, plane } = context();
    const text = summary.axes.map((axis, at) => {
      if (axis.name === plane.rows) return `${cell.row}:${cell.row + cell.rows}`;
      if (axis.name === plane.columns) return `${cell.column}:${cell.column + cell.columns}`;
      return index[at];
    });
    const query = { ...passOf(summary), slice: text.join(","), pick, along: plane.columns, part: partOf(summary, state) };
    return address(`${tensorPath(run, summary.node)}/cell`, query);
  }

  async function ask(url, say) {
    asking = new AbortController();
    try {
      say(await getJson(url, asking.signal));
    } catch {
      // The line keeps what it says: nothing was lost, and moving on asks again.
    }
  }

  function point(place) {
    clearTimeout(timer);
    asking?.abort();
    if (!place) {
      line.textContent = "\u00a0";
      pointed([]);
      value(null);
      return;
    }
    const { summary, state, index, tokens, plane } = context();
    const here = withPlace(summary, index, plane, place.row, place.column);
    pointed(summary.axes.flatMap((axis, at) =>
      axis.first !== null && (axis.name === plane.rows || axis.name === plane.columns) ? [axis.first + here[at]] : []));
    const known = place.value !== undefined;
    const number = known && place.flag & FLAGS.finite ? place.value : null;
    value(number);
    const rank = cell => (cell.rank === null ? "" : `, ${ordinal(cell.rank)} of ${cell.of.toLocaleString("en-US")} ${cell.along}`);
    if (place.exact) {
      const words = placeWords(summary, here, tokens);
      line.textContent = known ? `${words} = ${shortest(place.value, summary.dtype)}` : words;
      const { row, column } = place;
      timer = setTimeout(() => ask(addressOf({ row, column, rows: 1, columns: 1 }, null), cell => {
        line.textContent = `${words} = ${cell.text}${rank(cell)}`;
      }), PATIENCE);
      return;
    }
    const reduce = state.reduce ?? "absmax";
    const span = (start, length) => (length === 1 ? String(start) : `${start}–${start + length - 1}`);
    const { cell } = place;
    const where = [plane.rows && `${plane.rows} ${span(cell.row, cell.rows)}`, `${plane.columns} ${span(cell.column, cell.columns)}`];
    const words = `${where.filter(Boolean).join(" · ")}: ${REDUCED[reduce]} ${number === null ? "none" : readable(number)}`;
    line.textContent = words;
    if (reduce === "mean" || number === null) return;
    timer = setTimeout(() => ask(addressOf(cell, reduce), found => {
      line.textContent = `${words}, at ${placeWords(summary, found.index, tokens)} = ${found.text}${rank(found)}`;
    }), PATIENCE);
  }

  return { point, addressOf };
}
