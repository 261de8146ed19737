// The files of recorded runs: which runs there are, what each holds, and its pieces. Each file is asked for once.
// The format is described in `inspection/recorded/layout.py`.

import { root } from "../../address.js";
import { Problem } from "../problem.js";
import { unpack } from "./blocks.js";

const KEPT_SHEETS = 48; // of a quarter of a megabyte each
const KEPT_TILES = 96;

function keeper(most, make) {
  const kept = new Map();
  return key => {
    const found = kept.get(key) ?? make(key);
    kept.delete(key);
    kept.set(key, found);
    found.catch(() => kept.delete(key));
    if (kept.size > most) kept.delete(kept.keys().next().value);
    return found;
  };
}

async function file(path) {
  let response;
  try {
    response = await fetch(`${root}runs/${path}`);
  } catch {
    throw new Problem(0, { code: "unreachable", detail: "The site does not answer.", hint: "Load the page again." });
  }
  if (!response.ok) throw new Problem(404, { code: "not-found", detail: `There is no file runs/${path} on this site.`, hint: "It may have been published again: load the page again." });
  return response;
}

const json = keeper(64, async path => (await file(path)).json());
const sheet = keeper(KEPT_SHEETS, async path => new Uint8Array(await (await file(path)).arrayBuffer()));

const inflated = async bytes => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());

/** The ids of the runs that this site holds. */
export const publishedIds = () => (document.documentElement.dataset.runs ?? "").split(" ").filter(Boolean);

/** What `run.json` says. Rejects with a problem for a run that is not published. */
export async function runFacts(id) {
  if (!publishedIds().includes(id)) {
    throw new Problem(404, { code: "not-found", detail: `The run ${id} is not published here.`, hint: "A published atlas shows recorded runs only." });
  }
  return json(`${id}/run.json`);
}

/** Every file of a run by its name: {size, sha256}. */
export const members = async id => (await json(`${id}/manifest.json`)).members;

/** The label of every token of the vocabulary. */
export const labels = keeper(2, async id => JSON.parse(new TextDecoder().decode(await inflated(await sheet(`${id}/labels.json.z`)))));

/**
 * The pieces of one tensor: {shape, dtype, axes, tile(number, part), overview, answer(name)}, and with `made` the pass:
 * how many positions it computes, and how many come before; `explained` is the layer and step of the tensor of which it
 * is held how a number came to be. Rejects with what is not held.
 */
export async function openTensor(id, node, view, layer, step) {
  const facts = await runFacts(id);
  if (/^(outer-)?code\//.test(node)) {
    throw new Problem(404, { code: "not-recorded", detail: "A recorded run says of an expression what it gave at a glance, and does not hold all its numbers.", hint: "Where the weights are, atlas serve shows them." });
  }
  const name = node.replaceAll("/", ".");
  const covered = facts.held.find(one => one.node === node && (one.view === view || one.view === "parameter"));
  const shelf = covered?.view ?? view;
  const index = covered?.held ? await json(`${id}/index/${shelf}/${name}.json`) : { tensors: [], axes: [] };
  const inside = index.tensors[0] ? index.tensors[0].layer !== null : node.startsWith("blocks/");
  const at = { layer: inside ? layer ?? Math.min(...index.tensors.map(one => one.layer), Infinity) : null, step: shelf === "decode" ? step ?? 1 : null };
  if (at.layer === Infinity) at.layer = layer;
  const held = index.tensors.find(one => one.layer === at.layer && one.step === at.step);
  if (!held) throw notHeld(facts, covered, node, shelf, at);
  const piece = async ({ sheet: number, at: start, size }) => {
    const content = await sheet(`${id}/sheets/${shelf}/${name}.${number}.bin`);
    return inflated(content.subarray(start, start + size));
  };
  const key = [id, shelf, node, at.layer, at.step].join(" ");
  return {
    key,
    node,
    facts,
    shelf,
    at,
    address: new URL(`${root}runs/${id}/`, location.href).href,
    made: madeIn(facts, shelf, at.step),
    explained: index.tensors.find(one => one.answers.explanation) ?? null,
    shape: held.shape,
    dtype: held.dtype,
    axes: index.axes,
    tile: (number, part = null) => tiles(JSON.stringify({ key, number, part }), async () => unpack(await piece(held.tiles[number]), held.dtype, part)),
    overview: held.overview && { levels: held.overview.levels, bytes: () => piece(held.overview.piece) },
    answer: async what => (held.answers[what] ? JSON.parse(new TextDecoder().decode(await piece(held.answers[what]))) : null),
  };
}

/** Full sequence: all tokens. Prefill: the prompt. Decode step k: one position. */
function madeIn(facts, shelf, step) {
  if (shelf === "decode") return { computed: 1, before: facts.prompt_length + step - 1 };
  return { computed: shelf === "full" ? facts.tokens.length : facts.prompt_length, before: 0 };
}

const made = new Map();

/** Unpacked tiles, the last ones used. */
function tiles(key, make) {
  const found = made.get(key) ?? make();
  made.delete(key);
  made.set(key, found);
  found.catch(() => made.delete(key));
  if (made.size > KEPT_TILES) made.delete(made.keys().next().value);
  return found;
}

function notHeld(facts, covered, node, view, { layer, step }) {
  const where = [view === "parameter" ? "" : ` in ${view}`, layer === null ? "" : `, layer ${layer}`, step === null ? "" : `, step ${step}`].join("");
  if (view === "decode" && (step < 1 || step > facts.steps)) {
    return new Problem(404, { code: "not-found", detail: `The run has no decode step ${step}.`, hint: facts.steps ? `Its steps are 1 to ${facts.steps}.` : "It generated one token only." });
  }
  const why = covered ? (covered.why ? `: ${covered.why}` : "") : ": this pass does not compute it";
  return new Problem(404, {
    code: "not-recorded",
    detail: `The recorded run does not hold ${node}${where}${why}.`,
    hint: covered?.held ? `Of it are held: ${covered.words}.` : "Where the weights are, atlas serve shows it.",
  });
}

/** The answer `expressions` of the API: what expressions of the reference code gave in one part of a pass, at a glance. */
export async function expressionsOf(id, { view = "full", part = "block", layer = 0, step = 1 }) {
  const facts = await runFacts(id);
  const at = [part === "block" ? Number(layer) : null, view === "decode" ? Number(step) : null];
  const held = facts.expressions?.find(one => one.view === view)?.places ?? [];
  if (!held.some(place => place[0] === at[0] && place[1] === at[1])) {
    const where = [` in ${view}`, at[0] === null ? ", outside the blocks" : `, layer ${at[0]}`, at[1] === null ? "" : `, step ${at[1]}`].join("");
    throw new Problem(404, { code: "not-recorded", detail: `The recorded run does not hold what expressions gave${where}.`, hint: "Where the weights are, atlas serve shows it." });
  }
  const name = `${at[0] ?? "outside"}${at[1] === null ? "" : `.${at[1]}`}`;
  return glances(`${id}/expressions/${view}/${name}.json.z`);
}

const glances = keeper(20, async path => JSON.parse(new TextDecoder().decode(await inflated(await sheet(path)))));
