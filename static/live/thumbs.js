// Small pictures: one reduced plane each, a button that leads to it.

import { paint } from "./color.js";
import { el } from "./build.js";

/** A button with a picture: `data` is {rows, columns, values, flags}. */
export function thumb({ label, caption, chosen, data, scale, colors, onChoose }) {
  const canvas = el("canvas", { width: data.columns, height: data.rows, "aria-hidden": "true" });
  draw(canvas, data, scale, colors);
  return el(
    "button",
    { type: "button", class: "mini", "aria-label": label, title: label, "aria-pressed": String(chosen), onclick: onChoose },
    canvas,
    el("span", { text: caption }),
  );
}

export function draw(canvas, data, scale, colors) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(data.columns, data.rows);
  paint(data.values, data.flags, scale, colors, new Int32Array(image.data.buffer));
  context.putImageData(image, 0, 0);
}

/** The planes of a stack [count, rows, columns] as getNumbers gives it. */
export function planesOf({ shape: [amount, rows, columns], values, flags }) {
  const size = rows * columns;
  return Array.from({ length: amount }, (_, at) => ({
    rows,
    columns,
    values: values.subarray(at * size, (at + 1) * size),
    flags: flags.subarray(at * size, (at + 1) * size),
  }));
}
