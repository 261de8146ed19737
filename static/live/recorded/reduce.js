// Reductions of a block of numbers, as the server makes them: every element counts, and what is no finite number takes
// no part and is flagged. The same as `inspection/tiles.py` and `inspection/numbers.py`.

export const SIDE = 256;
const NAN = 1, PLUS = 2, MINUS = 4, LOWEST = 8, FINITE = 16;

/** The flag of one element. */
export function flagOf(value, lowest) {
  if (Number.isNaN(value)) return NAN;
  if (value === Infinity) return PLUS;
  if (value === -Infinity) return MINUS;
  return lowest !== null && value <= lowest ? LOWEST : FINITE;
}

/** The highest level of an axis: there, one cell holds all of it. */
export const levelsOf = size => Math.ceil(Math.log2(Math.max(1, size)));

/** The level at which an axis has at most `side` cells. */
export function levelFor(size, side) {
  let level = 0;
  while (Math.ceil(size / 2 ** level) > side) level++;
  return level;
}

const LARGER = {
  absmax: (one, other) => Math.abs(other) > Math.abs(one),
  max: (one, other) => other > one,
  min: (one, other) => other < one,
};

/** Planes [count, rows, columns] reduced by 2**level: {shape, values, flags}. At levels 0 the elements themselves. */
export function reduce({ values, count, rows, columns }, reduction, [down, across], lowest) {
  const [tall, wide] = [Math.ceil(rows / 2 ** down), Math.ceil(columns / 2 ** across)];
  const made = new values.constructor(count * tall * wide);
  const flags = new Uint8Array(made.length);
  const sums = reduction === "mean" ? new Float64Array(made.length) : null;
  const counts = new Uint32Array(made.length);
  const larger = LARGER[reduction];
  const exact = !down && !across;
  for (let plane = 0, at = 0; plane < count; plane++) {
    for (let row = 0; row < rows; row++) {
      const line = (plane * tall + Math.floor(row / 2 ** down)) * wide;
      for (let column = 0; column < columns; column++, at++) {
        const value = values[at];
        const cell = line + Math.floor(column / 2 ** across);
        const flag = flagOf(value, lowest);
        flags[cell] |= flag;
        if (exact) made[cell] = value;
        else if (flag === FINITE) {
          if (sums) sums[cell] += value;
          else if (!counts[cell] || larger(made[cell], value)) made[cell] = value;
          counts[cell]++;
        }
      }
    }
  }
  if (!exact) {
    for (let cell = 0; cell < made.length; cell++) {
      if (!counts[cell]) made[cell] = NaN;
      else if (sums) made[cell] = sums[cell] / counts[cell];
    }
  }
  return { shape: [count, tall, wide], values: made, flags };
}

/** An overview reduced further: by 2**level more along either axis. Cells without a finite element stay so. */
export function further({ values, flags, count, rows, columns }, [down, across]) {
  const [tall, wide] = [Math.ceil(rows / 2 ** down), Math.ceil(columns / 2 ** across)];
  const made = new values.constructor(count * tall * wide).fill(NaN);
  const union = new Uint8Array(made.length);
  for (let plane = 0, at = 0; plane < count; plane++) {
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++, at++) {
        const cell = (plane * tall + Math.floor(row / 2 ** down)) * wide + Math.floor(column / 2 ** across);
        union[cell] |= flags[at];
        const value = values[at];
        if (!Number.isNaN(value) && (Number.isNaN(made[cell]) || Math.abs(value) > Math.abs(made[cell]))) made[cell] = value;
      }
    }
  }
  return { shape: [count, tall, wide], values: made, flags: union };
}

/** Rows and columns exchanged in every plane. */
export function transposed({ values, count, rows, columns }) {
  const made = new values.constructor(values.length);
  for (let plane = 0, at = 0; plane < count; plane++) {
    for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++, at++) made[(plane * columns + column) * rows + row] = values[at];
  }
  return { values: made, count, rows: columns, columns: rows };
}

/** The axis at `axis` of an array brought to the front. */
export function foremost({ shape, values }, axis) {
  const before = shape.slice(0, axis).reduce((product, size) => product * size, 1);
  const after = shape.slice(axis + 1).reduce((product, size) => product * size, 1);
  const size = shape[axis];
  const made = new values.constructor(values.length);
  for (let a = 0, at = 0; a < before; a++) {
    for (let b = 0; b < size; b++) for (let c = 0; c < after; c++, at++) made[(b * before + a) * after + c] = values[at];
  }
  return { shape: [size, ...shape.slice(0, axis), ...shape.slice(axis + 1)], values: made };
}

/** One number for each of `count` rows of numbers, over the finite ones; null where there is none. */
export function profile(values, count, measure, lowest) {
  const wide = count ? values.length / count : 0;
  return Array.from({ length: count }, (_, row) => {
    const kept = values.subarray(row * wide, (row + 1) * wide).filter(value => flagOf(value, lowest) === FINITE);
    if (!kept.length) return null;
    const total = each => kept.reduce((sum, value) => sum + each(value), 0);
    if (measure === "mean") return total(value => value) / kept.length;
    if (measure === "rms") return Math.sqrt(total(value => value * value) / kept.length);
    if (measure === "absmax") return kept.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    return kept.reduce((found, value) => (measure === "max" ? Math.max(found, value) : Math.min(found, value)));
  });
}

/** The place of the element that a reduction stands for; null for a mean or without finite ones. */
export function extreme(values, reduction, lowest) {
  if (reduction === "mean") return null;
  let best = null;
  for (let at = 0; at < values.length; at++) {
    if (flagOf(values[at], lowest) === FINITE && (best === null || LARGER[reduction](values[best], values[at]))) best = at;
  }
  return best;
}

/** The `count` largest with their places, largest first, ties by place; what is no finite number left out. */
export function strongest(row, count) {
  const places = Array.from(row.keys()).filter(place => Number.isFinite(row[place]));
  return places.sort((a, b) => row[b] - row[a] || a - b).slice(0, count);
}
