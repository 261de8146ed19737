// Small builders of elements, so that panels read as what they show.

/** An element: el("td", {class: "x", title: "y"}, "text", child, ...). Null children are left out. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "text") made.textContent = value;
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

/** A horizontal bar for a share between 0 and 1. */
export function bar(share) {
  const meter = el("span", { class: "bar", "aria-hidden": "true" });
  meter.style.setProperty("--share", String(Math.max(0, Math.min(1, share))));
  return meter;
}

/** A select with [value, label] options. */
export function choice(options, chosen, changed) {
  const select = el("select", { onchange: event => changed(event.target.value) });
  for (const [value, label] of options) select.append(new Option(label, value, false, value === chosen));
  return select;
}

/** Runs the newest of several jobs only: a job gets a signal that is aborted when the next one starts. */
export function latest(failed) {
  let controller = null;
  return async job => {
    controller?.abort();
    controller = new AbortController();
    const { signal } = controller;
    try {
      await job(signal);
    } catch (error) {
      if (error.name !== "AbortError") failed(error);
    }
  };
}
