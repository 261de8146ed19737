// Diagrams: pan, zoom and fit, arrow keys along the flow, and components that open in place without a new page.
// Everything here is a convenience: each node and each opening sign is a link that works by itself.

import { root } from "./address.js";

const STEP = 1.3;
const CLOSEST = 8; // how often a diagram can be enlarged

export function diagrams(root = document) {
  for (const figure of root.querySelectorAll("figure.diagram")) {
    if (figure.querySelector(".diagram-svg")) enhance(figure);
  }
}

function enhance(figure) {
  const sheet = () => figure.querySelector(".diagram-svg");
  let camera = makeCamera(sheet());
  figure.prepend(tools(() => camera));
  followPointer(figure, () => camera);
  figure.addEventListener("keydown", event => walk(event, sheet()));
  figure.addEventListener("click", async event => {
    const sign = event.target.closest("a.toggle");
    if (!sign || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    if (await openInPlace(figure, sign)) camera = makeCamera(sheet());
  });
  showCurrent(figure);
  if (root !== null) takeFromFiles(figure, svg => {
    show(figure, svg);
    camera = makeCamera(svg);
    showCurrent(figure);
  });
}

// --- the camera: which part of the diagram the picture shows

function makeCamera(svg) {
  const whole = svg.viewBox.baseVal;
  const home = { x: whole.x, y: whole.y, width: whole.width, height: whole.height };
  let view = { ...home };
  const clamp = (value, low, high) => Math.min(Math.max(value, low), Math.max(low, high));
  const set = next => {
    const width = clamp(next.width, home.width / CLOSEST, home.width);
    const height = (width * home.height) / home.width;
    view = {
      width,
      height,
      x: clamp(next.x, home.x, home.x + home.width - width),
      y: clamp(next.y, home.y, home.y + home.height - height),
    };
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
    svg.classList.toggle("enlarged", width < home.width * 0.999);
  };
  // A point of the screen as a share of the picture's width and height.
  const place = (clientX, clientY) => {
    const box = svg.getBoundingClientRect();
    return [clamp((clientX - box.left) / box.width, 0, 1), clamp((clientY - box.top) / box.height, 0, 1)];
  };
  return {
    svg,
    get enlarged() {
      return view.width < home.width * 0.999;
    },
    fit: () => set(home),
    // What is at this point of the screen stays where it is.
    zoom(factor, clientX, clientY) {
      const [u, v] = place(clientX, clientY);
      const width = clamp(view.width / factor, home.width / CLOSEST, home.width);
      const height = (width * home.height) / home.width;
      set({ width, x: view.x + u * (view.width - width), y: view.y + v * (view.height - height) });
    },
    pan(dx, dy) {
      const box = svg.getBoundingClientRect();
      set({ ...view, x: view.x - (dx * view.width) / box.width, y: view.y - (dy * view.height) / box.height });
    },
    // Bring a part into the picture, if it is not there.
    reveal(box) {
      const gap = 12;
      let { x, y } = view;
      if (box.x < x) x = box.x - gap;
      if (box.y < y) y = box.y - gap;
      if (box.x + box.width > x + view.width) x = box.x + box.width + gap - view.width;
      if (box.y + box.height > y + view.height) y = box.y + box.height + gap - view.height;
      set({ ...view, x, y });
    },
  };
}

function tools(camera) {
  const bar = document.createElement("div");
  bar.className = "diagram-tools";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Diagram: zoom");
  for (const [sign, key, label, act] of [
    ["−", "-", "Zoom the diagram out", () => camera().zoom(1 / STEP, ...focus(camera().svg))],
    ["+", "+", "Zoom the diagram in", () => camera().zoom(STEP, ...focus(camera().svg))],
    ["Fit", "0", "Show the whole diagram", () => camera().fit()],
  ]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = sign;
    button.title = `${label} (${key})`;
    button.setAttribute("aria-label", label);
    button.dataset.key = key;
    button.addEventListener("click", act);
    bar.append(button);
  }
  return bar;
}

// What stays in its place when a button zooms: the page's own node, or the middle of what can be seen.
function focus(svg) {
  const node = svg.querySelector(".node.current")?.getBoundingClientRect();
  if (node && node.top >= 0 && node.bottom <= innerHeight) return [(node.left + node.right) / 2, (node.top + node.bottom) / 2];
  const box = svg.getBoundingClientRect();
  return [(box.left + box.right) / 2, (Math.max(box.top, 0) + Math.min(box.bottom, innerHeight)) / 2];
}

// --- pointers: drag what is enlarged, pinch, and the wheel with Ctrl; a plain wheel scrolls the page

function followPointer(figure, camera) {
  const down = new Map();
  let moved = 0;

  figure.addEventListener("pointerdown", event => {
    if (!event.target.closest(".diagram-svg") || event.button) return;
    if (!down.size) moved = 0;
    down.set(event.pointerId, [event.clientX, event.clientY]);
  });
  figure.addEventListener("pointermove", event => {
    const before = down.get(event.pointerId);
    if (!before) return;
    const now = [event.clientX, event.clientY];
    const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
    if (down.size === 2) {
      const [other] = [...down].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const apart = at => Math.hypot(at[0] - other[0], at[1] - other[1]) || 1;
      camera().zoom(apart(now) / apart(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
      moved += 10;
    } else if (camera().enlarged) {
      camera().pan(dx, dy);
    }
    moved += Math.abs(dx) + Math.abs(dy);
    if (moved > 6 && camera().enlarged && !figure.hasPointerCapture(event.pointerId)) {
      figure.setPointerCapture(event.pointerId);
    }
    down.set(event.pointerId, now);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    figure.addEventListener(end, event => down.delete(event.pointerId));
  }
  // The end of a drag is no click on the link under it.
  figure.addEventListener(
    "click",
    event => {
      if (moved > 6 && camera().enlarged && event.detail) {
        event.preventDefault();
        event.stopPropagation();
      }
      moved = 0;
    },
    true,
  );
  figure.addEventListener("dragstart", event => {
    if (camera().enlarged) event.preventDefault();
  });
  figure.addEventListener(
    "wheel",
    event => {
      if (!(event.ctrlKey || event.metaKey) || !event.target.closest(".diagram-svg")) return;
      event.preventDefault();
      camera().zoom(Math.exp(-event.deltaY / 300), event.clientX, event.clientY);
    },
    { passive: false },
  );
  figure.addEventListener("focusin", event => {
    const node = event.target.closest?.("a.node-link");
    if (node && camera().enlarged && node.matches(":focus-visible")) camera().reveal(node.getBBox());
  });
}

// --- arrow keys: up and down along the flow, left and right to what stands beside

function walk(event, svg) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  const link = event.target.closest?.("a.node-link");
  if (!link || !svg.contains(link)) return;
  const next = neighbour(svg, link, event.key);
  if (!next) return;
  event.preventDefault();
  next.focus();
}

function neighbour(svg, link, key) {
  const path = link.querySelector("[data-node]").dataset.node;
  const middle = element => {
    const box = element.getBBox();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const [x, y] = middle(link);
  const nearest = (links, distance) =>
    links.filter(other => other !== link).sort((a, b) => distance(middle(a)) - distance(middle(b)))[0];
  const linkOf = node => svg.querySelector(`[data-node="${CSS.escape(node)}"]`)?.closest("a.node-link");
  if (key === "ArrowUp" || key === "ArrowDown") {
    const [here, there] = key === "ArrowUp" ? ["data-to", "data-from"] : ["data-from", "data-to"];
    const lines = [...svg.querySelectorAll(`.flow[${here}="${CSS.escape(path)}"]`)];
    const links = lines.map(line => linkOf(line.getAttribute(there))).filter(Boolean);
    return nearest(links, ([u]) => Math.abs(u - x));
  }
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const side = key === "ArrowLeft" ? -1 : 1;
    const links = [...svg.querySelectorAll("a.node-link")].filter(other => {
      const [u, v] = middle(other);
      return (u - x) * side > 4 && Math.abs(v - y) < 60;
    });
    return nearest(links, ([u, v]) => Math.abs(u - x) + 2 * Math.abs(v - y));
  }
  return undefined;
}

// --- open and close components in place: fetch the page that the sign links to, and take its diagram

/** On a published site: the signs get addresses of this page, and what its address says is open is opened. */
async function takeFromFiles(figure, shown) {
  const { prepare, restored } = await import("./published/diagrams.js");
  prepare(figure);
  const svg = await restored(figure);
  if (svg) shown(svg);
}

/** Puts another drawing in place, and lists the kinds of layers that it has. */
function show(figure, svg) {
  figure.querySelector(".diagram-svg").replaceWith(svg);
  const list = figure.querySelector(".some-layers");
  for (const line of list?.children ?? []) {
    const pattern = line.querySelector(".badge").classList.item(1);
    line.hidden = !svg.querySelector(`.${pattern}`);
  }
  if (list) list.hidden = [...list.children].every(line => line.hidden);
}

async function openInPlace(figure, sign) {
  const address = new URL(sign.getAttribute("href"), location.href).href;
  const path = sign.dataset.toggle;
  figure.setAttribute("aria-busy", "true");
  try {
    if (root === null) await fromServer(figure, address);
    else {
      const { toggled } = await import("./published/diagrams.js");
      show(figure, await toggled(figure, path));
    }
    figure.querySelector(`a.toggle[data-toggle="${CSS.escape(path)}"]`)?.focus({ preventScroll: true });
    return true;
  } catch {
    location.assign(address);
    return false;
  } finally {
    figure.removeAttribute("aria-busy");
  }
}

async function fromServer(figure, address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(answer.statusText);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const drawn = page.querySelector("figure.diagram .diagram-svg");
  if (!drawn) throw new Error("no diagram");
  show(figure, document.adoptNode(drawn));
  // The views' links carry what is open.
  const views = page.getElementById("views");
  if (views) document.getElementById("views")?.replaceWith(document.adoptNode(views));
  history.replaceState(history.state, "", address);
}

// A tall diagram in a column that scrolls by itself starts where the page's own node is.
function showCurrent(figure) {
  const node = figure.querySelector(".node.current");
  let column = figure.parentElement;
  while (column && getComputedStyle(column).overflowY !== "auto") column = column.parentElement;
  if (!node || !column || column === document.documentElement || column === document.body) return;
  const [inner, outer] = [node.getBoundingClientRect(), column.getBoundingClientRect()];
  if (inner.bottom > outer.bottom) column.scrollTop += inner.top - outer.top - outer.height / 2;
}
