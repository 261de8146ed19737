// The API's answers out of files: what a published site has in place of a server. The same addresses, the same answers;
// what would need the model says so.

import { Problem, refused } from "../problem.js";
import { searched } from "../../published/search.js";
import { agreement, difference, framed, pairUp } from "./differences.js";
import { expressionsOf, openTensor, runFacts } from "./files.js";
import { differenceOf, numbersOf } from "./numbers.js";
import { profile, thumbnails, tile } from "./planes.js";
import { cell, data, heads, predictions, top } from "./readings.js";
import { parting } from "./parting.js";

const BINARY = { tile, thumbnails };
const JSONS = { profile, cell };
const RECORDED = { top, heads, predictions };
const OPERATIONS = [...Object.keys({ ...BINARY, ...JSONS, ...RECORDED }), "data", "difference", "agreement"];
const AGAINST = ["run", "view", "layer", "step"];

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
  const [, id, rest] = /^\/api\/runs\/([^/]+)\/?(.*)$/.exec(url.pathname) ?? [];
  if (!id) throw notHere();
  const run = decodeURIComponent(id);
  if (!rest) return Response.json(await lookedAt(run));
  if (rest.startsWith("parting/")) return Response.json(await parting(run, decodeURIComponent(rest.slice("parting/".length))));
  if (rest === "expressions") return Response.json(await expressionsOf(run, query));
  if (rest.startsWith("explain/")) return Response.json(await explanation(placed(run, query), rest.slice("explain/".length), query.cell));
  if (rest.startsWith("tensors/")) return ofTensor(run, rest.slice("tensors/".length), query);
  throw notHere();
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

/** The pass that a query names. */
function placed(run, query) {
  const number = name => (query[name] === undefined ? null : Number(query[name]));
  return { run, view: query.view ?? "full", layer: number("layer"), step: number("step") };
}

/** How one number came to be, where that is recorded; else a problem that names the number of which it is. */
async function explanation({ run, view, layer, step }, node, cell) {
  const tensor = await openTensor(run, node, view, layer, step);
  const said = await tensor.answer("explanation");
  if (said?.cell.join() === cell) return said;
  const hint = "Where the weights are, atlas serve explains any number.";
  if (!tensor.explained) throw new Problem(404, { code: "not-recorded", detail: `How numbers of ${node} came to be is not recorded.`, hint });
  const { layer: atLayer, step: atStep } = tensor.explained;
  const known = said ?? (await (await openTensor(run, node, view, atLayer, atStep)).answer("explanation"));
  const where = [atLayer === null ? "" : ` of layer ${atLayer}`, atStep === null ? "" : `, step ${atStep}`].join("");
  throw new Problem(404, {
    code: "not-recorded", detail: `It is recorded how the number at [${known.cell.join(", ")}]${where} came to be, and of no other here.`, hint,
    cell: known.cell, layer: atLayer, step: atStep,
  });
}

async function ofTensor(run, path, query) {
  const parts = path.split("/");
  const operation = OPERATIONS.includes(parts.at(-1)) ? parts.pop() : null;
  const node = parts.join("/");
  const place = placed(run, query);
  const open = at => openTensor(at.run, node, at.view, at.layer, at.step);
  const tensor = await open(operation === "agreement" ? { ...place, view: "full", step: null } : place);
  if (operation === null) return Response.json(await tensor.answer("summary"));
  if (operation === "data") return data(tensor, query);
  if (operation === "agreement") return Response.json(await agreement(tensor, passesOf(tensor).map(at => () => open({ ...place, ...at }))));
  if (Object.hasOwn(RECORDED, operation)) return Response.json(await RECORDED[operation](tensor, query));
  const said = AGAINST.filter(name => query[`against_${name}`] !== undefined);
  const beside = said.map(name => [name, ["run", "view"].includes(name) ? query[`against_${name}`] : Number(query[`against_${name}`])]);
  const other = said.length ? await open({ ...place, ...Object.fromEntries(beside) }) : null;
  if (operation === "difference") {
    if (!other) throw refused("There is nothing to compare with.", "Give against_view, against_step, against_layer or against_run.");
    return Response.json(await difference(tensor, other));
  }
  const numbers = other ? differenceOf(pairUp(await framed(tensor), await framed(other)), query.part) : numbersOf(tensor, query.part);
  if (Object.hasOwn(JSONS, operation)) return Response.json(await JSONS[operation](numbers, query));
  return binary(await BINARY[operation](numbers, query));
}

/** The passes that a full sequence is compared with: prefill and every decode step, where the node is computed there. */
function passesOf({ node, facts }) {
  const views = facts.held.filter(one => one.node === node).map(one => one.view);
  const steps = Array.from({ length: facts.steps }, (_, at) => ({ view: "decode", step: at + 1 }));
  return [{ view: "prefill", step: null }, ...steps].filter(({ view }) => views.includes(view));
}

function binary({ shape, values, flags }) {
  const content = new Uint8Array(values.byteLength + flags.length);
  content.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  content.set(flags, values.byteLength);
  const dtype = values instanceof Float64Array ? "float64" : "float32";
  return new Response(content, { headers: { "Atlas-Shape": shape.join(","), "Atlas-Dtype": dtype } });
}
