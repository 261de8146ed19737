// How the chosen number came to be: its formula with the numbers in it, its inputs, and the largest terms of its sums.
//
// Each input leads to its own page with that cell chosen, where the same can be asked again: from a logit to an
// embedding. What it is made of is marked in the diagram while the panel is open.

import { pageAddress } from "../address.js";
import { address, getJson } from "./api.js";
import { bar, el, latest } from "./build.js";
import { count, readable, visible } from "./format.js";

const PATIENCE = 120; // milliseconds without another move before it is asked for

export function create({ place, details, section, store, failed }) {
  const ask = latest(problem => (problem.code === "not-recorded" ? place.replaceChildren(...instead(problem)) : failed(problem)));
  let timer = 0;
  let shown = "";
  details.addEventListener("toggle", () => details.open || mark([]));

  /** What is said where it is not recorded, and the way to the number of which it is. */
  function instead({ message, hint, facts: { cell, layer, step } }) {
    mark([]);
    shown = "";
    const show = () => store.set({ cell: cell.join(","), head: null, ...(layer === null ? {} : { layer }), ...(step === null ? {} : { step }) });
    return [el("p", { text: `${message} ${hint}` }), ...(cell ? [el("p", { class: "acts" }, el("button", { type: "button", text: "Show that number", onclick: show }))] : [])];
  }

  return {
    update(context) {
      const { run, summary, index } = context;
      const query = { view: summary.view ?? section.dataset.view, layer: summary.layer, step: summary.step, cell: index.join(",") };
      const url = address(`/api/runs/${run.id}/explain/${summary.node}`, query);
      if (url === shown) return;
      clearTimeout(timer);
      timer = setTimeout(() => {
        ask(async signal => {
          const found = await getJson(url, signal);
          shown = url;
          place.replaceChildren(...story(found, { run, model: section.dataset.model, view: section.dataset.view }));
          mark(allSources(found));
        });
      }, PATIENCE);
    },
  };
}

function story(found, where) {
  const parts = [el("p", { text: found.sentence })];
  if (found.html) {
    const display = el("div", { class: "display", tabindex: "0", role: "group", "aria-label": "The equation with its numbers" });
    display.innerHTML = found.html; // drawn by the server, or when the run was recorded, from the declaration
    parts.push(display);
  }
  parts.push(comparison(found));
  if (found.sources.length) parts.push(el("ul", { class: "explain-sources" }, ...found.sources.map(one => el("li", {}, ...sourceWords(one, where)))));
  parts.push(...found.totals.filter(total => total.how !== "max" && total.how !== "min").map(total => sum(total, where)));
  return parts;
}

function comparison({ captured, recomputed, difference }) {
  const row = (name, figure, value) => el("div", {}, el("dt", { text: name }), el("dd", { text: value ?? figure.text }));
  const rows = [row("captured", captured)];
  if (recomputed) rows.push(row("in float64", recomputed), row("difference", difference, differenceWords(difference)));
  return el("dl", { class: "explain-numbers" }, ...rows);
}

function differenceWords({ value, imaginary }) {
  if (value === null) return "not finite";
  return imaginary === null ? readable(value, 2) : readable(Math.hypot(value, imaginary), 2);
}

function sum(total, where) {
  const most = Math.max(...total.terms.map(term => Math.abs(term.figure.value ?? 0)), Number.MIN_VALUE);
  const rows = total.terms.map(term =>
    el("tr", {},
      el("td", {}, ...term.sources.flatMap((one, at) => [at ? " · " : null, ...sourceWords(one, where)])),
      el("td", { class: "number", text: readable(term.figure.value, 5) }),
      el("td", {}, bar(Math.abs(term.figure.value ?? 0) / most)),
    ),
  );
  if (total.rest_count > 0) {
    rows.push(el("tr", { class: "rest" }, el("td", { text: `the other ${count(total.rest_count)} come to` }), el("td", { class: "number", text: readable(total.rest.value, 5) }), el("td")));
  }
  const name = { sum: "Sum", mean: "Mean", product: "Product" }[total.how];
  return el("table", { class: "explain-terms" },
    el("caption", { text: `${name} of ${count(total.count)} terms, ${readable(total.figure.value, 5)}: the largest` }),
    el("tbody", {}, ...rows),
  );
}

/** "Queries[3 ␣of, 5, 0] = −0.25", the name a link to that cell. */
function sourceWords(source, { run, model, view }) {
  const places = source.axes.map((axis, at) => (axis === "batch" ? null : placeWords(run, source, at))).filter(Boolean);
  const query = { view: source.view ?? view, run: run.id, layer: source.layer, step: source.step, cell: source.cell.join(",") };
  const link = el("a", { href: pageAddress(`${address(`/models/${model}/${source.node}`, query)}#live`), "data-node": source.node, text: source.name });
  return [link, el("span", { class: "explain-place", text: `[${places.join(", ")}]` }), ` = ${source.figure.text}`];
}

/** An index; where it stands for a position, that position and the token there. */
function placeWords(run, source, at) {
  const position = source.positions[at];
  const token = position === null ? null : run.tokens[position];
  return token ? `${position} ${visible(token.label)}` : String(source.cell[at]);
}

const allSources = found => [...found.sources, ...found.totals.flatMap(total => total.terms.flatMap(term => term.sources))].map(one => one.node);

/** Marks nodes of the diagram as what the number is made of. */
function mark(nodes) {
  for (const element of document.querySelectorAll("svg .feeds")) element.classList.remove("feeds");
  for (const node of new Set(nodes)) {
    for (const element of document.querySelectorAll(`svg [data-node="${CSS.escape(node)}"]`)) element.classList.add("feeds");
  }
}
