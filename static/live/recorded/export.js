// Numbers as a file that others can read: .npy, .safetensors and .csv, made in the browser. bfloat16, which numpy lacks,
// leaves as float32 in .npy.

import { shortest } from "../format.js";

const KINDS = {
  float32: ["<f4", "F32"], bfloat16: ["<f4", "BF16"], float16: ["<f2", "F16"], float64: ["<f8", "F64"],
  int64: ["<i8", "I64"], int32: ["<i4", "I32"], bool: ["|b1", "BOOL"], complex64: ["<c8", "C64"],
};

/** A file as fetch would give it: `parts` are the values, or real and imaginary ones. */
export function fileOf(format, { dtype, shape, axes, starts, parts, name }) {
  if (format === "csv") return new Response(csv(dtype, shape, axes, starts, parts), { headers: { "Content-Type": "text/csv; charset=utf-8" } });
  const content = bytesOf(format === "npy" && dtype === "bfloat16" ? "float32" : dtype, parts);
  const head = format === "npy" ? npyHead(dtype, shape) : safetensorsHead(dtype, shape, name, content.byteLength);
  return new Response(new Blob([head, content]), { headers: { "Content-Type": "application/octet-stream" } });
}

function bytesOf(dtype, parts) {
  const [values, imaginary] = parts;
  if (imaginary) {
    const both = new Float32Array(2 * values.length);
    values.forEach((value, at) => both.set([value, imaginary[at]], 2 * at));
    return both;
  }
  if (dtype === "int64") return BigInt64Array.from(values, value => BigInt(value));
  if (dtype === "int32") return Int32Array.from(values);
  if (dtype === "bool") return Uint8Array.from(values);
  if (dtype === "bfloat16") return Uint16Array.from(values, value => bitsOf(value) >>> 16);
  if (dtype === "float16") return Uint16Array.from(values, halfBits);
  return values;
}

const scratch = new DataView(new ArrayBuffer(4));

function bitsOf(value) {
  scratch.setFloat32(0, value);
  return scratch.getUint32(0);
}

/** The bits of a number that float16 has. */
function halfBits(value) {
  const bits = bitsOf(value);
  const [sign, size] = [(bits >>> 16) & 0x8000, Math.abs(value)];
  if (Number.isNaN(value)) return sign | 0x7e00;
  if (size === Infinity) return sign | 0x7c00;
  if (size < 2 ** -14) return sign | (size * 2 ** 24);
  return sign | ((((bits >>> 23) & 255) - 112) << 10) | ((bits >>> 13) & 1023);
}

function npyHead(dtype, shape) {
  const list = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  let text = `{'descr': '${KINDS[dtype][0]}', 'fortran_order': False, 'shape': (${list}), }`;
  text = text.padEnd(Math.ceil((10 + text.length + 1) / 64) * 64 - 10 - 1) + "\n";
  const head = new Uint8Array(10 + text.length);
  head.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, text.length & 255, text.length >> 8]);
  head.set(new TextEncoder().encode(text), 10);
  return head;
}

function safetensorsHead(dtype, shape, name, size) {
  const text = new TextEncoder().encode(JSON.stringify({ [name]: { dtype: KINDS[dtype][1], shape, data_offsets: [0, size] } }));
  const padded = Math.ceil(text.length / 8) * 8;
  const head = new Uint8Array(8 + padded).fill(32, 8);
  new DataView(head.buffer).setBigUint64(0, BigInt(padded), true);
  head.set(text, 8);
  return head;
}

function csv(dtype, shape, axes, starts, parts) {
  const kind = dtype.startsWith("complex") ? "float32" : dtype;
  const lines = [[...axes, ...(parts.length > 1 ? ["real", "imaginary"] : ["value"])].join(",")];
  for (let at = 0; at < parts[0].length; at++) {
    let rest = at;
    const index = [];
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      index.unshift((rest % shape[axis]) + starts[axis]);
      rest = Math.floor(rest / shape[axis]);
    }
    lines.push([...index, ...parts.map(values => shortest(values[at], kind))].join(","));
  }
  return `${lines.join("\r\n")}\r\n`;
}
