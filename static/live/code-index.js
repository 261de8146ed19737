// The code as an index: every expression that gave a tensor in the current run says what it gave, and opens its values.
// A published site says what was recorded of them, which is all but the numbers themselves.

import { pageAddress, root } from "../address.js";
import { getJson, request } from "./api.js";
import { el as element } from "./build.js";
import { fromAddress } from "./state.js";

const MARK = "#code [data-expression]";
const SHOWN = 8; // rows and columns of the values that are printed

const number = value => (value === null ? "–" : Number(value.toPrecision(4)).toString());

/** Which expressions have been asked for, by run, view, layer and step; each is asked once. */
function source(live) {
  const kept = new Map();
  return () => {
    const state = fromAddress(location.search);
    const run = state.run ?? live.dataset.demoRun;
    if (!run) return null;
    const inside = live.dataset.inBlocks === "true";
    const query = new URLSearchParams({ view: live.dataset.view, part: inside ? "block" : "outside" });
    if (inside) query.set("layer", state.layer ?? 0);
    if (live.dataset.view === "decode") query.set("step", state.step ?? 1);
    if (live.dataset.rank) query.set("rank", live.dataset.rank);
    const url = `/api/runs/${encodeURIComponent(run)}/expressions?${query}`;
    if (!kept.has(url)) {
      const asked = getJson(url).then(said => ({
        run,
        query,
        byPlace: new Map(said.expressions.map(item => [item.name.slice(item.name.indexOf("/") + 1), item])),
      }));
      asked.catch(() => kept.delete(url));
      if (kept.size > 20) kept.delete(kept.keys().next().value);
      kept.set(url, asked);
    }
    return kept.get(url);
  };
}

function words(item) {
  return item.values.map(value => {
    const lost = [value.nan && `${value.nan} nan`, value.inf && `${value.inf} inf`].filter(Boolean);
    return `${value.dtype} [${value.shape.join(", ")}] rms ${number(value.rms)}${lost.length ? `, ${lost.join(", ")}` : ""}`;
  });
}

/** Whose numbers they are, where a model is split over several ranks and these are not of the whole. */
function whose(item) {
  if (item.split?.rank == null) return [];
  const { rank, ranks, own } = item.split;
  return [own ? `rank ${rank} of ${ranks}: nothing is declared here that says how the ranks share it` : `rank ${rank} of ${ranks}`];
}

