// The API's answers out of files: what a published site has in place of a server. The same addresses, the same answers;
// what would need the model says so.

import { Problem } from "../problem.js";
import { shortest } from "../format.js";
import { searched } from "../../published/search.js";
import { box, kindOf, lowestOf } from "./blocks.js";
import { fileOf } from "./export.js";
import { labels, openTensor, runFacts } from "./files.js";
import { SIDE, extreme, foremost, further, levelFor, profile, reduce, strongest, transposed } from "./reduce.js";

const OPERATIONS = { data, tile, thumbnails, profile: profiled, cell, top, heads, predictions };
const ELSEWHERE = ["difference", "agreement"];

/** The answer to a request, as fetch would give it. */
export async function answer(url, { method = "GET" } = {}) {
  try {
    return await answered(new URL(url, "http://site.invalid"), method);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    const said = { ...problem.facts, code: problem.code, detail: problem.message, hint: problem.hint };
    return new Response(JSON.stringify(said), { status: problem.status || 503, headers: { "Content-Type": "application/problem+json" } });
  }
}

async function answered(url, method) {
  if (method !== "GET") throw new Problem(403, { code: "read-only", detail: "A published atlas shows recorded runs, and starts none.", hint: "Where the weights are, atlas serve does." });
  const query = Object.fromEntries(url.searchParams);
  if (url.pathname === "/readyz") return Response.json({ status: "ready", model: "", demo_run: document.getElementById("live")?.dataset.demoRun || null });
  if (url.pathname === "/api/search") return Response.json({ query: query.q, hits: await searched(query) });
  const [, run, rest] = /^\/api\/runs\/([^/]+)\/?(.*)$/.exec(url.pathname) ?? [];
  if (run && !rest) return Response.json(await lookedAt(decodeURIComponent(run)));
  if (!run || !rest.startsWith("tensors/")) throw notHere();
  const parts = rest.slice("tensors/".length).split("/");
  const last = parts.at(-1);
  if (ELSEWHERE.includes(last) || Object.keys(query).some(name => name.startsWith("against_"))) throw notHere();
  const operation = Object.hasOwn(OPERATIONS, last) ? OPERATIONS[last] : null;
  const node = (operation ? parts.slice(0, -1) : parts).join("/");
  const number = name => (query[name] === undefined ? null : Number(query[name]));
  const tensor = await openTensor(decodeURIComponent(run), node, query.view ?? "full", number("layer"), number("step"));
  if (!operation) return Response.json(await tensor.answer("summary"));
  return operation(tensor, query, await tensor.answer("summary"));
}

const notHere = () => new Problem(404, {
  code: "not-recorded",
  detail: "A published atlas holds tensors of recorded runs, and this would need the model.",
  hint: "Where the weights are, atlas serve gives it.",
});

/** A run as the API gives it. */
async function lookedAt(id) {
  const { id: run, model, checkpoint_words: checkpoint, prompt, prompt_length, max_new_tokens, temperature, seed, tokens, steps, machine } = await runFacts(id);
  return {
    id: run, model, checkpoint, status: "done", prompt, prompt_length, max_new_tokens, temperature, seed, tokens, steps,
    waiting: 0, seconds: {}, note: `A recorded run, computed with ${machine}.`, error: null,
  };
}

/** A slice `0,3,:,2:8` as ranges, and which axes it keeps. */
function sliced(text, shape) {
  const entries = text ? text.split(",") : [];
  const kept = [];
  const ranges = shape.map((size, axis) => {
    const entry = (entries[axis] ?? ":").trim();
    const [start, stop] = entry.split(":");
    const place = (part, by) => (part === "" ? by : Number(part) < 0 ? Number(part) + size : Number(part));
    const range = stop === undefined ? [place(start, 0), place(start, 0) + 1] : [place(start, 0), place(stop, size)];
    if (!range.every(Number.isInteger) || range[0] < 0 || range[1] > size || range[0] >= range[1]) {
      throw new Problem(422, { code: "bad-request", detail: `The slice entry ${entry} is outside an axis of size ${size}.`, hint: `Use 0 to ${size - 1}.` });
    }
    if (stop !== undefined) kept.push(axis);
    return range;
  });
  return { ranges, kept };
}

