// Slices of an address, `0,3,:,2:8`: read, and refused, as `inspection/slices.py` does.

import { count, quoted } from "../format.js";
import { refused } from "../problem.js";

const NUMBER = /^-?[0-9]{1,18}$/;

/** A slice as [start, stop] an axis, and which axes it keeps: {ranges, kept}. Throws a problem that names the entry. */
export function sliced(text, axes, shape) {
  const entries = text?.trim() ? text.split(",").map(entry => entry.trim()) : [];
  if (entries.length > shape.length) {
    const described = axes.map((axis, at) => `${axis} (${count(shape[at])})`).join(", ") || "none";
    throw refused(`The slice ${quoted(text)} has ${entries.length} entries, but the tensor has ${shape.length} axes: ${described}.`, "Give at most one entry for each axis.");
  }
  const ranges = shape.map((size, at) => (at < entries.length ? rangeOf(entries[at], axes[at], size) : [0, size]));
  const kept = shape.flatMap((_, at) => (at < entries.length && NUMBER.test(entries[at]) ? [] : [at]));
  return { ranges, kept };
}

function rangeOf(entry, axis, size) {
  const no = why => {
    const where = why.includes("axis") ? `${quoted(axis)}, which has size ${count(size)}` : `(axis ${quoted(axis)}, size ${count(size)})`;
    return refused(`The slice entry ${quoted(entry)} ${why} ${where}.`, `Use an index from 0 to ${size - 1}, a range such as 0:${size}, or \`:\` for all of it.`, { axis, size });
  };
  if (NUMBER.test(entry)) {
    const at = Number(entry);
    if (at < -size || at >= size) throw no("is outside the axis");
    const place = at < 0 ? at + size : at;
    return [place, place + 1];
  }
  const ends = entry.split(/:(.*)/s).slice(0, 2);
  if (ends.length < 2 || !ends.every(end => end === "" || NUMBER.test(end))) throw no("is not a number, `a:b` or `:`");
  const [first, last] = ends.map((end, at) => (end === "" ? [0, size][at] : Number(end)));
  if ([first, last].some(end => end < -size || end > size)) throw no("reaches outside the axis");
  const range = [first, last].map(end => (end < 0 ? end + size : end));
  if (range[0] >= range[1]) throw no("is empty");
  return range;
}

/** The sizes of the axes that a slice keeps. */
export const shapeOf = ({ ranges, kept }) => kept.map(axis => ranges[axis][1] - ranges[axis][0]);
