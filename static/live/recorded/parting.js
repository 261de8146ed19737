// Where two published runs part: at the first token that differs or, where all tokens are the same, at the first
// recorded tensor in order of data flow. As the server's answer `parting`; what is not recorded of both is said.

import { quoted } from "../format.js";
import { refused } from "../problem.js";
import { nameOf } from "../../published/search.js";
import { firstParting } from "./differences.js";
import { members, openTensor, runFacts } from "./files.js";

const PARTED = 1e-4; // a worst row that differs by more has parted

export async function parting(id, otherId) {
  const [a, b] = await Promise.all([runFacts(id), runFacts(otherId)]);
  const common = commonTokens(a.tokens, b.tokens);
  if (a.architecture !== b.architecture) {
    const names = await Promise.all([a, b].map(run => nameOf(run.model)));
    throw refused(`One run is of ${names[0]}, the other of ${names[1]}: their graphs differ.`, "Compare runs of models of one architecture.");
  }
  if (common < Math.max(a.tokens.length, b.tokens.length) && a.model === b.model) return byTokens(a, b, common);
  return byTensors(a, b, common);
}

function commonTokens(one, other) {
  const most = Math.min(one.length, other.length);
  for (let at = 0; at < most; at++) if (one[at].id !== other[at].id) return at;
  return most;
}

/** Two runs of one model whose tokens part: everything before that position is the same by causality. */
function byTokens(a, b, common) {
  const label = run => quoted(run.tokens[common].label);
  const sentence = common === Math.min(a.tokens.length, b.tokens.length)
    ? `They share all ${common} tokens of the shorter one; the longer one goes on.`
    : `They part at the token ids, position ${common}: ${label(a)} here, ${label(b)} there. Nothing before it can differ, since no position sees those after it.`;
  return { common, position: common, node: "token-ids", layer: null, relative: null, sentence };
}

/** Everything that is recorded of both, in order of data flow: before the blocks, layer by layer, after them. */
async function byTensors(a, b, common) {
  const heldOf = run => new Map(run.held.filter(one => one.view === "full").map(one => [one.node, one]));
  const [mine, theirs] = [heldOf(a), heldOf(b)];
  const whole = one => one && one.held >= Math.max(1, one.of);
  let missing = false;
  for (const { node, layer } of inOrder([...mine.keys()], Math.min(a.layers, b.layers))) {
    missing ||= !whole(mine.get(node)) || !whole(theirs.get(node));
    if (!mine.get(node)?.held || !theirs.get(node)?.held || (await sameFiles(a.id, b.id, node))) continue;
    const sides = await Promise.all([a.id, b.id].map(id => openTensor(id, node, "full", layer, null).catch(unlessMissing)));
    if (sides.includes(null)) continue;
    const { at, relative } = await firstParting(sides[0], sides[1], PARTED);
    if (at < 0) continue;
    const where = `${await nameOf(node, a.model)}${layer === null ? "" : ` of layer ${layer}`}`;
    const unknown = missing ? " Of what comes before it, not all is recorded of both." : "";
    return { common, position: at, node, layer, relative, sentence: `They part at ${where}, position ${at}.${unknown}` };
  }
  const sentence = missing ? "What is recorded of both is the same throughout; not all of it is." : "They are the same throughout.";
  return { common, position: null, node: null, layer: null, relative: null, sentence };
}

function unlessMissing(problem) {
  if (problem.code === "not-recorded") return null;
  throw problem;
}

function inOrder(nodes, layers) {
  const inside = nodes.filter(node => node.startsWith("blocks/"));
  const outside = nodes.filter(node => !node.startsWith("blocks/"));
  const place = inside.length ? nodes.indexOf(inside[0]) : outside.length;
  const alone = list => list.map(node => ({ node, layer: null }));
  const blocks = Array.from({ length: layers }, (_, layer) => inside.map(node => ({ node, layer }))).flat();
  return [...alone(outside.slice(0, place)), ...blocks, ...alone(outside.slice(place))];
}

/** Whether the files of a node are the same in both: their hashes say so without reading them. */
async function sameFiles(one, other, node) {
  const name = node.replaceAll("/", ".");
  const [mine, theirs] = await Promise.all([one, other].map(async id => {
    const found = Object.entries(await members(id));
    const own = path => path === `index/full/${name}.json` || new RegExp(`^sheets/full/${name.replaceAll(".", "\\.")}\\.\\d+\\.bin$`).test(path);
    return found.filter(([path]) => own(path)).map(([path, { sha256 }]) => `${path} ${sha256}`).sort().join();
  }));
  return mine === theirs;
}