/** The numbers of a slice: {shape of the kept axes, values}. */
async function cut(tensor, query, text = query.slice) {
  const { ranges, kept } = sliced(text, tensor.shape);
  const { values } = await box(tensor.shape, tensor.dtype, ranges, number => tensor.tile(number, query.part));
  return { shape: kept.map(axis => ranges[axis][1] - ranges[axis][0]), values, ranges, kept };
}

function binary({ shape, values, flags }) {
  const content = new Uint8Array(values.byteLength + flags.length);
  content.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  content.set(flags, values.byteLength);
  const dtype = values instanceof Float64Array ? "float64" : "float32";
  return new Response(content, { headers: { "Atlas-Shape": shape.join(","), "Atlas-Dtype": dtype } });
}

async function tile(tensor, query) {
  const levels = [Number(query.row_level ?? 0), Number(query.column_level ?? 0)];
  const at = [Number(query.tile_row ?? 0), Number(query.tile_column ?? 0)];
  const { ranges, kept } = sliced(query.slice, tensor.shape);
  const [down, across] = kept.length === 1 ? [null, kept[0]] : query.transpose === "true" ? [kept[1], kept[0]] : kept;
  const small = await fromOverview(tensor, query, levels, at, ranges, [down, across]);
  if (small) return binary(small);
  const window = ranges.map(range => [...range]);
  for (const [axis, which] of [[down, 0], [across, 1]]) {
    if (axis === null) continue;
    const step = SIDE * 2 ** levels[which];
    window[axis] = [ranges[axis][0] + at[which] * step, Math.min(ranges[axis][1], ranges[axis][0] + (at[which] + 1) * step)];
  }
  const { values } = await box(tensor.shape, tensor.dtype, window, number => tensor.tile(number, query.part));
  const size = axis => (axis === null ? 1 : window[axis][1] - window[axis][0]);
  let block = { values, count: 1, rows: size(down), columns: size(across) };
  if (down !== null && down > across) block = transposed({ values, count: 1, rows: size(across), columns: size(down) });
  const made = reduce(block, query.reduce ?? "absmax", levels, lowestOf(tensor.dtype));
  return binary({ ...made, shape: made.shape.slice(1) });
}

