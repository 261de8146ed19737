// Parts of a diagram opened in place on a published site: each drawing is a file, made when the site was built. Which
// parts may be open together is bounded; beyond that the part that is asked for opens, and others close.
// `atlas/web/published/diagrams.py` writes the files, and says the same as this.

import { page, root } from "../address.js";

const [, , model, ...rest] = (page ?? "").split("/");
const current = rest.join("/");

let asked = null;

/** Which drawings there are: for each component its parts, and the sets of them (by number) that are drawn. */
function drawings() {
  asked ??= file("index.json").then(answer => answer.json());
  asked.catch(() => (asked = null));
  return asked;
}

async function file(name) {
  const answer = await fetch(`${root}diagrams/${model}/${name}`);
  if (!answer.ok) throw new Error(answer.statusText);
  return answer;
}

const openIn = svg => [...svg.querySelectorAll(".node.opened[data-node]")].map(one => one.dataset.node);

/** Gives the signs of the page's own drawing addresses of this page. */
export function prepare(figure) {
  const svg = figure.querySelector(".diagram-svg");
  figure.dataset.byItself = openIn(svg).sort().join(",");
  giveAddresses(figure, svg);
}

/** The drawing that the address of this page asks for; null where that is the one the page has. */
export async function restored(figure) {
  const given = new URLSearchParams(location.search).get("open");
  if (given === null) return null;
  const wanted = given.split(",").filter(Boolean);
  if ([...wanted].sort().join(",") === figure.dataset.byItself) return null;
  try {
    return await drawing(figure, wanted);
  } catch {
    return null; // the page's own drawing stays
  }
}

/** The drawing with one part more open, or one less. The address then says what is open. */
export async function toggled(figure, path) {
  const open = openIn(figure.querySelector(".diagram-svg"));
  const svg = open.includes(path)
    ? await drawing(figure, open.filter(one => one !== path && !one.startsWith(`${path}/`)))
    : await drawing(figure, [...open, path], path);
  history.replaceState(history.state, "", addressOf(figure, openIn(svg)));
  return svg;
}

/** The address of this page with these parts open; it does not name what is open by itself. */
function addressOf(figure, open) {
  const query = new URLSearchParams(location.search);
  query.delete("open");
  const others = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
  const said = [...open].sort().join(",");
  const text = [others, said === figure.dataset.byItself ? "" : `open=${said}`].filter(Boolean).join("&");
  return `${location.pathname}${text ? `?${text}` : ""}${location.hash}`;
}

function giveAddresses(figure, svg) {
  const open = openIn(svg);
  for (const sign of svg.querySelectorAll("a.toggle")) {
    const path = sign.dataset.toggle;
    const after = open.includes(path) ? open.filter(one => one !== path) : [...open, path];
    sign.setAttribute("href", addressOf(figure, after));
  }
}

/** The drawing with most of the wanted parts open, `first` in any case. */
async function drawing(figure, wanted, first = null) {
  const { component } = figure.dataset;
  const { parts, drawn } = (await drawings())[component];
  let [best, most] = [0, -1];
  drawn.forEach((numbers, number) => {
    const open = numbers.map(at => parts[at]);
    const fits = open.every(part => wanted.includes(part)) && (first === null || open.includes(first));
    if (fits && open.length > most) [best, most] = [number, open.length];
  });
  const view = document.documentElement.dataset.pageView;
  const answer = await file([view, component.replaceAll("/", "."), best, "svg.z"].filter(one => one !== "").join("."));
  const text = await new Response(answer.body.pipeThrough(new DecompressionStream("deflate"))).text();
  const svg = document.adoptNode(new DOMParser().parseFromString(text, "text/html").querySelector("svg"));
  for (const link of svg.querySelectorAll("a.node-link[href]")) {
    link.setAttribute("href", new URL(link.getAttribute("href"), answer.url).pathname);
  }
  if (current !== component) mark(svg);
  giveAddresses(figure, svg);
  return svg;
}

/** Marks the page's own node, and what flows into it and out of it, whose lines are drawn over the others. */
function mark(svg) {
  const node = path => svg.querySelector(`.node[data-node="${CSS.escape(path)}"]`);
  const own = node(current);
  own?.classList.add("current");
  own?.closest("a").setAttribute("aria-current", "page");
  const flows = [...svg.querySelectorAll(".flow[data-from][data-to]")];
  const near = flows.filter(({ dataset: { from, to } }) => current === from || current === to);
  for (const { classList, dataset: { from, to } } of near) {
    classList.add("near");
    for (const path of [from, to]) if (path !== current) node(path)?.classList.add("near");
  }
  flows.at(-1)?.after(...near);
}
