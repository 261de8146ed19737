// The search overlay: `/` or Ctrl-K opens it; answers come as one types; arrows and Enter go there.
// Without it, the form in the bar leads to the plain page with the same answers.

import { pageAddress } from "./address.js";
import { request } from "./live/api.js";
import { typing } from "./typing.js";

const WAIT = 90; // ms after a keystroke

export function search() {
  const form = document.querySelector("form.search");
  if (!form) return;
  let dialog, input, list, said, asked = 0, timer;

  const chosen = () => list.querySelector('[aria-selected="true"]');
  const choose = hit => {
    chosen()?.setAttribute("aria-selected", "false");
    hit?.setAttribute("aria-selected", "true");
    hit?.scrollIntoView({ block: "nearest" });
    if (hit) input.setAttribute("aria-activedescendant", hit.id);
    else input.removeAttribute("aria-activedescendant");
  };

  const element = (tag, name, text) => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    if (text) made.textContent = text;
    return made;
  };

  const show = hits => {
    list.replaceChildren(...hits.map((hit, index) => {
      const link = element("a", "hit");
      link.href = pageAddress(hit.href);
      link.id = `hit-${index}`;
      link.tabIndex = -1;
      link.setAttribute("role", "option");
      link.setAttribute("aria-selected", "false");
      const mark = element("span", "mark");
      mark.dataset.kind = hit.kind;
      link.append(mark, element("span", "hit-name", hit.name));
      if (hit.symbol) link.append(element("span", "hit-symbol", hit.symbol));
      link.append(element("span", "hit-path", hit.path));
      if (hit.matched) {
        const match = element("span", "hit-match");
        match.append(element("code", "", hit.matched), ` ${hit.of}${hit.layout ? `, ${hit.layout}` : ""}`);
        link.append(match);
      }
      return link;
    }));
    choose(list.firstElementChild);
  };

  const ask = async () => {
    const query = input.value.trim();
    const mine = ++asked;
    if (!query) {
      show([]);
      said.textContent = "Names, symbols, code, and names of other libraries: blk.3.attn_k.weight, hook_z, resid_mid";
      return;
    }
    const model = form.elements.model?.value ?? "";
    const view = document.documentElement.dataset.pageView ?? new URLSearchParams(location.search).get("view");
    const address = new URLSearchParams({ q: query, model });
    if (view) address.set("view", view);
    try {
      const answer = await request(`/api/search?${address}`);
      const body = await answer.json();
      if (mine !== asked) return;
      if (!answer.ok) throw new Error(body.detail);
      show(body.hits);
      said.textContent = body.hits.length ? `${body.hits.length} found` : `Nothing is called ${query}. Try a shorter or another name.`;
    } catch (error) {
      if (mine === asked) said.textContent = `The search did not answer: ${error.message}`;
    }
  };

  const make = () => {
    dialog = element("dialog");
    dialog.id = "search-dialog";
    dialog.setAttribute("aria-label", "Search");
    input = element("input");
    input.type = "search";
    input.autocomplete = "off";
    input.spellcheck = false;
    input.placeholder = form.elements.q.placeholder;
    input.setAttribute("role", "combobox");
    input.setAttribute("aria-label", "Search nodes, symbols, code and other names");
    input.setAttribute("aria-expanded", "true");
    input.setAttribute("aria-controls", "search-hits");
    input.setAttribute("aria-autocomplete", "list");
    list = element("div");
    list.id = "search-hits";
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Found");
    said = element("p", "said");
    said.setAttribute("role", "status");
    dialog.append(input, list, said);
    document.body.append(dialog);
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(ask, WAIT);
    });
    input.addEventListener("keydown", event => {
      const hits = [...list.children];
      const at = hits.indexOf(chosen());
      if (event.key === "ArrowDown") choose(hits[(at + 1) % hits.length]);
      else if (event.key === "ArrowUp") choose(hits[(at - 1 + hits.length) % hits.length]);
      else if (event.key === "Enter" && chosen()) chosen().click();
      else return;
      event.preventDefault();
    });
    dialog.addEventListener("click", event => {
      if (event.target === dialog) dialog.close();
    });
  };

  const open = () => {
    if (!dialog) make();
    if (dialog.open) return;
    dialog.showModal();
    input.select();
    ask();
  };

  document.addEventListener("keydown", event => {
    const control = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
    const slash = event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target);
    if (!control && !slash) return;
    event.preventDefault();
    open();
  });
}