/** A tile from the tensor's overview, where that holds it: a whole plane of the last two axes, the largest magnitudes. */
async function fromOverview(tensor, query, levels, at, ranges, [down, across]) {
  const last = tensor.shape.length - 1;
  const whole = [last - 1, last].every(axis => ranges[axis]?.[0] === 0 && ranges[axis][1] === tensor.shape[axis]);
  if (!tensor.overview || !whole || down !== last - 1 || across !== last || (query.reduce ?? "absmax") !== "absmax") return null;
  const [tall, wide] = tensor.overview.levels;
  if (levels[0] < tall || levels[1] < wide) return null;
  const [rows, columns] = [Math.ceil(tensor.shape[last - 1] / 2 ** tall), Math.ceil(tensor.shape[last] / 2 ** wide)];
  const plane = ranges.slice(0, -2).reduce((before, [start], axis) => before * tensor.shape[axis] + start, 0);
  const bytes = await tensor.overview.bytes();
  const planes = tensor.shape.slice(0, -2).reduce((product, size) => product * size, 1);
  const Kind = kindOf(tensor.dtype) === "float64" ? Float64Array : Float32Array;
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

async function thumbnails(tensor, query) {
  const { shape, values, kept } = await cut(tensor, query);
  const moved = foremost({ shape, values }, kept.indexOf(tensor.axes.indexOf(query.over)));
  const [count, rows, columns] = moved.shape.length === 2 ? [moved.shape[0], 1, moved.shape[1]] : moved.shape;
  let stack = { values: moved.values, count, rows, columns };
  if (query.transpose === "true") stack = transposed(stack);
  const side = Number(query.side ?? 32);
  const levels = [levelFor(stack.rows, side), levelFor(stack.columns, side)];
  return binary(reduce(stack, query.reduce ?? "absmax", levels, lowestOf(tensor.dtype)));
}

async function profiled(tensor, query) {
  const { shape, values } = await cut(tensor, query, "");
  const { values: rows } = foremost({ shape, values }, tensor.axes.indexOf(query.along));
  return Response.json(profile(rows, tensor.shape[tensor.axes.indexOf(query.along)], query.measure ?? "rms", lowestOf(tensor.dtype)));
}

async function cell(tensor, query) {
  const { shape, values, ranges, kept } = await cut(tensor, query);
  const found = values.length === 1 || !query.pick ? 0 : extreme(values, query.pick, lowestOf(tensor.dtype)) ?? 0;
  const index = ranges.map(([start]) => start);
  let rest = found;
  for (let at = kept.length - 1; at >= 0; at--) {
    index[kept[at]] += rest % shape[at];
    rest = Math.floor(rest / shape[at]);
  }
  const axis = query.along ? tensor.axes.indexOf(query.along) : tensor.axes.length - 1;
  const around = index.map((place, at) => (at === axis ? ":" : place)).join(",");
  const { values: row } = await cut(tensor, query, around);
  const value = row[index[axis]];
  const finite = Number.isFinite(value);
  return Response.json({
    index, axes: tensor.axes, value: finite ? value : null, text: shortest(value, tensor.dtype),
    rank: finite ? row.reduce((rank, other) => rank + (other > value), 1) : null, of: row.length, along: tensor.axes[axis],
  });
}

async function top(tensor, query, summary) {
  const { values: row, kept } = await cut(tensor, query);
  const axis = summary.axes[kept[0]];
  const { tokens, id } = tensor.facts;
  const vocabulary = axis.name === "vocab" ? await labels(id) : null;
  const entries = strongest(row, Number(query.count ?? 10)).map(index => {
    const position = axis.first === null ? null : axis.first + index;
    const token = vocabulary ? vocabulary[index] : position === null ? null : tokens[position]?.label ?? null;
    return { index, value: row[index], probability: null, token, position };
  });
  return Response.json({ axis: axis.name, of: axis.size, entries });
}

async function heads(tensor) {
  const said = await tensor.answer("heads");
  if (!said) throw notHere();
  return Response.json(said);
}

async function predictions(tensor, query) {
  const said = await tensor.answer("predictions");
  if (!said) throw notHere();
  const positions = said.positions.map(one => one.position);
  const start = query.start === undefined ? positions.at(-1) : Number(query.start);
  const stop = query.stop === undefined ? start + 1 : Number(query.stop);
  const wanted = said.positions.filter(one => one.position >= start && one.position < stop);
  if (!wanted.length) throw new Problem(422, { code: "bad-request", detail: `This pass computes positions ${positions[0]} to ${positions.at(-1)}.`, hint: "Ask for positions inside it." });
  return Response.json({ ...said, positions: wanted.map(one => ({ ...one, top: one.top.slice(0, Number(query.count ?? 10)) })) });
}

async function data(tensor, query, summary) {
  const { ranges, kept } = sliced(query.slice, tensor.shape);
  const parts = tensor.dtype.startsWith("complex") ? ["real", "imaginary"] : [null];
  const found = await Promise.all(parts.map(part => box(tensor.shape, tensor.dtype, ranges, number => tensor.tile(number, part))));
  const shape = kept.map(axis => ranges[axis][1] - ranges[axis][0]);
  const starts = kept.map(axis => ranges[axis][0] + (summary.axes[axis].first ?? 0));
  return fileOf(query.format ?? "npy", { dtype: tensor.dtype, shape, axes: kept.map(axis => tensor.axes[axis]), starts, parts: found.map(one => one.values), name: tensor.node });
}
