// The chosen cell: its value in full at once where a tile holds it, its rank a moment later.

import { address, getJson } from "./api.js";
import { ordinal, shortest, visible } from "./format.js";
import { partOf, passOf, tensorPath } from "./look.js";

const PATIENCE = 60; // milliseconds without another move before the rank is asked for

/** The words for where a cell is: "queries 3 ␣France · keys 0 The". Axes of size one are left out. */
export function placeWords(summary, index, tokens) {
  const parts = summary.axes.map((axis, at) => {
    if (axis.size === 1 && summary.axes.length > 1 && axis.first === null) return null;
    const position = axis.first === null ? null : axis.first + index[at];
    const token = position === null ? undefined : tokens[position]?.label;
    return `${axis.name} ${position ?? index[at]}${token === undefined ? "" : ` ${visible(token)}`}`;
  });
  return parts.filter(part => part !== null).join(" · ");
}

/** `output` is filled; `failed(problem)` hears what went wrong. */
export function createCell(output, failed) {
  let timer = 0;
  let asking = null;

  function show(summary, index, tokens, text, rank) {
    output.dataset.cell = index.join(",");
    output.dataset.value = text;
    const place = document.createElement("span");
    place.className = "place";
    place.textContent = placeWords(summary, index, tokens);
    const value = document.createElement("b");
    value.textContent = text.replaceAll("-", "−");
    const more = document.createElement("span");
    more.className = "rank";
    more.textContent = rank;
    output.replaceChildren(place, " = ", value, " ", more);
  }

  async function ask(run, summary, index, tokens, along, part) {
    asking?.abort();
    asking = new AbortController();
    const query = { ...passOf(summary), slice: index.join(","), along, part };
    try {
      const cell = await getJson(address(`${tensorPath(run, summary.node)}/cell`, query), asking.signal);
      const rank = cell.rank === null ? "" : `${ordinal(cell.rank)} of ${cell.of.toLocaleString("en-US")} ${cell.along}`;
      show(summary, index, tokens, cell.text, rank);
      output.removeAttribute("aria-busy");
    } catch (error) {
      if (error.name === "AbortError") return;
      output.removeAttribute("aria-busy");
      failed(error);
    }
  }

  return {
    /** Chooses a cell. `local` is {value, flag} where a tile holds the element, `along` the axis it is ranked in. */
    set({ run, summary, state, index, tokens, along, local }) {
      clearTimeout(timer);
      output.setAttribute("aria-busy", "true"); // until its rank is there: then it is read out once
      const part = partOf(summary, state);
      if (local) show(summary, index, tokens, shortest(local.value, summary.dtype), "");
      timer = setTimeout(() => ask(run, summary, index, tokens, along, part), local ? PATIENCE : 0);
    },
  };
}
