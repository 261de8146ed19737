// The legend of a colour scale: the colours, the numbers at both ends and in the middle, and how the tensor's numbers
// are distributed over them.

import { css, placeOf } from "./color.js";
import { count, readable } from "./format.js";

const INK = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif";

const drawn = new WeakMap(); // canvas -> the legend without its pointer, and what it was drawn for

/** Draws it: `histogram` is {edges, counts} in the scale's numbers, or null; `pointed` is a value to point at. */
export function drawLegend(canvas, { scale, palette, histogram, inks, pointed = null }) {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (!width || !height) return;
  const ratio = Math.min(3, globalThis.devicePixelRatio || 1);
  const size = [Math.round(width * ratio), Math.round(height * ratio)];
  const wanted = [scale.kind, scale.low, scale.high, ...size, ...Object.values(inks)].join();
  const bar = { x: 6, y: height - 27, width: width - 12, height: 9 };
  const known = drawn.get(canvas);
  let ground = known?.ground;
  if (known?.wanted !== wanted || known.histogram !== histogram) {
    ground = Object.assign(document.createElement("canvas"), { width: size[0], height: size[1] });
    const pen = ground.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawGround(pen, bar, { scale, palette, histogram, inks });
    drawn.set(canvas, { wanted, histogram, ground });
  }
  if (canvas.width !== size[0] || canvas.height !== size[1]) Object.assign(canvas, { width: size[0], height: size[1] });
  const context = canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, ...size);
  context.drawImage(ground, 0, 0);
  if (pointed === null || !Number.isFinite(pointed) || (scale.kind === "log" && pointed === 0)) return;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const x = bar.x + bar.width * Math.min(1, Math.max(0, placeOf(scale, pointed)));
  context.fillStyle = inks.accent;
  context.beginPath();
  context.moveTo(x, bar.y + bar.height);
  context.lineTo(x - 4, bar.y + bar.height + 6);
  context.lineTo(x + 4, bar.y + bar.height + 6);
  context.fill();
}

function drawGround(context, bar, { scale, palette, histogram, inks }) {
  for (let x = 0; x < bar.width; x++) {
    const share = x / Math.max(1, bar.width - 1);
    context.fillStyle = css(palette.table[Math.round(share * (palette.table.length - 1))]);
    context.fillRect(bar.x + x, bar.y, 1.5, bar.height);
  }
  context.strokeStyle = inks.line;
  context.strokeRect(bar.x - 0.5, bar.y - 0.5, bar.width + 1, bar.height + 1);
  if (histogram) drawHistogram(context, bar, scale, histogram, inks);
  context.font = INK;
  context.fillStyle = inks.soft;
  context.textBaseline = "top";
  const ends = [scale.low, scale.kind === "log" ? Math.sqrt(scale.low * scale.high) : (scale.low + scale.high) / 2, scale.high];
  for (const [at, value] of ends.entries()) {
    context.textAlign = ["left", "center", "right"][at];
    context.fillText(readable(value, 3), bar.x + (bar.width * at) / 2, bar.y + bar.height + 4);
  }
}

function drawHistogram(context, bar, scale, { edges, counts }, inks) {
  const most = Math.sqrt(Math.max(...counts, 1));
  const room = bar.y - 2;
  context.fillStyle = inks.bars;
  for (const [at, amount] of counts.entries()) {
    if (!amount) continue;
    const from = Math.min(1, Math.max(0, placeOf(scale, edges[at])));
    const to = Math.min(1, Math.max(0, placeOf(scale, edges[at + 1])));
    if (to <= from) continue;
    const tall = Math.max(1, (Math.sqrt(amount) / most) * room);
    context.fillRect(bar.x + from * bar.width, bar.y - 1 - tall, Math.max(1, (to - from) * bar.width - 0.5), tall);
  }
}

/** The histogram that suits a scale. */
export function histogramFor(summary, scale, mode) {
  if (!summary.ranges) return summary.stats.histogram;
  if (scale.kind === "log") return summary.ranges.magnitudes;
  return mode === "full" ? summary.stats.histogram : summary.ranges.linear;
}

/** What the colours mean, in words. `odd` are what is no number: {nan, inf, minus_inf}. */
export function legendWords(scale, mode, stats) {
  const ranges = { robust: "robust range, 99.5 % of the numbers within", full: "full range", fixed: "fixed range" };
  const kinds = {
    diverging: "blue below zero, orange above",
    sequential: "stronger is more",
    log: "logarithmic magnitude, zero left blank",
  };
  const parts = [`${readable(scale.low, 3)} to ${readable(scale.high, 3)}, ${ranges[mode]}; ${kinds[scale.kind]}`];
  if (stats.minus_inf) parts.push(`${count(stats.minus_inf)} masked (−∞), grey`);
  if (stats.inf > stats.minus_inf) parts.push(`${count(stats.inf - stats.minus_inf)} +∞, violet`);
  if (stats.nan) parts.push(`${count(stats.nan)} nan, magenta`);
  return `${parts.join(". ")}. Bars: how many numbers, by their square root.`;
}
