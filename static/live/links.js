// Links within the site keep what the reader is looking at: run, layer, step and head, and which parts of diagrams are
// open, go along to other nodes and views.

import { leadsToModels } from "../address.js";

const CARRIED = ["run", "layer", "step", "head", "open"];

/** Puts the store's state into links to models and nodes at the moment they are followed. */
export function carryState(store) {
  const carry = event => {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!link || link.closest(".hit, .toggle")) return; // an answer of the search names its own layer
    const url = new URL(link.getAttribute("href"), location.href); // a diagram's links have no `search` of their own
    if (!leadsToModels(url) || url.hash) return;
    const state = { ...store.get(), open: new URLSearchParams(location.search).get("open") };
    const query = url.searchParams;
    const changesView = link.dataset.view !== undefined;
    for (const name of link.closest("[data-stepper]") ? ["open"] : CARRIED) {
      if (state[name] === null || (name === "step" && changesView && link.dataset.view !== "decode")) query.delete(name);
      else query.set(name, String(state[name]));
    }
    url.search = query.toString().replaceAll("%2F", "/").replaceAll("%2C", ",");
    link.setAttribute("href", `${url.pathname}${url.search}`);
  };
  for (const moment of ["pointerdown", "focusin", "click"]) document.addEventListener(moment, carry, { capture: true });
}
