// Numbers with axes, which pieces are read off: those of a recorded tensor, a part of complex ones, or the difference of
// two tensors. As `inspection/numbers.py` has them.

import { halved, quoted } from "../format.js";
import { refused } from "../problem.js";
import { box, lowestOf, parted, room } from "./blocks.js";

/** {shape, axes, dtype, lowest, box(ranges), overview}: `box` gives the values in row order. */
export function numbersOf(tensor, part) {
  const { shape, axes, dtype } = tensor;
  if (part && !isComplex(dtype)) throw refused(`These numbers are real and have no ${part} part.`, "Leave `part` out.");
  return {
    shape, axes, dtype, lowest: lowestOf(dtype), overview: tensor.overview ?? null,
    box: async ranges => (await box(shape, dtype, ranges, number => tensor.tile(number, part ?? null))).values,
  };
}

export const isComplex = dtype => dtype.startsWith("complex");

/** One tensor minus the other, where a pair (see `differences.js`) has both; masked in both stays masked. */
export function differenceOf(pair, part) {
  const { one, other } = pair;
  if (part && !isComplex(one.dtype)) throw refused(`These numbers are real and have no ${part} part.`, "Leave `part` out.");
  const dtype = wider(one.dtype, other.dtype);
  const gap = async (ranges, which) => {
    const [mine, theirs] = await bothOf(pair, ranges, which);
    const found = room(dtype, mine.length);
    for (let at = 0; at < found.length; at++) {
      const masked = mine[at] === theirs[at] && Math.abs(mine[at]) === Infinity;
      found[at] = masked ? mine[at] : mine[at] - theirs[at];
    }
    return dtype === "float16" ? found.map(halved) : found;
  };
  return {
    shape: pair.shape, axes: pair.axes, dtype, lowest: lowestOf(one.dtype), overview: null,
    box: async ranges => {
      if (!isComplex(dtype)) return gap(ranges, null);
      const [real, imaginary] = await Promise.all([gap(ranges, "real"), gap(ranges, "imaginary")]);
      return real.map((re, at) => parted(re, imaginary[at], part));
    },
  };
}

/** The values of a pair in ranges of what both have. */
export function bothOf({ one, other, starts, otherStarts }, ranges, part) {
  const moved = by => ranges.map(([start, stop], axis) => [start + by[axis], stop + by[axis]]);
  return Promise.all([numbersOf(one, part).box(moved(starts)), numbersOf(other, part).box(moved(otherStarts))]);
}

/** What numpy makes of two dtypes; bfloat16 is read as float32. */
function wider(one, other) {
  const [a, b] = [one, other].map(dtype => (dtype === "bfloat16" ? "float32" : dtype));
  return [a, b].find(dtype => dtype === "float64") ?? (a === b ? a : "float32");
}

/** Where an axis stands. Throws a problem that lists those there are. */
export function axisOf(numbers, name) {
  const at = numbers.axes.indexOf(name);
  if (at < 0) throw refused(`There is no axis ${quoted(name)}.`, `The axes are ${numbers.axes.join(", ")}.`);
  return at;
}
