// A cache: which positions were there before this pass, and which it wrote.

import { el } from "./build.js";
import { visible } from "./format.js";

const span = (first, last) => (first === last ? `position ${first}` : `positions ${first} to ${last}`);

export function create({ place, panel }) {
  const about = el("p", { class: "about" });
  const tokens = el("ol", { class: "cached", "aria-label": "Positions in the cache" });
  place.append(about, tokens);

  tokens.addEventListener("click", event => {
    const at = event.target.closest?.("[data-cached]")?.dataset.cached;
    if (at !== undefined) panel.chooseToken(Number(at));
  });

  return {
    update({ summary, tokens: known }) {
      const keys = summary.axes.find(axis => axis.name === "keys");
      const last = keys.first + keys.size - 1;
      const old = summary.view === "decode" ? keys.size - 1 : 0;
      const words = {
        full: "This pass runs without history, so it writes all positions and reads them back at once: here the cache is an artefact of the reference code.",
        prefill: `This pass wrote all of it: ${span(keys.first, last)}.`,
        decode: old
          ? `${span(keys.first, last - 1)} were here before this step; it wrote ${span(last, last)}, marked beside the plane.`
          : `This step wrote ${span(last, last)}.`,
      };
      const text = words[summary.view];
      about.textContent = text.slice(0, 1).toUpperCase() + text.slice(1);
      tokens.replaceChildren(...Array.from({ length: keys.size }, (_, at) => el(
        "li", {}, el("button", {
          type: "button", "data-cached": keys.first + at, "data-new": at >= old,
          title: `position ${keys.first + at}, ${at >= old ? "written by this pass" : "from an earlier pass"}`,
          text: visible(known[keys.first + at]?.label ?? String(keys.first + at)),
        }),
      )));
    },
  };
}
