// Colour scales: numbers to colours, for both themes. Zero is always the page's own ground on a diverging scale, so a
// colour never suggests a sign. Blue and orange stay apart for readers with any of the common colour deficiencies.

const SIZE = 1024;

const STOPS = {
  light: {
    diverging: ["#08306b", "#2f6db5", "#8bb5df", "#f4f2ec", "#f0b483", "#cf6217", "#6e2a02"],
    sequential: ["#f4f2ec", "#c6dfda", "#7db9b5", "#328c8e", "#0d5d66", "#06353f"],
  },
  dark: {
    diverging: ["#b9d8ff", "#5c9bea", "#28568f", "#1e2027", "#7a431b", "#df7f36", "#ffd2a6"],
    sequential: ["#1e2027", "#214c52", "#2b7d80", "#58b2ab", "#a3dccf", "#e8fbf4"],
  },
};

/** What is no number on the scale: colours that no scale has. */
const ODD = {
  light: { nan: "#d6006c", plus: "#7a1fd1", masked: "#cfcbc2", none: "#e6e2d9" },
  dark: { nan: "#ff4fa3", plus: "#c38bff", masked: "#3b3e47", none: "#2a2c33" },
};

const channels = hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
const packed = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;
const toLinear = channel => ((channel / 255) ** 2.2);
const toGamma = light => Math.round(255 * light ** (1 / 2.2));

function ramp(stops) {
  const linear = stops.map(hex => channels(hex).map(toLinear));
  const table = new Int32Array(SIZE);
  for (let at = 0; at < SIZE; at++) {
    const place = (at / (SIZE - 1)) * (linear.length - 1);
    const lower = Math.min(Math.floor(place), linear.length - 2);
    const share = place - lower;
    table[at] = packed(linear[lower].map((light, c) => toGamma(light * (1 - share) + linear[lower + 1][c] * share)));
  }
  return table;
}

const made = new Map();

/** The colours of a theme: {table: Int32Array of RGBA, odd: {nan, plus, masked, none}}. */
export function palette(kind, dark) {
  const theme = dark ? "dark" : "light";
  const name = kind === "diverging" ? "diverging" : "sequential";
  const key = `${theme} ${name}`;
  if (!made.has(key)) made.set(key, ramp(STOPS[theme][name]));
  const odd = Object.fromEntries(Object.entries(ODD[theme]).map(([what, hex]) => [what, packed(channels(hex))]));
  return { table: made.get(key), odd };
}

/** A packed colour as CSS. */
export function css(color) {
  return `rgb(${color & 255} ${(color >> 8) & 255} ${(color >> 16) & 255})`;
}

/**
 * A scale: {kind, low, high, index(value)}. `index` is a place in the table, -1 for a zero on a logarithmic scale.
 * diverging is symmetric about zero (`high` counts); sequential runs from low to high; log from low to high magnitude.
 */
export function createScale(kind, low, high) {
  if (kind === "diverging") {
    const reach = Math.max(Math.abs(low), Math.abs(high)) || 1;
    const factor = (SIZE - 1) / (2 * reach);
    return { kind, low: -reach, high: reach, index: value => clamp((value + reach) * factor) };
  }
  if (kind === "log") {
    const top = high > 0 ? high : 1;
    const bottom = low > 0 && low < top ? low : top / 1e6;
    const start = Math.log(bottom);
    const factor = (SIZE - 1) / (Math.log(top) - start);
    return {
      kind, low: bottom, high: top,
      index: value => (value === 0 ? -1 : clamp((Math.log(Math.abs(value)) - start) * factor)),
    };
  }
  const top = high > low ? high : low + 1;
  const factor = (SIZE - 1) / (top - low);
  return { kind, low, high: top, index: value => clamp((value - low) * factor) };
}

/** Where a value lies on a scale, 0 to 1, beyond its ends too. */
export function placeOf(scale, value) {
  if (scale.kind === "log") return (Math.log(Math.abs(value)) - Math.log(scale.low)) / (Math.log(scale.high) - Math.log(scale.low));
  return (value - scale.low) / (scale.high - scale.low);
}

const clamp = place => (place <= 0 ? 0 : place >= SIZE - 1 ? SIZE - 1 : place | 0);

export const FLAGS = { nan: 1, plus: 2, minus: 4, lowest: 8, finite: 16 };

/** Paints values into 32-bit pixels. A cell that holds a nan or +inf shows it, however many numbers lie beside it. */
export function paint(values, flags, scale, colors, pixels) {
  const { table, odd } = colors;
  const { index } = scale;
  for (let at = 0; at < pixels.length; at++) {
    const flag = flags[at];
    if (flag === 16) {
      const place = index(values[at]);
      pixels[at] = place < 0 ? odd.none : table[place];
    } else if (flag & 1) pixels[at] = odd.nan;
    else if (flag & 2) pixels[at] = odd.plus;
    else if (flag & 16) {
      const place = index(values[at]);
      pixels[at] = place < 0 ? odd.none : table[place];
    } else pixels[at] = odd.masked;
  }
}
