// Every head of every layer on one sheet, sorted as one likes.

import { address, getJson, getNumbers, inTurn } from "./api.js";
import { createScale, palette } from "./color.js";
import { choice, el, latest } from "./build.js";
import { percent, readable } from "./format.js";
import { planesOf, thumb } from "./thumbs.js";
import { headOf, sliceOf, tensorPath } from "./look.js";

const ORDERS = [
  ["layer", "layer and head"],
  ["entropy", "entropy, lowest first"],
  ["previous", "weight on the previous position"],
  ["first", "weight on the first position"],
  ["same_token", "weight on earlier places of the same token"],
  ["after_same_token", "weight right after those (induction)"],
];

export function create({ place, section, store, failed }) {
  const newest = latest(failed);
  const layers = Number(section.dataset.layers);
  const words = el("p", { class: "about", role: "status" });
  const sheet = el("div", { class: "thumbs sheet" });
  let order = "layer";
  let shown = "";
  let heads = [];
  let context = null;
  place.append(el("label", {}, "Sorted by ", choice(ORDERS, order, value => {
    order = value;
    draw();
  })), words, sheet);

  function load() {
    const { run, summary, index } = context;
    const pass = { view: summary.view, step: summary.step };
    const key = JSON.stringify([run.id, pass]);
    if (key === shown) {
      mark();
      return;
    }
    shown = key;
    heads = [];
    let done = 0;
    const slice = sliceOf(summary, index.map(() => 0), ["q_heads", "queries", "keys"]);
    const path = tensorPath(run.id, summary.node);
    newest(signal => inTurn(Array.from({ length: layers }, (_, layer) => async () => {
      const [stack, measures] = await Promise.all([
        getNumbers(address(`${path}/thumbnails`, { ...pass, layer, slice, over: "q_heads", side: 28 }), signal),
        getJson(address(`${path}/heads`, { ...pass, layer }), signal),
      ]);
      for (const [head, data] of planesOf(stack).entries()) heads.push({ layer, head, data, ...measures[head] });
      done += 1;
      words.textContent = done < layers ? `${done} of ${layers} layers so far…` : "";
      draw();
    }), 2, signal));
  }

  function draw() {
    const scale = createScale("log", 1e-3, 1);
    const colors = palette("log", context.dark);
    const sorted = [...heads];
    const missing = one => one[order] === null || one[order] === undefined;
    if (order === "layer") sorted.sort((a, b) => a.layer - b.layer || a.head - b.head);
    else {
      sorted.sort((a, b) => missing(a) - missing(b) || (order === "entropy" ? a[order] - b[order] : b[order] - a[order]));
    }
    const value = one => (order === "layer" ? "" : missing(one) ? " –" : order === "entropy" ? ` ${readable(one.entropy, 2)}` : ` ${percent(one[order])}`);
    sheet.replaceChildren(...sorted.map(one => {
      const made = thumb({
        label: `Layer ${one.layer}, head ${one.head}: entropy ${readable(one.entropy, 2)} bits, previous ${percent(one.previous ?? 0)}, first ${percent(one.first ?? 0)}`,
        caption: `${one.layer}.${one.head}${value(one)}`,
        chosen: false, data: one.data, scale, colors,
        onChoose: () => store.set({ layer: one.layer, head: one.head }),
      });
      made.dataset.head = `${one.layer}.${one.head}`;
      return made;
    }));
    if (order === "same_token" || order === "after_same_token") {
      if (heads.length && heads.every(missing)) words.textContent = "No token of this run comes twice, so this says nothing.";
    }
    mark();
  }

  function mark() {
    const { summary, index } = context;
    const here = `${summary.layer}.${headOf(summary, index) ?? 0}`;
    for (const one of sheet.children) one.setAttribute("aria-pressed", String(one.dataset.head === here));
  }

  return {
    update(next) {
      const changed = context?.dark !== next.dark;
      context = next;
      load();
      if (changed && heads.length) draw();
    },
  };
}
