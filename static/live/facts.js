// Statistics, shape and checks as text on the page.

import { count, readable } from "./format.js";

/** Fills every [data-stat]: readable, with the full number in the title and in data-value. */
export function showStats(section, summary) {
  for (const place of section.querySelectorAll("[data-stat]")) {
    const value = summary.stats[place.dataset.stat];
    const whole = place.dataset.stat === "nan" || place.dataset.stat === "inf";
    place.textContent = value === null ? "none" : whole ? count(value) : readable(value);
    place.dataset.value = value === null ? "" : String(value);
    place.title = value === null ? "No element is finite." : String(value);
  }
}

/** The shape as it was observed, in the panel and beside the declared one. */
export function showShape(section, summary) {
  const words = summary.axes.map(axis => `${axis.size.toLocaleString("en-US")} ${axis.name}`).join(", ");
  section.querySelector('[data-live="shape"]').textContent = `[${words}] ${summary.dtype}`;
  const observed = document.getElementById("observed");
  if (observed) observed.textContent = `now ${summary.shape.join(" × ") || "one number"}`;
}

/** What was checked on this very tensor: `checks` are those of the API. */
export function showChecks(place, checks) {
  const parts = [
    mark(checks.shape, "shape as declared", "shape is not as declared"),
    mark(
      checks.equation,
      `equation, in float64: worst row ${readable(checks.equation.worst_row, 2)} of ${readable(checks.equation.tolerance, 2)} allowed`,
      `equation gives other numbers: worst row ${readable(checks.equation.worst_row, 2)}`,
    ),
    mark(checks.source, "source file as pinned", "source file is not the pinned one"),
  ];
  const shown = parts.filter(part => part !== null);
  place.replaceChildren(...shown);
  place.style.visibility = "";
  showLiveMark(checks, shown.map(part => part.textContent).join("; "));
}

/** Nothing is known yet of the values that are shown now. What was said of others keeps its place on the page. */
export function forgetChecks(place) {
  place.style.visibility = "hidden";
  showLiveMark({}, "The values that are shown are being checked.");
}

/** The node's own mark for live values, among those of what was checked before: it holds if nothing fails. */
function showLiveMark(checks, title) {
  const place = document.querySelector('.checks [data-check="live"]');
  const link = place?.querySelector("a");
  if (!link) return;
  const verdicts = Object.values(checks).map(check => check.ok).filter(ok => ok !== null);
  const ok = verdicts.length ? verdicts.every(Boolean) : null;
  place.dataset.ok = ok === null ? "" : String(ok);
  place.title = title;
  place.replaceChildren(...verdict(ok), " ", link);
}

/** As the templates write it. */
function verdict(ok) {
  const sign = document.createElement("span");
  sign.ariaHidden = "true";
  sign.textContent = ok === null ? "·" : ok ? "✓" : "✗";
  if (ok === null) return [sign];
  sign.className = ok ? "tick" : "cross";
  const word = document.createElement("span");
  word.className = "hidden";
  word.textContent = ok ? "Holds: " : "Fails: ";
  return [sign, word];
}

function mark(check, holds, fails) {
  if (check.ok === null) return null;
  const item = document.createElement("span");
  item.className = check.ok ? "holds" : "fails";
  item.textContent = `${check.ok ? "✓" : "✗"} ${check.ok ? holds : fails}`;
  if (check.why) item.title = check.why;
  return item;
}
