// A strip over all layers: a measure of the tensor by layer and position; a click goes there.

import { address, getJson, inTurn } from "./api.js";
import { createScale, palette, paint } from "./color.js";
import { choice, el, latest } from "./build.js";
import { readable, visible } from "./format.js";
import { partOf, tensorPath } from "./look.js";

const MEASURES = [["rms", "root mean square"], ["mean", "mean"], ["absmax", "largest magnitude"], ["min", "minimum"], ["max", "maximum"]];
const ROW = 11; // CSS pixels of a layer

export function create({ place, section, store, panel, failed }) {
  const newest = latest(failed);
  const layers = Number(section.dataset.layers);
  let measure = "rms";
  let context = null;
  let shown = "";
  let rows = [];
  let chosen = { layer: 0, column: 0 };
  const select = choice(MEASURES, measure, value => {
    measure = value;
    shown = "";
    show();
  });
  const canvas = el("canvas", {
    class: "strip", tabindex: "0", role: "application", "aria-roledescription": "heatmap of layers", "aria-label": "Layers down, positions across",
  });
  canvas.style.height = `${layers * ROW}px`;
  const line = el("p", { class: "readout", "aria-live": "polite", text: "\u00a0" });
  const words = el("p", { class: "about" });
  place.append(el("label", {}, "Measure ", select), words, canvas, line);

  const along = ({ summary, plane }) =>
    summary.axes.find(axis => axis.first !== null && axis.size >= 1 && axis.name !== "keys")?.name ??
    summary.axes.find(axis => axis.first !== null)?.name ?? plane.rows ?? plane.columns;

  function show() {
    const { run, summary, state } = context;
    const axis = along(context);
    const query = { view: summary.view, step: summary.step, along: axis, measure, part: partOf(summary, state) };
    const url = layer => address(`${tensorPath(run.id, summary.node)}/profile`, { ...query, layer });
    if (url("") === shown) {
      draw();
      return;
    }
    shown = url("");
    rows = Array.from({ length: layers }, () => null);
    newest(signal => inTurn(rows.map((_, layer) => async () => {
      rows[layer] = await getJson(url(layer), signal);
      draw();
    }), 2, signal));
  }

  function draw() {
    const known = rows.filter(row => row !== null);
    if (!known.length) return;
    const columns = known[0].length;
    const numbers = known.flat().filter(value => value !== null);
    const signed = numbers.some(value => value < 0);
    const sizes = numbers.map(Math.abs).filter(value => value > 0).sort((a, b) => a - b);
    const kind = signed ? "diverging" : "log";
    const scale = createScale(kind, signed ? -sizes.at(-1) : (sizes[0] ?? 1e-6), sizes.at(-1) ?? 1);
    const values = new Float32Array(layers * columns);
    const flags = new Uint8Array(layers * columns);
    for (const [layer, row] of rows.entries()) {
      for (let at = 0; row && at < columns; at++) {
        values[layer * columns + at] = row[at] ?? 0;
        flags[layer * columns + at] = row[at] === null ? 4 : 16;
      }
    }
    Object.assign(canvas, { width: columns, height: layers });
    const context2d = canvas.getContext("2d");
    const image = context2d.createImageData(columns, layers);
    paint(values, flags, scale, palette(kind, context.dark), new Int32Array(image.data.buffer));
    context2d.putImageData(image, 0, 0);
    const waiting = known.length < layers ? ` ${known.length} of ${layers} layers so far.` : "";
    words.textContent = `Layers 0 (top) to ${layers - 1}, ${along(context)} across. Colours: ${readable(scale.low, 3)} to ${readable(scale.high, 3)}${kind === "log" ? ", logarithmic" : ""}.${waiting}`;
  }

  const say = ({ layer, column }) => {
    const row = rows[layer];
    const axis = context.summary.axes.find(one => one.name === along(context));
    const token = axis.first === null ? undefined : context.tokens[axis.first + column]?.label;
    line.textContent = `layer ${layer} · ${axis.name} ${(axis.first ?? 0) + column}${token === undefined ? "" : ` ${visible(token)}`}: ${row ? readable(row[column]) : "not there yet"}`;
  };
  const at = event => {
    const box = canvas.getBoundingClientRect();
    const columns = rows.find(row => row !== null)?.length ?? 1;
    return {
      layer: Math.min(layers - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * layers))),
      column: Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * columns))),
    };
  };
  const go = ({ layer, column }) => {
    const which = context.summary.axes.findIndex(one => one.name === along(context));
    panel.pin(context.index.map((value, one) => (one === which ? column : value)));
    store.set({ layer });
  };
  canvas.addEventListener("pointermove", event => say(at(event)));
  canvas.addEventListener("click", event => go(at(event)));
  canvas.addEventListener("keydown", event => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const columns = rows.find(row => row !== null)?.length ?? 1;
    if (event.key === "Enter") go(chosen);
    else if (moves[event.key]) {
      const [down, across] = moves[event.key];
      chosen = {
        layer: Math.min(layers - 1, Math.max(0, chosen.layer + down)),
        column: Math.min(columns - 1, Math.max(0, chosen.column + across)),
      };
      say(chosen);
    } else return;
    event.preventDefault();
  });

  return {
    update(next) {
      context = next;
      chosen = { layer: next.summary.layer ?? 0, column: chosen.column };
      show();
    },
  };
}
