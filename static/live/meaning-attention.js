// Attention weights, token to token: for the chosen query and head every key shaded by its weight, the strongest listed.

import { address, getJson } from "./api.js";
import { bar, el, latest } from "./build.js";
import { percent, visible } from "./format.js";
import { headOf, passOf, tensorPath } from "./look.js";

const LISTED = 8;
const MOST = 1000; // keys that are shaded

export function create({ place, panel, failed }) {
  const newest = latest(failed);
  const words = el("p", { class: "about" });
  const tokens = el("ol", { class: "attended", "aria-label": "Keys, shaded by weight; choose one as the query" });
  const list = el("ol", { class: "ranked", "aria-label": "Strongest keys" });
  place.append(words, tokens, list);
  let context = null;
  let hovered = null;

  const queryAxis = () => context.summary.axes.findIndex(axis => axis.name === "queries");

  tokens.addEventListener("pointerover", event => {
    const at = event.target.closest?.("[data-key-position]")?.dataset.keyPosition;
    if (at === undefined) return;
    hovered = Number(at);
    show();
  });
  tokens.addEventListener("pointerleave", () => {
    hovered = null;
    show();
  });
  tokens.addEventListener("click", event => {
    const at = event.target.closest?.("[data-key-position]")?.dataset.keyPosition;
    if (at !== undefined) choose(Number(at));
  });

  /** Makes the token at a position the query, where this pass computes it. */
  function choose(position) {
    const at = queryAxis();
    const axis = context.summary.axes[at];
    const query = position - axis.first;
    if (query < 0 || query >= axis.size) return;
    panel.pin(context.index.map((value, which) => (which === at ? query : value)));
  }

  function show() {
    const { run, summary, index } = context;
    const at = queryAxis();
    const axis = summary.axes[at];
    const wanted = hovered === null ? index[at] : hovered - axis.first;
    const query = wanted >= 0 && wanted < axis.size ? wanted : index[at];
    const row = summary.axes.map((one, which) => (one.name === "keys" ? ":" : which === at ? query : index[which])).join(",");
    newest(async signal => {
      const top = await getJson(address(`${tensorPath(run.id, summary.node)}/top`, { ...passOf(summary), slice: row, count: MOST }), signal);
      draw(axis.first + query, top);
    });
  }

  function draw(position, top) {
    const { run, summary, index } = context;
    const name = at => visible(run.tokens[at]?.label ?? `position ${at}`);
    const head = headOf(summary, index);
    words.replaceChildren(
      "Query ", el("b", { text: name(position) }), ` (position ${position})${head === null ? "" : `, head ${head}`}. `,
      "Its weights over the keys sum to one. Point at a token to make it the query.",
    );
    const weights = new Map(top.entries.map(entry => [entry.position, entry.value]));
    const keys = summary.axes.find(axis => axis.name === "keys");
    const shown = Math.min(keys.size, MOST);
    // The buttons stay: one that is replaced between press and release would swallow the click.
    while (tokens.children.length > shown) tokens.lastElementChild.remove();
    while (tokens.children.length < shown) tokens.append(el("li", {}, el("button", { type: "button" })));
    [...tokens.children].forEach(({ firstElementChild: button }, at) => {
      const key = keys.first + at;
      const weight = weights.get(key) ?? 0;
      button.dataset.keyPosition = String(key);
      button.toggleAttribute("data-query", key === position);
      button.title = `position ${key}: ${percent(weight)}`;
      if (button.textContent !== name(key)) button.textContent = name(key);
      button.style.setProperty("--weight", String(Math.sqrt(Math.max(0, weight))));
    });
    list.replaceChildren(...top.entries.slice(0, LISTED).map(entry => el(
      "li", {},
      el("code", { text: name(entry.position) }),
      el("span", { class: "where-at", text: `position ${entry.position}` }),
      bar(entry.value),
      el("span", { class: "number", text: percent(entry.value), title: String(entry.value) }),
    )));
  }

  return {
    update(next) {
      context = next;
      show();
    },
  };
}
