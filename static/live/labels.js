// What stands beside a plane: token labels or indices on both axes, axis names, and values in cells that are large.

import { readable, visible } from "./format.js";
import { FLAGS, placeOf } from "./color.js";

const FONT = "11px ui-monospace, 'SF Mono', 'Cascadia Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace";
const SANS = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif";
const STEPS = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000, 10000, 20000, 50000];

/** The room that labels need: {left, bottom, top, right}, in CSS pixels. Depends on the axes, not on the window. */
export function gutters(context, scene, width) {
  context.font = FONT;
  const digits = axis => context.measureText(String((axis.first ?? 0) + axis.size - 1)).width;
  const rows = scene.rowAxis;
  const left = rows.token ? Math.min(104, Math.max(56, width * 0.17)) : digits(rows) + 12;
  return { left: Math.ceil(left) + 14, bottom: scene.columnAxis.token ? 78 : 36, top: 4, right: 6 };
}

/** Every which element is labelled, so that labels are `room` pixels apart. */
function stride(pixels, room) {
  return STEPS.find(step => step * pixels >= room) ?? STEPS.at(-1);
}

function shortened(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let kept = text;
  while (kept.length > 1 && context.measureText(`${kept}…`).width > room) kept = kept.slice(0, -1);
  return `${kept}…`;
}

const labelOf = (axis, at) => {
  const token = axis.token?.(at);
  return token === undefined || token === null ? String((axis.first ?? 0) + at) : visible(token);
};

/** Row labels, right-aligned at the plot's left edge. `marked` are elements whose labels stand out. */
export function drawRows(context, scene, plot, inks, marked) {
  const axis = scene.rowAxis;
  const { window } = scene;
  const pixels = plot.height / window.rows;
  const step = stride(pixels, 13);
  context.font = FONT;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const at of labelled(window.row, window.rows, axis.size, step, marked)) {
    const y = (at + 0.5 - window.row) * pixels;
    if (y < -2 || y > plot.height + 2) continue;
    context.fillStyle = marked.has(at) ? inks.accent : inks.row;
    context.fillText(shortened(context, labelOf(axis, at), plot.x - 22), plot.x - 6, plot.y + y);
  }
  context.save();
  context.translate(9, plot.y + plot.height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.font = SANS;
  context.fillStyle = inks.row;
  if (plot.height > 60) context.fillText(`← ${axis.name}`, 0, 0);
  context.restore();
}

/** Column labels below the plot: tokens upright, indices level. */
export function drawColumns(context, scene, plot, inks, marked) {
  const axis = scene.columnAxis;
  const { window } = scene;
  const pixels = plot.width / window.columns;
  const digits = String((axis.first ?? 0) + axis.size).length * 7 + 10;
  const step = stride(pixels, axis.token ? 13 : digits);
  const base = plot.y + plot.height;
  context.font = FONT;
  context.textBaseline = "middle";
  for (const at of labelled(window.column, window.columns, axis.size, step, marked)) {
    const x = (at + 0.5 - window.column) * pixels;
    if (x < -2 || x > plot.width + 2) continue;
    context.fillStyle = marked.has(at) ? inks.accent : inks.column;
    if (axis.token) {
      context.save();
      context.translate(plot.x + x, base + 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = "right";
      context.fillText(shortened(context, labelOf(axis, at), 54), 0, 0);
      context.restore();
    } else {
      context.textAlign = "center";
      context.fillText(labelOf(axis, at), clampText(plot.x + x, plot, context.measureText(labelOf(axis, at)).width), base + 11);
    }
  }
  context.font = SANS;
  context.textAlign = "center";
  context.fillStyle = inks.column;
  context.fillText(`${axis.name} →`, plot.x + plot.width / 2, base + (axis.token ? 69 : 27));
}

function clampText(x, plot, width) {
  return Math.min(Math.max(x, plot.x + width / 2 - 4), plot.x + plot.width - width / 2 + 4);
}

function* labelled(start, length, size, step, marked) {
  const first = Math.max(0, Math.floor(start / step) * step);
  const last = Math.min(size - 1, Math.ceil(start + length));
  const near = at => [...marked].some(one => one !== at && Math.abs(one - at) < step);
  for (let at = first; at <= last; at += step) if (!near(at)) yield at;
  for (const at of marked) if (at >= first && at <= last) yield at;
}

/** Values in their cells, where one element has room for four digits. `valueAt(row, column)` gives {value, flag}. */
export function drawValues(context, scene, plot, scale, colors, valueAt) {
  const { window } = scene;
  const width = plot.width / window.columns;
  const height = plot.height / window.rows;
  if (width < 46 || height < 15) return;
  context.font = FONT;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const lastRow = Math.min(scene.size.rows, Math.ceil(window.row + window.rows));
  const lastColumn = Math.min(scene.size.columns, Math.ceil(window.column + window.columns));
  for (let row = Math.floor(window.row); row < lastRow; row++) {
    for (let column = Math.floor(window.column); column < lastColumn; column++) {
      const found = valueAt(row, column);
      if (!found) continue;
      const number = found.flag & FLAGS.finite ? found.value : null;
      const place = number === null || number === 0 ? 0.5 : Math.min(1, Math.max(0, placeOf(scale, number)));
      context.fillStyle = number === null ? colors.ink : inkOn(colors.table[Math.round(place * (colors.table.length - 1))]);
      const text = number === null ? nameOf(found) : readable(number, 3);
      context.fillText(text, plot.x + (column + 0.5 - window.column) * width, plot.y + (row + 0.5 - window.row) * height);
    }
  }
}

function nameOf({ flag }) {
  if (flag & FLAGS.nan) return "nan";
  if (flag & FLAGS.plus) return "∞";
  return flag & FLAGS.minus ? "−∞" : "lowest";
}

function inkOn(color) {
  const light = 0.3 * (color & 255) + 0.59 * ((color >> 8) & 255) + 0.11 * ((color >> 16) & 255);
  return light > 140 ? "#14110d" : "#ffffff";
}
