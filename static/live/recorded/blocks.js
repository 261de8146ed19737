// Tensors as recorded runs keep them: tiles of planes, packed by significance and deflated. `recorded/blocks.py` writes
// what is read here. A request asks for a box; only the tiles that hold some of it are fetched.

const CELLS = 1 << 16;
const SIDE = 256;

/** How a shape is cut: {planes, rows, columns, deep, tall, wide}. */
export function tiling(shape) {
  const columns = shape.at(-1) ?? 1;
  const rows = shape.length > 1 ? shape.at(-2) : 1;
  const planes = shape.slice(0, -2).reduce((product, size) => product * size, 1);
  const plane = rows * columns;
  if (plane <= CELLS) return { planes, rows, columns, deep: Math.max(1, Math.floor(CELLS / Math.max(1, plane))), tall: rows, wide: columns };
  const tall = Math.min(rows, SIDE);
  const wide = Math.max(SIDE, 2 ** Math.floor(Math.log2(Math.floor(CELLS / tall))));
  return { planes, rows, columns, deep: 1, tall, wide: Math.min(columns, wide) };
}

const PARTS = {
  real: re => re,
  imaginary: (_, im) => im,
  magnitude: (re, im) => Math.hypot(re, im),
  angle: (re, im) => Math.atan2(im, re),
};

/** One real number of a complex one. */
export const parted = (re, im, part) => PARTS[part ?? "real"](re, im);

const WIDTHS = { float32: 4, float64: 8, float16: 2, bfloat16: 2, int64: 8, int32: 4, bool: 1, complex64: 8 };

/** The lowest number of a dtype, which some masks add instead of minus infinity; null where there is none. */
export function lowestOf(dtype) {
  return { float32: -3.4028234663852886e38, bfloat16: -3.3895313892515355e38, float16: -65504, float64: -Number.MAX_VALUE }[dtype] ?? null;
}

/** float64 keeps what float32 cannot; the others fit into float32. */
export const kindOf = dtype => (/^(float64|u?int)/.test(dtype) ? "float64" : "float32");

export const room = (dtype, size) => (kindOf(dtype) === "float64" ? new Float64Array(size) : new Float32Array(size));

/** Numbers of an inflated tile; of complex ones a part. */
export function unpack(bytes, dtype, part) {
  const width = WIDTHS[dtype];
  const count = bytes.length / width;
  const sorted = new Uint8Array(bytes.length);
  for (let lane = 0; lane < width; lane++) for (let at = 0; at < count; at++) sorted[at * width + lane] = bytes[lane * count + at];
  const view = new DataView(sorted.buffer);
  const found = room(dtype, count);
  const read = {
    float32: at => view.getFloat32(4 * at, true),
    float64: at => view.getFloat64(8 * at, true),
    int64: at => Number(view.getBigInt64(8 * at, true)),
    int32: at => view.getInt32(4 * at, true),
    bool: at => sorted[at],
    bfloat16: at => {
      scratch.setUint32(0, view.getUint16(2 * at, true) << 16);
      return scratch.getFloat32(0);
    },
    float16: at => half(view.getUint16(2 * at, true)),
    complex64: at => parted(view.getFloat32(8 * at, true), view.getFloat32(8 * at + 4, true), part),
  }[dtype];
  for (let at = 0; at < count; at++) found[at] = read(at);
  return found;
}

const scratch = new DataView(new ArrayBuffer(4));

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * (fraction / 1024);
}

/**
 * A box of a tensor: `ranges` are [start, stop] an axis. `tileOf(number)` gives the numbers of a tile.
 * Gives {shape, values}, the values in row order.
 */
export async function box(shape, dtype, ranges, tileOf) {
  const sizes = ranges.map(([start, stop]) => stop - start);
  const values = room(dtype, sizes.reduce((product, size) => product * size, 1));
  if (!values.length) return { shape: sizes, values };
  const cut = tiling(shape);
  const [top, bottom] = shape.length > 1 ? ranges.at(-2) : [0, 1];
  const [left, right] = shape.length ? ranges.at(-1) : [0, 1];
  const planes = planesIn(shape.slice(0, -2), ranges.slice(0, -2));
  const down = Math.ceil(cut.rows / cut.tall);
  const across = Math.ceil(cut.columns / cut.wide);
  const jobs = [];
  for (const [place, plane] of planes.entries()) {
    for (let r = Math.floor(top / cut.tall); r * cut.tall < bottom; r++) {
      for (let c = Math.floor(left / cut.wide); c * cut.wide < right; c++) {
        jobs.push({ place, plane, r, c, number: (Math.floor(plane / cut.deep) * down + r) * across + c });
      }
    }
  }
  const numbers = [...new Set(jobs.map(job => job.number))];
  const tiles = new Map((await Promise.all(numbers.map(tileOf))).map((tile, at) => [numbers[at], tile]));
  const [height, width] = [bottom - top, right - left];
  for (const { place, plane, r, c, number } of jobs) {
    const tile = tiles.get(number);
    const tall = Math.min(cut.tall, cut.rows - r * cut.tall);
    const wide = Math.min(cut.wide, cut.columns - c * cut.wide);
    const [from, to] = [Math.max(left, c * cut.wide), Math.min(right, c * cut.wide + wide)];
    for (let row = Math.max(top, r * cut.tall); row < Math.min(bottom, r * cut.tall + tall); row++) {
      const start = ((plane % cut.deep) * tall + row - r * cut.tall) * wide - c * cut.wide;
      values.set(tile.subarray(start + from, start + to), (place * height + row - top) * width + from - left);
    }
  }
  return { shape: sizes, values };
}

/** The flat numbers of the planes in ranges of the leading axes, in order. */
function planesIn(shape, ranges) {
  let found = [0];
  for (const [axis, [start, stop]] of ranges.entries()) {
    found = found.flatMap(before => Array.from({ length: stop - start }, (_, at) => before * shape[axis] + start + at));
  }
  return found;
}
