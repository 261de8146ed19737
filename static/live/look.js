// How a tensor is looked at: from its summary and the reader's choices to axes, slices, scales and scenes.
// Pure functions but for addresses; the panel holds the state.

import { address } from "./api.js";

const HEADS = ["q_heads", "kv_heads"];

/** The path of a tensor's addresses. */
export const tensorPath = (run, node) => `/api/runs/${encodeURIComponent(run)}/tensors/${node}`;

/** The part of the query that says which pass. */
export function passOf(summary) {
  return { view: summary.view, layer: summary.layer, step: summary.step, rank: summary.split?.rank ?? null };
}

/** Rows and columns by name: as the reader wants, where the tensor has such axes, else as suggested. */
export function planeAxes(summary, state) {
  const names = summary.axes.map(axis => axis.name);
  const { rows, columns } = summary.presentation;
  const across = names.includes(state.columns) ? state.columns : columns;
  let down = names.includes(state.rows) ? state.rows : rows;
  if (down === across) down = [rows, columns, ...names].find(name => name && name !== across) ?? null;
  return { rows: down, columns: across };
}

/** The index on every axis: the chosen cell, with the head that the address names. */
export function indexOf(summary, state) {
  const chosen = (state.cell ?? "").split(",").map(Number);
  const whole = chosen.length === summary.axes.length && chosen.every(Number.isInteger);
  return summary.axes.map((axis, at) => {
    let index = whole ? chosen[at] : firstSeen(summary, axis);
    if (state.head !== null && HEADS.includes(axis.name)) index = state.head;
    return Math.min(Math.max(index, 0), axis.size - 1);
  });
}

/** Where a panel has something to say of one position, it begins with the last: from it the next token comes. */
function firstSeen(summary, axis) {
  const telling = ["logits", "stream", "attention"].includes(summary.presentation.meaning);
  return telling && ["positions", "queries"].includes(axis.name) ? axis.size - 1 : 0;
}

/** The head in an index, or null. */
export function headOf(summary, index) {
  const at = summary.axes.findIndex(axis => HEADS.includes(axis.name));
  return at < 0 || summary.axes[at].size < 2 ? null : index[at];
}

/** A slice that keeps the named axes and takes `index` on the others. */
export function sliceOf(summary, index, kept) {
  return summary.axes.map((axis, at) => (kept.includes(axis.name) ? ":" : index[at])).join(",");
}

/** Row and column of an index on the plane. */
export function onPlane(summary, index, { rows, columns }) {
  const at = name => summary.axes.findIndex(axis => axis.name === name);
  return { row: rows === null ? 0 : index[at(rows)], column: columns ? index[at(columns)] : 0 };
}

/** The index with row and column replaced. */
export function withPlace(summary, index, { rows, columns }, row, column) {
  return summary.axes.map((axis, at) => (axis.name === rows ? row : axis.name === columns ? column : index[at]));
}

/** Which part of a complex tensor is shown. */
export function partOf(summary, state) {
  if (!summary.dtype.startsWith("complex")) return null;
  return state.part ?? (summary.presentation.meaning === "rotations" ? "angle" : "real");
}

/** The axes that are neither rows nor columns and have more than one index. */
export function otherAxes(summary, { rows, columns }) {
  return summary.axes.filter(axis => axis.size > 1 && axis.name !== rows && axis.name !== columns);
}

/**
 * The bounds of a colour scale: {kind, low, high, mode}. `mode` is robust, full, or fixed with `low:high`.
 * Shares run up to 1 whatever the tensor; a diverging scale is symmetric; angles go from -pi to pi.
 */
export function boundsOf(summary, kind, range, part = null) {
  const { stats, ranges, presentation } = summary;
  const scale = kind || (part === "magnitude" ? "sequential" : presentation.scale);
  const fixed = /^(-?[\d.e+-]+):(-?[\d.e+-]+)$/.exec(range ?? "");
  if (fixed) return { kind: scale, low: Number(fixed[1]), high: Number(fixed[2]), mode: "fixed" };
  const mode = range === "full" ? "full" : "robust";
  if (stats.min === null || ranges === null) return { kind: scale, low: scale === "diverging" ? -1 : 0, high: 1, mode };
  if (part === "angle") return { kind: "diverging", low: -Math.PI, high: Math.PI, mode: "full" };
  const reach = mode === "full" ? stats.abs_max : Math.min(ranges.abs_high, stats.abs_max);
  if (scale === "diverging") return { kind: scale, low: -reach, high: reach, mode };
  const shares = presentation.scale === "log";
  if (scale === "log") return { kind: scale, low: shares ? Math.max(ranges.low_positive, 1e-6) : ranges.low_positive, high: shares ? 1 : reach, mode };
  if (stats.min < 0) return { kind: scale, low: mode === "full" ? stats.min : -reach, high: mode === "full" ? stats.max : reach, mode };
  return { kind: scale, low: summary.dtype.startsWith("int") ? stats.min : 0, high: shares ? 1 : summary.dtype.startsWith("int") ? stats.max : reach, mode };
}

/** The scene of a tensor: what a heatmap shows. `tokens` are the run's, `hueOf(axis)` the colour of an axis. */
export function sceneOf({ run, summary, state, index, tokens, hueOf, newFrom, against = null }) {
  const plane = planeAxes(summary, state);
  const at = name => summary.axes.findIndex(axis => axis.name === name);
  const kept = [plane.rows, plane.columns].filter(name => name !== null && name !== "");
  const query = {
    ...passOf(summary),
    slice: sliceOf(summary, index, kept),
    transpose: plane.rows !== null && at(plane.rows) > at(plane.columns) ? "true" : null,
    reduce: state.reduce,
    part: partOf(summary, state),
    ...against,
  };
  const axisOf = name => {
    const axis = summary.axes[at(name)] ?? { name: "", size: 1, first: null };
    const token = axis.first === null || !tokens.length ? undefined : place => tokens[axis.first + place]?.label;
    const fresh = axis.name === "keys" ? newFrom : undefined;
    return { ...axis, token, hue: hueOf(axis.name), newFrom: fresh };
  };
  const rowAxis = plane.rows === null ? { name: "", size: 1, first: null, hue: hueOf("") } : axisOf(plane.rows);
  const columnAxis = axisOf(plane.columns);
  const path = `${tensorPath(run, summary.node)}/tile`;
  return {
    key: address(path, query),
    plane,
    query,
    size: { rows: rowAxis.size, columns: columnAxis.size },
    rowAxis,
    columnAxis,
    address: (levels, tile) =>
      address(path, { ...query, row_level: levels.row, column_level: levels.column, tile_row: tile.row, tile_column: tile.column }),
  };
}
