// The search of a published site: the server's index as a file, and its ranking, in the browser. `web/search_index.py`
// ranks in the same way.

import { root } from "../address.js";

const LIMIT = 20;
const LEAST = 55;
const LAYER = /(?<![A-Za-z0-9_])\d+(?![A-Za-z0-9_])/;

let asked = null;

async function entries() {
  asked ??= fetch(`${root}search/index.json`).then(answer => answer.json());
  asked.catch(() => (asked = null));
  return asked;
}

/** What a node of a model is called, or a model; its path where the search knows none of that path. */
export async function nameOf(path, model = "") {
  const known = (await entries()).filter(entry => entry.path === path);
  return (known.find(entry => model in entry.models) ?? known[0])?.name ?? path;
}

/** The best hits for a query, as the API gives them. Nodes lead to `model` where it has them, in `view`. */
export async function searched({ q = "", model = "", view = "full" }) {
  const query = q.split(/\s+/).filter(Boolean).join(" ");
  if (!query) return [];
  const ranked = [];
  for (const entry of await entries()) {
    let best = null;
    for (const key of entry.keys) for (const found of matches(query, key)) if (!best || found.score > best.score) best = found;
    if (best && best.score >= LEAST) ranked.push({ best, entry });
  }
  const rounded = score => Math.round(10 * score);
  ranked.sort((a, b) => rounded(b.best.score) - rounded(a.best.score) || a.entry.order - b.entry.order);
  return ranked.slice(0, LIMIT).map(({ best, entry }) => hit(best, entry, model, view));
}

function hit({ key, layer }, entry, model, view) {
  const ids = Object.keys(entry.models);
  let { href } = entry;
  if (ids.length) {
    const query = new URLSearchParams();
    if (view !== "full") query.set("view", view);
    if (layer !== undefined) query.set("layer", layer);
    const text = query.toString();
    href = `/models/${ids.includes(model) ? model : ids[0]}/${entry.path}${text ? `?${text}` : ""}`;
  }
  return {
    kind: entry.kind, name: entry.name, symbol: entry.symbol, path: entry.path, href,
    matched: key.of ? key.text.replace("{layer}", "n") : "", of: key.of, layout: key.layout,
    models: ids.length === 1 ? entry.models[ids[0]] : ids.length ? `${ids.length} models` : "",
  };
}

function* matches(query, key) {
  if (key.prose) {
    const words = query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
    const text = key.text.toLowerCase();
    if (words.length && words.every(word => word.length > 2 && text.includes(word))) yield { score: key.weight, key };
    return;
  }
  yield { score: (likeness(query, key.text) * key.weight) / 100, key };
  if (!key.text.includes("{layer}")) return;
  const next = key.text.includes("{layer}+1");
  const escaped = key.text.replace("{layer}+1", "{layer}").replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const exact = new RegExp(`^${escaped.replaceAll("\\{layer\\}", "(\\d{1,5})")}$`, "i").exec(query);
  if (exact) {
    const layer = Number(exact[1]) - (next ? 1 : 0);
    if (layer >= 0) yield { score: key.weight, key, layer };
    return;
  }
  const number = LAYER.exec(query);
  if (!number) return;
  const said = `${query.slice(0, number.index)}{layer}${query.slice(number.index + number[0].length)}`;
  yield { score: (likeness(said, key.text) * key.weight) / 100, key, layer: Math.min(Number(number[0].slice(0, 6)), 99999) };
}

/** From 0 to 100. Case counts for one letter only. */
function likeness(query, text) {
  if (query === text) return 100;
  const [a, b] = [query.toLowerCase(), text.toLowerCase()];
  if (b.length <= 3) return a === b ? 96 : 0;
  if (a === b) return 99;
  const share = (4 * a.length) / b.length;
  const at = b.indexOf(a);
  if (at === 0) return 90 + share;
  if (at > 0) return (/[\p{L}\p{N}]/u.test(b[at - 1]) ? 70 : 84) + share;
  if (a.length < 4) return 0;
  const sorted = words => words.split(/\s+/).sort().join(" ");
  const whole = Math.max(ratio(a, b), ratio(sorted(a), sorted(b)));
  const part = a.length <= b.length ? 0.9 * partial(a, b) : 0;
  return Math.max(whole, part) >= 72 ? 0.88 * Math.max(whole, part) : 0;
}

/** How alike two texts are, from 0 to 100: twice the longest common subsequence over both lengths. */
function ratio(a, b) {
  let before = new Uint16Array(b.length + 1);
  for (const letter of a) {
    const row = new Uint16Array(b.length + 1);
    for (let at = 0; at < b.length; at++) row[at + 1] = letter === b[at] ? before[at] + 1 : Math.max(before[at + 1], row[at]);
    before = row;
  }
  return (200 * before[b.length]) / (a.length + b.length);
}

/** The best likeness of `a` and a piece of `b` of its length. */
function partial(a, b) {
  let best = 0;
  for (let at = 0; at + a.length <= b.length; at++) best = Math.max(best, ratio(a, b.slice(at, at + a.length)));
  return best;
}
