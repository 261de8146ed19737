// Deep links into a published site as a server would have them (`?view=decode&layer=3`, `/compare?a=..&b=..`): there is
// a file for each view and pair, and this leads to it. Also the search page, whose answers a server would have written.

import { page, pageAddress, root } from "../address.js";
import { searched } from "./search.js";

/** Goes to the file that the address means, if that is another one. */
export function route() {
  if (root === null || !location.search) return;
  const target = new URL(pageAddress(`${page}${location.search}${location.hash}`), location.href);
  const here = location.pathname.replace(/\/$/, "/index.html");
  const named = ["view", "walk", "a", "b"].some(name => new URLSearchParams(location.search).has(name));
  if (named && target.pathname !== here) location.replace(target);
}

/** A click on an expression that is a node leads to it; what other expressions gave is not recorded. */
export function followCode() {
  if (root === null) return;
  const model = document.getElementById("live")?.dataset.model;
  document.addEventListener("click", event => {
    const mark = event.target instanceof Element ? event.target.closest("#code [data-expression][data-node]") : null;
    if (!mark || !model || mark.hasAttribute("data-this") || getSelection().toString()) return;
    location.assign(pageAddress(`/models/${model}/${mark.dataset.node}${location.search}`));
  });
}

/** Fills the search page. */
export async function fillSearch() {
  const form = document.querySelector("form.big-search");
  const given = new URLSearchParams(location.search);
  const query = given.get("q")?.trim();
  if (root === null || !form || !query) return;
  form.elements.q.value = query;
  const hits = await searched({ q: query, model: given.get("model") ?? "" });
  document.querySelector("h1").textContent = `Found for “${query}”`;
  const list = document.createElement("ol");
  list.className = "hits";
  for (const hit of hits) {
    const link = Object.assign(document.createElement("a"), { className: "hit", href: pageAddress(hit.href) });
    const span = (name, text) => Object.assign(document.createElement("span"), { className: name, textContent: text });
    const mark = span("mark", "");
    mark.dataset.kind = hit.kind;
    mark.ariaHidden = "true";
    link.append(mark, span("hit-name", hit.name), " ", span("hit-symbol", hit.symbol), " ", span("hit-path", `${hit.path}${hit.models ? ` · ${hit.models}` : ""}`));
    if (hit.matched) {
      const match = span("hit-match", ` ${hit.of}${hit.layout ? `, ${hit.layout}` : ""}`);
      match.prepend(Object.assign(document.createElement("code"), { textContent: hit.matched }));
      link.append(" ", match);
    }
    const item = document.createElement("li");
    item.append(link);
    list.append(item);
  }
  const said = document.createElement("p");
  said.textContent = hits.length ? "" : "Nothing is called like that. Try a shorter word, a symbol, or a name from another library.";
  form.after(hits.length ? list : said);
}