function place(tip, mark) {
  const box = mark.getBoundingClientRect();
  const width = tip.offsetWidth, height = tip.offsetHeight;
  const left = Math.max(4, Math.min(box.left, document.documentElement.clientWidth - width - 4));
  const below = box.bottom + 6 + height < innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${below ? box.bottom + 6 : Math.max(4, box.top - height - 6)}px`;
}

/** A slice of the first rows and columns of a tensor, or all of a small one. */
function corner(shape) {
  return shape.map((size, axis) => (axis < shape.length - 2 ? "0" : `0:${Math.min(size, SHOWN)}`)).join(",");
}

/** The long form of a CSV answer (indices, value) as aligned rows, the last axis across. */
function grid(csv) {
  const [, ...lines] = csv.trim().split(/\r?\n/);
  const rows = new Map();
  for (const line of lines) {
    const cells = line.split(",");
    const row = cells.slice(0, -2).join(",");
    if (!rows.has(row)) rows.set(row, []);
    rows.get(row).push(cells.at(-1));
  }
  const width = Math.max(0, ...[...rows.values()].flat().map(cell => cell.length));
  return [...rows.values()].map(cells => cells.map(cell => cell.padStart(width)).join("  ")).join("\n");
}

async function open(dialog, item, found) {
  const turns = item.values.map((value, index) => ({ value, name: item.values.length > 1 ? `${item.name}/${index + 1}` : item.name }));
  const query = new URLSearchParams(found.query);
  query.delete("part");
  const parts = [element("h2", {}, item.text), element("p", { class: "note" }, `In ${item.function}, line ${item.span[0]}.`)];
  for (const line of whose(item)) parts.push(element("p", { class: "note" }, `Of ${line}. The page's choice of ranks shows another's.`));
  for (const { value, name } of turns) {
    const base = `/api/runs/${encodeURIComponent(found.run)}/tensors/${name}/data?${query}`;
    const rows = element("pre", { class: "values", tabindex: "0" }, "…");
    const stats = `mean ${number(value.mean)} · rms ${number(value.rms)} · min ${number(value.min)} · max ${number(value.max)} · nan ${value.nan} · inf ${value.inf}`;
    parts.push(
      element("p", { class: "glance" }, `${value.dtype} [${value.shape.join(", ")}]`),
      element("p", { class: "note" }, stats),
      rows,
      ...(root === null ? [element("p", {}, element("a", { href: `${base}&format=npy`, download: "" }, "all of it as .npy"))] : []),
    );
    const slice = value.shape.length ? `&slice=${corner(value.shape)}` : "";
    request(`${base}&format=csv${slice}`)
      .then(async answer => {
        const said = answer.ok ? null : await answer.json();
        rows.textContent = said ? [said.detail ?? "The values could not be read.", said.hint].filter(Boolean).join("\n") : grid(await answer.text());
      })
      .catch(() => { rows.textContent = "The server does not answer."; });
  }
  const close = element("button", { type: "button", class: "close" }, "Close");
  close.addEventListener("click", () => dialog.close());
  dialog.replaceChildren(close, ...parts);
  dialog.showModal();
}

export function codeIndex(live) {
  const ask = source(live);
  const tip = element("div", { class: "code-tip", role: "tooltip", id: "code-tip", hidden: "" });
  const dialog = element("dialog", { class: "code-values", "aria-label": "Values of an expression" });
  document.body.append(tip, dialog);
  let current = null;

  const hide = () => {
    current?.removeAttribute("aria-describedby");
    current = null;
    tip.hidden = true;
  };
  // The innermost expression that gave a tensor: a name of a method in between gave none.
  const lookUp = async start => {
    const found = await ask();
    for (let mark = start; found && mark; mark = mark.parentElement?.closest(MARK)) {
      const item = found.byPlace.get(mark.dataset.expression);
      if (item) return { found, item, mark };
    }
    return {};
  };
  const leads = mark => mark.dataset.node && !mark.hasAttribute("data-this");
  // On a published site the page of a node is there, whatever is recorded of expressions.
  const nodeOf = mark => (root === null ? null : mark.closest(`${MARK}[data-node]:not([data-this])`));
  const follow = mark => {
    const query = new URLSearchParams(location.search);
    if (live.dataset.view !== "full") query.set("view", live.dataset.view);
    const text = query.toString();
    location.assign(pageAddress(`/models/${live.dataset.model}/${mark.dataset.node}${text ? `?${text}` : ""}`));
  };
  const say = (mark, lines) => {
    tip.replaceChildren(...lines.map(line => element("span", {}, line)));
    tip.hidden = false;
    mark.setAttribute("aria-describedby", "code-tip");
    place(tip, mark);
  };
  const show = async start => {
    hide();
    current = start;
    try {
      const { item, mark } = await lookUp(start);
      if (item && current === start) say(start, [item.text, ...words(item), ...whose(item), leads(mark) ? "click for its page" : "click for values"]);
    } catch (error) {
      if (current === start) say(start, [error.message, ...(nodeOf(start) ? ["click for its page"] : [])]);
    }
  };
  const activate = async start => {
    try {
      const { found, item, mark } = await lookUp(start);
      if (!item) return;
      hide();
      if (leads(mark)) follow(mark);
      else await open(dialog, item, found);
    } catch (error) {
      const node = nodeOf(start);
      if (node) follow(node);
      else say(start, [error.message]);
    }
  };

  const markOf = event => (event.target instanceof Element ? event.target.closest(MARK) : null);
  document.addEventListener("pointerover", event => {
    const mark = markOf(event);
    if (mark && mark !== current) show(mark);
    else if (!mark && current && document.activeElement !== current) hide();
  });
  document.addEventListener("click", event => {
    const mark = markOf(event);
    if (mark && !getSelection().toString()) activate(mark);
  });

  // One stop for the Tab key in each excerpt; the arrow keys go from expression to expression.
  for (const excerpt of document.querySelectorAll("#code pre.code")) {
    const marks = [...excerpt.querySelectorAll("[data-expression]")];
    for (const [index, mark] of marks.entries()) {
      mark.tabIndex = index ? -1 : 0;
      mark.setAttribute("role", "link");
    }
    excerpt.addEventListener("focusin", event => {
      const mark = markOf(event);
      if (!mark) return;
      for (const other of marks) other.tabIndex = other === mark ? 0 : -1;
      show(mark);
    });
    excerpt.addEventListener("focusout", hide);
    excerpt.addEventListener("keydown", event => {
      const at = marks.indexOf(document.activeElement);
      if (at < 0) return;
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        marks[(at + step + marks.length) % marks.length].focus();
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        activate(marks[at]);
      } else if (event.key === "Escape") {
        hide();
      }
    });
  }
}

const live = document.getElementById("live");
if (live?.dataset.liveModel) codeIndex(live);
