// Calls to the API: JSON, binary tiles, and problems as errors that say what happened and what to do. On a published
// site there is no server: the same requests are answered out of files.

import { root } from "../address.js";
import { Problem } from "./problem.js";

export { Problem };

/** As fetch, whether a server answers or files do. */
export async function request(url, options) {
  if (root === null) return fetch(url, options);
  const { answer } = await import("./recorded/answers.js");
  const response = await answer(url, options);
  options?.signal?.throwIfAborted();
  return response;
}

/** The server could not be reached at all. */
export class Unreachable extends Problem {
  constructor() {
    super(0, { code: "unreachable", detail: "The server does not answer.", hint: "This page asks again by itself." });
  }
}

async function ask(url, options) {
  let response;
  try {
    response = await request(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable();
  }
  if (response.ok) return response;
  let said = {};
  try {
    said = await response.json();
  } catch {
    said = { detail: `The server answered ${response.status} ${response.statusText}.` };
  }
  throw new Problem(response.status, said);
}

/** JSON of a GET. Rejects with Problem, Unreachable, or AbortError. */
export async function getJson(url, signal) {
  return (await ask(url, { signal })).json();
}

/** Posts JSON and gives the answer. */
export async function postJson(url, body) {
  const response = await ask(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  return response.json();
}

export async function remove(url) {
  await ask(url, { method: "DELETE" });
}

/** A binary answer: {shape, dtype, values, flags}. */
export async function getNumbers(url, signal) {
  const response = await ask(url, { signal });
  const shape = response.headers.get("Atlas-Shape").split(",").map(Number);
  const dtype = response.headers.get("Atlas-Dtype");
  const buffer = await response.arrayBuffer();
  const count = shape.reduce((product, size) => product * size, 1);
  const values = dtype === "float64" ? new Float64Array(buffer, 0, count) : new Float32Array(buffer, 0, count);
  return { shape, dtype, values, flags: new Uint8Array(buffer, values.byteLength, count) };
}

/** An address with a query; what is null, undefined or "" is left out. */
export function address(path, query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** Runs `jobs` (functions that give promises), at most `width` at a time, in order. Stops at the first error. */
export async function inTurn(jobs, width, signal) {
  let next = 0;
  const work = async () => {
    while (next < jobs.length && !signal?.aborted) await jobs[next++]();
  };
  await Promise.all(Array.from({ length: Math.min(width, jobs.length) }, work));
}
