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

/** Fills the search page. */
export async function fillSearch() {
  const form = document.querySelector("form.big-search");
  const given = new URLSearchParams(location.search);
  const query = given.get("q")?.trim();
  if (root === null || !form || !query) return;
  form.elements.q.value = query;
  document.querySelector("h1").textContent = `Found for “${query}”`;
  form.parentElement.querySelector(".examples")?.remove();
  const hits = await searched({ q: query, model: given.get("model") ?? "", view: given.get("view") ?? "full" });
  const said = document.createElement("p");
  said.textContent = hits.length ? "" : "Nothing is called like that. Try a shorter word, a symbol, or a name from another library.";
  form.after(hits.length ? listOf(hits) : said);
}

/** Answers of the search as a server writes them. */
export function listOf(hits) {
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
  return list;
}

/** Addresses that a page can only know where it stands: the one to embed it by. */
export function fullAddresses() {
  for (const place of document.querySelectorAll("[data-full-address]")) {
    place.textContent = new URL(pageAddress(place.textContent), location.href).href;
  }
}
