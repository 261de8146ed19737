// Logits and the residual stream as tokens: the likeliest ones at a position, and the one that came next.

import { address, getJson, inTurn } from "./api.js";
import { bar, el, latest } from "./build.js";
import { ordinal, percent, readable, visible } from "./format.js";
import { passOf, tensorPath } from "./look.js";

const LENS = "The lens reads this tensor as if the stream ended here: its own statistics through the final norm and its gain, " +
  "then the unembedding. In early layers it says little, since the model has not yet turned towards the next token.";

export function create({ place, store, failed, section }) {
  const newest = latest(failed);
  const about = el("p", { class: "about" });
  const list = el("ol", { class: "ranked predicted", "aria-label": "Likeliest next tokens" });
  const next = el("p", { class: "came-next" });
  const layers = el("div", { class: "lens-layers" });
  const through = el("button", { type: "button", text: "The lens at every layer", onclick: () => everyLayer() });
  place.append(about, list, next);
  let context = null;
  let shown = "";
  let layersOf = "";

  const positionAxis = ({ summary }) => summary.axes.findIndex(axis => axis.name === "positions");
  const positionOf = given => given.summary.axes[positionAxis(given)].first + given.index[positionAxis(given)];
  const query = (given, extra) => address(`${tensorPath(given.run.id, given.summary.node)}/predictions`, {
    ...passOf(given.summary), start: positionOf(given), stop: positionOf(given) + 1, ...extra,
  });

  function show() {
    const lens = context.summary.presentation.meaning === "stream";
    if (lens && context.summary.layer !== null && !through.isConnected) place.append(through, layers);
    const url = query(context, { count: 10 });
    if (url === shown) return;
    newest(async signal => {
      const said = await getJson(url, signal);
      shown = url;
      draw(said, lens);
    });
    const without = query(context, { layer: null });
    if (layersOf && layersOf !== without) {
      layersOf = "";
      layers.replaceChildren();
    }
  }

  function draw({ positions: [one], temperature }, lens) {
    const token = visible(context.tokens[one.position]?.label ?? "");
    const heat = temperature === 0
      ? "The run is greedy and takes the largest; probabilities are at temperature 1."
      : `Probabilities at the run's temperature, ${temperature}.`;
    about.replaceChildren("After ", el("b", { text: token }), ` (position ${one.position}). ${heat} ${lens ? LENS : ""}`);
    list.replaceChildren(...one.top.map(candidate => row(candidate, one.next)));
    if (one.next && !one.top.some(candidate => candidate.id === one.next.id)) list.append(row(one.next, one.next));
    next.textContent = one.next
      ? `Next came ${visible(one.next.label)}: ${ordinal(one.next.rank)}, ${percent(one.next.probability)}.`
      : "Nothing came after this position.";
  }

  function row(candidate, following) {
    return el(
      "li", { "data-next": following?.id === candidate.id, value: candidate.rank },
      el("code", { text: visible(candidate.label), title: `token ${candidate.id}` }),
      el("span", { class: "where-at", text: readable(candidate.logit), title: `logit ${candidate.logit}` }),
      bar(candidate.probability),
      el("span", { class: "number", text: percent(candidate.probability), title: String(candidate.probability) }),
    );
  }

  function everyLayer() {
    const asked = context;
    layersOf = query(asked, { layer: null });
    const count = Number(section.dataset.layers);
    const body = el("tbody");
    const rows = Array.from({ length: count }, (_, layer) => {
      const line = el("tr", {}, el("th", { scope: "row" },
        el("button", { type: "button", text: String(layer), "aria-label": `Go to layer ${layer}`, onclick: () => store.set({ layer }) })));
      body.append(line);
      return line;
    });
    layers.replaceChildren(el("table", {},
      el("thead", {}, el("tr", {}, ...["layer", "likeliest", "", "rank of what came next", "its probability"].map(text => el("th", { scope: "col", text })))),
      body));
    newest(signal => inTurn(rows.map((line, layer) => async () => {
      const { positions: [one] } = await getJson(query(asked, { layer, count: 1 }), signal);
      const best = one.top[0];
      line.append(
        el("td", {}, el("code", { text: visible(best.label) })), el("td", { class: "number", text: percent(best.probability) }),
        el("td", { class: "number", text: one.next ? one.next.rank.toLocaleString("en-US") : "–" }),
        el("td", { class: "number", text: one.next ? percent(one.next.probability) : "–" }),
      );
    }), 2, signal));
  }

  return {
    update(given) {
      context = given;
      show();
    },
  };
}
