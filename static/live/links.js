// Links within the site keep what the reader is looking at: run, layer, step and head go along to other nodes and views.

import { leadsToModels } from "../address.js";

const CARRIED = ["run", "layer", "step", "head"];

/** Puts the store's state into links to models and nodes at the moment they are followed. */
export function carryState(store) {
  const carry = event => {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!link || !leadsToModels(link)) return;
    if (link.closest("[data-stepper], .hit") || link.hash) return; // an answer of the search names its own layer
    const state = store.get();
    const query = new URLSearchParams(link.search);
    const changesView = link.dataset.view !== undefined;
    for (const name of CARRIED) {
      if (state[name] === null || (name === "step" && changesView && link.dataset.view !== "decode")) query.delete(name);
      else query.set(name, String(state[name]));
    }
    const text = query.toString();
    link.search = text ? `?${text}` : "";
  };
  for (const moment of ["pointerdown", "focusin", "click"]) document.addEventListener(moment, carry, { capture: true });
}
