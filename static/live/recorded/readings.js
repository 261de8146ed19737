// What is read off numbers: one element with its rank, the largest of a row, the numbers as a file; and the answers that
// were recorded as the server gave them.

import { count, quoted, shortest } from "../format.js";
import { Problem, refused } from "../problem.js";
import { fileOf } from "./export.js";
import { labels } from "./files.js";
import { axisOf, isComplex, numbersOf } from "./numbers.js";
import { extreme, strongest } from "./reduce.js";
import { shapeOf, sliced } from "./slices.js";

const LARGEST_PICK = 1 << 22;

/** One element, or the one that a reduced cell stands for, with its rank in its row. */
export async function cell(numbers, query) {
  const { axes } = numbers;
  const cut = sliced(query.slice, axes, numbers.shape);
  const shape = shapeOf(cut);
  const size = shape.reduce((product, one) => product * one, 1);
  if (size !== 1 && (!query.pick || query.pick === "mean")) {
    throw refused(`The slice ${quoted(query.slice ?? "")} holds ${count(size)} elements, not one.`, "Give a number for every axis, or pick=absmax, min or max.");
  }
  if (size > LARGEST_PICK) throw refused(`${count(size)} elements are too many to pick from.`, "Give a smaller slice.");
  let rest = size === 1 ? 0 : (extreme(await numbers.box(cut.ranges), query.pick, numbers.lowest) ?? 0);
  const index = cut.ranges.map(([start]) => start);
  for (let at = cut.kept.length - 1; at >= 0; at--) {
    index[cut.kept[at]] += rest % shape[at];
    rest = Math.floor(rest / shape[at]);
  }
  const axis = query.along ? axisOf(numbers, query.along) : axes.length - 1;
  const row = await numbers.box(index.map((place, at) => (at === axis ? [0, numbers.shape[axis]] : [place, place + 1])));
  const value = row[index[axis] ?? 0];
  const finite = Number.isFinite(value);
  return {
    index, axes, value: finite ? value : null, text: shortest(value, numbers.dtype),
    rank: finite && axes.length ? row.reduce((rank, other) => rank + (other > value), 1) : null, of: row.length, along: axes[axis] ?? "",
  };
}

/** The largest elements of one row, with tokens and positions where the axis has them. */
export async function top(tensor, query) {
  const numbers = numbersOf(tensor, query.part);
  const cut = sliced(query.slice, numbers.axes, numbers.shape);
  if (cut.kept.length !== 1) throw refused(`The slice ${quoted(query.slice ?? "")} keeps ${cut.kept.length} axes, not one.`, "Give `:` for one axis.");
  const row = await numbers.box(cut.ranges);
  const { axes } = await tensor.answer("summary");
  const axis = axes[cut.kept[0]];
  const { tokens, id } = tensor.facts;
  const vocabulary = axis.name === "vocab" ? await labels(id) : null;
  const entries = strongest(row, Number(query.count ?? 10)).map(index => {
    const position = axis.first === null ? null : axis.first + index;
    const token = vocabulary ? vocabulary[index] : position === null ? null : tokens[position]?.label ?? null;
    return { index, value: row[index], probability: null, token, position };
  });
  return { axis: axis.name, of: axis.size, entries };
}

/** An answer that was kept when the run was recorded. */
async function kept(tensor, name) {
  const said = await tensor.answer(name);
  if (!said) throw new Problem(404, { code: "not-recorded", detail: `Of ${tensor.node} no ${name} are recorded.`, hint: "Where the weights are, atlas serve gives them." });
  return said;
}

export const heads = tensor => kept(tensor, "heads");

export async function predictions(tensor, query) {
  const said = await kept(tensor, "predictions");
  const positions = said.positions.map(one => one.position);
  const [first, after] = [positions[0], positions.at(-1) + 1];
  const start = query.start === undefined ? (query.stop === undefined ? after - 1 : Number(query.stop) - 1) : Number(query.start);
  const stop = query.stop === undefined ? start + 1 : Number(query.stop);
  if (!(first <= start && start < stop && stop <= after)) {
    throw refused(`This pass computes positions ${first} to ${after - 1}, not ${start} to ${stop - 1}.`, "Ask for positions inside it.");
  }
  const wanted = said.positions.slice(start - first, stop - first);
  return { ...said, positions: wanted.map(one => ({ ...one, top: one.top.slice(0, Number(query.count ?? 10)) })) };
}

/** The numbers as a file. */
export async function data(tensor, query) {
  const { axes, dtype, node } = tensor;
  const cut = sliced(query.slice, axes, tensor.shape);
  const parts = isComplex(dtype) ? ["real", "imaginary"] : [undefined];
  const summary = await tensor.answer("summary");
  return fileOf(query.format ?? "npy", {
    dtype, shape: shapeOf(cut), axes: cut.kept.map(axis => axes[axis]), name: node,
    starts: cut.kept.map(axis => cut.ranges[axis][0] + (summary.axes[axis].first ?? 0)),
    parts: await Promise.all(parts.map(part => numbersOf(tensor, part).box(cut.ranges))),
  });
}
