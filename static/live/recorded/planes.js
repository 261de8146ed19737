// Pictures of numbers: a tile of a plane, small multiples along an axis, and one number for each index of an axis.
// `inspection/tiles.py` and `inspection/numbers.py` make the same.

import { count, quoted } from "../format.js";
import { refused } from "../problem.js";
import { kindOf } from "./blocks.js";
import { axisOf } from "./numbers.js";
import { SIDE, foremost, further, levelFor, levelsOf, profile as profileOf, reduce, transposed } from "./reduce.js";
import { shapeOf, sliced } from "./slices.js";

const LARGEST_STACK = 1 << 22;

/** 256 x 256 cells of a plane. */
export async function tile(numbers, query) {
  const levels = [Number(query.row_level ?? 0), Number(query.column_level ?? 0)];
  const at = [Number(query.tile_row ?? 0), Number(query.tile_column ?? 0)];
  const { ranges, kept } = sliced(query.slice, numbers.axes, numbers.shape);
  if (kept.length < 1 || kept.length > 2) {
    throw refused(`The slice ${quoted(query.slice ?? "")} keeps ${kept.length} axes, but a plane has two.`, "Give `:` for rows and columns, and a number for every other axis.");
  }
  const rowFirst = kept.length === 1 ? [null, kept[0]] : kept;
  const [down, across] = query.transpose === "true" ? rowFirst.toReversed() : rowFirst;
  const size = axis => (axis === null ? 1 : ranges[axis][1] - ranges[axis][0]);
  for (const [name, axis, which] of [["row", down, 0], ["column", across, 1]]) mustHave(name, size(axis), levels[which], at[which]);
  const small = await fromOverview(numbers, query, levels, at, ranges, [down, across]);
  if (small) return small;
  const window = ranges.map(range => [...range]);
  for (const [axis, which] of [[down, 0], [across, 1]]) {
    if (axis === null) continue;
    const step = SIDE * 2 ** levels[which];
    window[axis] = [ranges[axis][0] + at[which] * step, Math.min(ranges[axis][1], ranges[axis][0] + (at[which] + 1) * step)];
  }
  const values = await numbers.box(window);
  const cells = axis => (axis === null ? 1 : window[axis][1] - window[axis][0]);
  let block = { values, count: 1, rows: cells(down), columns: cells(across) };
  if (down !== null && across !== null && down > across) block = transposed({ ...block, rows: cells(across), columns: cells(down) });
  const made = reduce(block, query.reduce ?? "absmax", levels, numbers.lowest);
  return { ...made, shape: made.shape.slice(1) };
}

/** Throws a problem for a level or a tile that an axis does not have. */
function mustHave(name, size, level, index) {
  const top = levelsOf(size);
  if (!(level >= 0 && level <= top)) throw refused(`There is no ${name} level ${level}: ${count(size)} ${name}s have levels 0 to ${top}.`, "Level 0 is one element a cell.");
  const last = Math.floor((size - 1) / (SIDE * 2 ** level));
  if (!(index >= 0 && index <= last)) throw refused(`There is no tile ${index} along the ${name}s at level ${level}: they end at tile ${last}.`, `Ask for 0 to ${last}.`);
}

/** A tile from the overview, where that holds it: a whole plane of the last two axes, the largest magnitudes. */
async function fromOverview(numbers, query, levels, at, ranges, [down, across]) {
  const last = numbers.shape.length - 1;
  const whole = [last - 1, last].every(axis => ranges[axis]?.[0] === 0 && ranges[axis][1] === numbers.shape[axis]);
  if (!numbers.overview || !whole || down !== last - 1 || across !== last || (query.reduce ?? "absmax") !== "absmax") return null;
  const [tall, wide] = numbers.overview.levels;
  if (levels[0] < tall || levels[1] < wide) return null;
  const [rows, columns] = [Math.ceil(numbers.shape[last - 1] / 2 ** tall), Math.ceil(numbers.shape[last] / 2 ** wide)];
  const plane = ranges.slice(0, -2).reduce((before, [start], axis) => before * numbers.shape[axis] + start, 0);
  const bytes = await numbers.overview.bytes();
  const planes = numbers.shape.slice(0, -2).reduce((product, size) => product * size, 1);
  const Kind = kindOf(numbers.dtype) === "float64" ? Float64Array : Float32Array;
  const all = new Kind(bytes.buffer, 0, planes * rows * columns);
  const flags = bytes.subarray(all.byteLength);
  const part = list => list.subarray(plane * rows * columns, (plane + 1) * rows * columns);
  const made = further({ values: part(all), flags: part(flags), count: 1, rows, columns }, [levels[0] - tall, levels[1] - wide]);
  return windowed(made, at);
}

/** The cells of one tile of a whole plane. */
function windowed({ shape: [, rows, columns], values, flags }, [row, column]) {
  const [top, left] = [row * SIDE, column * SIDE];
  const [tall, wide] = [Math.min(SIDE, rows - top), Math.min(SIDE, columns - left)];
  const made = { shape: [tall, wide], values: new values.constructor(tall * wide), flags: new Uint8Array(tall * wide) };
  for (let line = 0; line < tall; line++) {
    const start = (top + line) * columns + left;
    made.values.set(values.subarray(start, start + wide), line * wide);
    made.flags.set(flags.subarray(start, start + wide), line * wide);
  }
  return made;
}

/** A small picture for each index along the axis `over`. */
export async function thumbnails(numbers, query) {
  const axis = axisOf(numbers, query.over);
  const cut = sliced(query.slice, numbers.axes, numbers.shape);
  if (!cut.kept.includes(axis) || cut.kept.length < 2 || cut.kept.length > 3) {
    throw refused(`The slice ${quoted(query.slice ?? "")} does not keep ${quoted(query.over)} and one or two axes more.`, `Give \`:\` for ${query.over}, rows and columns, and a number for every other axis.`);
  }
  const side = Number(query.side ?? 32);
  const moved = foremost({ shape: shapeOf(cut), values: await numbers.box(cut.ranges) }, cut.kept.indexOf(axis));
  const [pictures, rows, columns] = moved.shape.length === 2 ? [moved.shape[0], 1, moved.shape[1]] : moved.shape;
  if (pictures * side * side > LARGEST_STACK) throw refused(`${count(pictures)} pictures of ${side} cells a side are too many.`, "Ask for smaller ones, or for tiles.");
  let stack = { values: moved.values, count: pictures, rows, columns };
  if (query.transpose === "true") stack = transposed(stack);
  const levels = [levelFor(stack.rows, side), levelFor(stack.columns, side)];
  return reduce(stack, query.reduce ?? "absmax", levels, numbers.lowest);
}

/** One number for each index along an axis, over all other axes. */
export async function profile(numbers, query) {
  const { shape } = numbers;
  const axis = axisOf(numbers, query.along);
  const { values } = foremost({ shape, values: await numbers.box(shape.map(size => [0, size])) }, axis);
  return profileOf(values, shape[axis], query.measure ?? "rms", numbers.lowest);
}
