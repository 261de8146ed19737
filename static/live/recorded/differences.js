// Two recorded tensors side by side: brought to the positions that both have, and their difference row by row, in
// float64. A row is the last axis; its difference is the norm of the difference over the norm of the row. As
// `inspection/compare.py` and the server's answers `difference` and `agreement`.

import { quoted } from "../format.js";
import { refused } from "../problem.js";
import { bothOf, isComplex } from "./numbers.js";

const POSITIONAL = ["positions", "queries", "keys"];
const ATTENDED = "keys";

/** A tensor with the positions that its axes begin with, and the pass that made it. */
export async function framed(tensor) {
  const { axes } = await tensor.answer("summary");
  return { tensor, axes: tensor.axes, shape: tensor.shape, first: axes.map(axis => axis.first), ...tensor.made };
}

/** The parts of two framed tensors that stand for the same positions: {one, other, starts, otherStarts, axes, shape, first}. */
export function align(one, other) {
  if (one.axes.join() !== other.axes.join()) {
    throw refused(`These tensors have other axes: ${said(one)} and ${said(other)}.`, "Compare tensors of one node.");
  }
  const pair = { one: one.tensor, other: other.tensor, axes: one.axes, shape: [], first: [], starts: [], otherStarts: [] };
  for (const [at, axis] of one.axes.entries()) {
    const [size, otherSize, start, otherStart] = [one.shape[at], other.shape[at], one.first[at], other.first[at]];
    let [begin, end] = [0, size];
    const counted = start !== null && otherStart !== null;
    if (counted) {
      [begin, end] = [Math.max(start, otherStart), Math.min(start + size, otherStart + otherSize)];
      if (begin >= end) {
        throw refused(
          `They have no position in common: ${axis} ${start} to ${start + size - 1} in one, ${otherStart} to ${otherStart + otherSize - 1} in the other.`,
          "Choose steps or views that compute the same position.",
        );
      }
    } else if (size !== otherSize) {
      throw refused(`The axis ${quoted(axis)} has size ${size} in one and ${otherSize} in the other.`, "Compare runs of one model, or models of one size.");
    }
    pair.shape.push(end - begin);
    pair.first.push(counted ? begin : null);
    pair.starts.push(counted ? begin - start : 0);
    pair.otherStarts.push(counted ? begin - otherStart : 0);
  }
  return pair;
}

/** As `align`; but two passes of one position each are laid side by side whatever their positions. */
export function pairUp(one, other) {
  if (one.computed !== 1 || other.computed !== 1 || one.before === other.before || one.axes.join() !== other.axes.join()) return align(one, other);
  const shortened = frame => frame.shape.map((size, at) => (frame.axes[at] === ATTENDED ? Math.min(one.shape[at], other.shape[at]) : size));
  const first = other.axes.map(axis => (axis === ATTENDED ? 0 : POSITIONAL.includes(axis) ? one.before : null));
  return align({ ...one, shape: shortened(one) }, { ...other, shape: shortened(other), first });
}

const said = ({ axes, shape }) => `[${axes.map((axis, at) => `${shape[at]} ${axis}`).join(", ")}]`;

/** The axis that says which position a row belongs to, or -1. */
const positionsAxis = ({ axes }) => axes.indexOf(POSITIONAL.find(name => axes.includes(name)));

/** {by_position, worst, max_abs, equal}: null where a row is not finite in one of the two only. */
async function rowDifferences(pair) {
  const ranges = pair.shape.map(size => [0, size]);
  const parts = isComplex(pair.one.dtype) ? ["real", "imaginary"] : [null];
  const width = pair.shape.at(-1) ?? 1;
  const count = pair.shape.slice(0, -1).reduce((product, size) => product * size, 1);
  const [gaps, sizes] = [new Float64Array(count), new Float64Array(count)];
  let [most, equal] = [0, true];
  for (const part of parts) {
    const [one, other] = await bothOf(pair, ranges, part);
    for (let at = 0; at < one.length; at++) {
      const row = Math.floor(at / width);
      if (Number.isFinite(one[at])) sizes[row] += one[at] * one[at];
      if (one[at] === other[at]) continue;
      equal = false;
      const gap = one[at] - other[at];
      gaps[row] += gap * gap;
      most = Math.max(most, Math.abs(gap)); // not a number stays so
    }
  }
  const relative = gaps.map((gap, row) => (gap === 0 ? 0 : Math.sqrt(gap) / Math.sqrt(sizes[row])));
  const axis = positionsAxis(pair);
  const counted = axis >= 0 && axis < pair.shape.length - 1;
  const stride = counted ? pair.shape.slice(axis + 1, -1).reduce((product, size) => product * size, 1) : 0;
  const worst = new Float64Array(counted ? pair.shape[axis] : 1);
  relative.forEach((value, row) => {
    const place = counted ? Math.floor(row / stride) % pair.shape[axis] : 0;
    worst[place] = Math.max(worst[place], value);
  });
  const by_position = Array.from(worst, known);
  return { by_position, worst: worstOf(by_position), max_abs: known(most), equal };
}

const known = value => (Number.isFinite(value) ? value : null);
const worstOf = rows => (rows.length && !rows.includes(null) ? Math.max(...rows) : null);

/** The answer `difference`: how far two tensors of one node are from each other, row by row. */
export async function difference(one, other) {
  const pair = pairUp(await framed(one), await framed(other));
  const rows = await rowDifferences(pair);
  const first = pair.first[positionsAxis(pair)] ?? null;
  return {
    shape: pair.shape,
    axes: pair.axes.map((name, at) => ({ name, size: pair.shape[at], first: pair.first[at] })),
    by_position: rows.by_position,
    positions: first === null ? null : rows.by_position.map((_, at) => first + at),
    worst: rows.worst, max_abs: rows.max_abs, equal: rows.equal,
  };
}

/** The answer `agreement`: prefill and every decode step, which `passes` opens one by one, against the full sequence. */
export async function agreement(full, passes) {
  const whole = await framed(full);
  const found = { positions: [], relative: [], worst: null };
  for (const open of passes) {
    const part = await framed(await open());
    const rows = await rowDifferences(newest(align(part, whole), part.before));
    rows.by_position.forEach((value, at) => {
      found.positions.push(part.before + at);
      found.relative.push(value);
    });
  }
  return { ...found, worst: worstOf(found.relative) };
}

/** Of a tensor with keys and no queries (a cache), the rows from a position on; others as they are. */
function newest(pair, before) {
  const axis = positionsAxis(pair);
  if (pair.axes[axis] !== ATTENDED) return pair;
  const moved = list => list.map((value, at) => (at === axis ? value + before : value));
  return { ...pair, shape: pair.shape.map((size, at) => (at === axis ? Math.max(0, size - before) : size)), starts: moved(pair.starts), otherStarts: moved(pair.otherStarts) };
}

/** The first row whose difference is above a tolerance, or unknown, of two tensors at the same positions; -1 for none. */
export async function firstParting(one, other, tolerance) {
  const { by_position: rows } = await rowDifferences(align(await framed(one), await framed(other)));
  const at = rows.findIndex(value => value === null || value > tolerance);
  return { at, relative: at < 0 ? null : rows[at] };
}
