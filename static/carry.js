// Keeps links in step with the address: the live panel changes run, layer, step and head in place, and a link to
// another page then takes them along. The server writes them as they were when the page was made.

const CARRIED = ["run", "layer", "step", "head"];
const DEFAULTS = { layer: 0, step: 1 };

function number(query, name) {
  const text = query.get(name);
  return text === null ? DEFAULTS[name] : Number(text);
}

function address(link) {
  const url = new URL(link.href);
  const here = new URLSearchParams(location.search);
  const names = link.dataset.view && link.dataset.view !== (here.get("view") ?? "full") ? CARRIED.filter(name => name !== "step") : CARRIED;
  for (const name of names) {
    if (here.has(name)) url.searchParams.set(name, here.get(name));
    else url.searchParams.delete(name);
  }
  for (const name of ["layer", "step"]) {
    const way = link.dataset[name];
    if (way) url.searchParams.set(name, number(here, name) + (way === "up" ? 1 : -1));
  }
  return url.pathname + url.search.replaceAll("%2F", "/").replaceAll("%2C", ",") + url.hash;
}

function sync() {
  const here = new URLSearchParams(location.search);
  for (const stepper of document.querySelectorAll("[data-stepper]")) {
    stepper.querySelector("[data-value]").textContent = number(here, stepper.dataset.stepper);
  }
  for (const link of document.querySelectorAll('a[href^="/models/"]')) {
    const wanted = address(link);
    if (wanted !== link.getAttribute("href")) link.setAttribute("href", wanted);
  }
}

export function carry() {
  let waiting = 0;
  let seen = location.search;
  const changed = () => {
    if (location.search === seen) return;
    seen = location.search;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(sync);
  };
  window.navigation?.addEventListener("currententrychange", changed);
  // Where the browser does not tell of a new address: just before a link is used.
  for (const event of ["pointerdown", "focusin", "keydown"]) document.addEventListener(event, changed, { capture: true });
}
