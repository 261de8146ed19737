// Compare: the same node at another step, layer or view, or in another run, beside this one, with their difference.

import { root } from "../address.js";
import { address, getJson } from "./api.js";
import { createScale, palette } from "./color.js";
import { bar, choice, el, latest } from "./build.js";
import { readable, visible } from "./format.js";
import { createHeatmap } from "./heatmap.js";
import { indexOf, partOf, passOf, sceneOf, tensorPath } from "./look.js";
import { publishedRuns, rememberedRuns } from "./runs.js";

const KINDS = { view: "another view", step: "another decode step", layer: "another layer", run: "another run" };
const NO_OTHER_RUN = root === null
  ? "No other run is known here: run another prompt first."
  : "This published atlas holds no other run of this model.";
const TIGHT = 1e-5; // a relative difference that rounding explains

/** "step:3" as a query: {against_step: "3"}; null where it names nothing. */
export function againstOf(text) {
  const found = /^(view|step|layer|run):([\w-]{1,64})$/.exec(text ?? "");
  return found ? { [`against_${found[1]}`]: found[2] } : null;
}

export function create({ place, details, section, store, panel, failed }) {
  const newest = latest(problem => said(problem.message, problem.hint));
  const kindBox = el("span");
  const valueBox = el("span");
  const words = el("p", { class: "about", role: "status" });
  const chart = el("ol", { class: "ranked positions", "aria-label": "Difference by position" });
  const other = el("canvas", { class: "beside", tabindex: "0", role: "img" });
  const gap = el("canvas", { class: "beside", tabindex: "0", role: "img" });
  const figure = (canvas, title) => el("figure", { class: "side" }, el("figcaption", { text: title }), canvas);
  const sides = el("div", { class: "sides", hidden: true }, figure(other, "the other"), figure(gap, "this minus the other"));
  const whole = el("button", { type: "button", text: "Decode against full sequence, at every position", onclick: () => agreement() });
  place.append(el("p", { class: "options" }, el("label", {}, "Beside ", kindBox), el("label", {}, "namely ", valueBox)), words, sides, chart, whole);
  let maps = null;
  let context = null;
  let shown = ""; // what is on the page, whole
  let underway = ""; // what is being asked for: whoever asks for the same again waits for it
  let published = [];
  let kind = againstOf(store.get().against) ? store.get().against.split(":")[0] : null;

  function said(text, hint = "") {
    words.textContent = hint ? `${text} ${hint}` : text;
    sides.hidden = true;
    chart.replaceChildren();
  }

  function values() {
    const { summary, run } = context;
    if (kind === "view") return ["full", "prefill", "decode"].filter(view => view !== summary.view).map(view => [view, { full: "full sequence", prefill: "prefill", decode: "decode" }[view]]);
    if (kind === "step") return Array.from({ length: run.steps }, (_, at) => [String(at + 1), `step ${at + 1}`]).filter(([at]) => Number(at) !== summary.step);
    if (kind === "layer") return Array.from({ length: Number(section.dataset.layers) }, (_, at) => [String(at), `layer ${at}`]).filter(([at]) => Number(at) !== summary.layer);
    const known = root === null ? rememberedRuns() : published.filter(one => one.model === run.model);
    return known.filter(one => one.id !== run.id).map(one => [one.id, `${one.id.slice(0, 8)} “${one.prompt.slice(0, 30)}”`]);
  }

  function offer() {
    const { summary } = context;
    const kinds = Object.entries(KINDS).filter(([name]) => (name !== "step" || summary.view === "decode") && (name !== "layer" || summary.layer !== null));
    kindBox.replaceChildren(choice([["", "nothing"], ...kinds], kind ?? "", value => {
      kind = value || null;
      const first = kind ? values()[0] : null;
      store.set({ against: first ? `${kind}:${first[0]}` : null });
      update(panel.context());
    }));
    const now = store.get().against?.split(":")[1] ?? "";
    valueBox.replaceChildren(kind ? choice(values(), now, value => {
      store.set({ against: `${kind}:${value}` });
      update(panel.context());
    }) : "–");
  }

  function update(next) {
    context = next;
    offer();
    const against = againstOf(store.get().against);
    if (!against) {
      shown = underway = "";
      newest(async () => {});
      words.textContent = kind && !values().length
        ? (kind === "run" ? NO_OTHER_RUN : "There is no other one.")
        : "Choose what to lay beside this tensor. Rows are compared: norm of the difference over norm of the row.";
      sides.hidden = true;
      chart.replaceChildren();
      return;
    }
    const { run, summary } = context;
    const url = address(`${tensorPath(run.id, summary.node)}/difference`, { ...passOf(summary), ...against });
    if (url === shown || url === underway) return;
    underway = url;
    newest(async signal => {
      try {
        words.textContent = "Comparing…";
        const found = await getJson(url, signal);
        describe(found);
        await beside(found, against, signal);
        if (against.against_run) await parting(against.against_run, signal);
        shown = url;
      } finally {
        if (underway === url) underway = "";
      }
    });
  }

  function describe(found) {
    const near = found.worst !== null && found.worst < TIGHT;
    words.textContent = found.equal
      ? "They are equal, bit for bit."
      : `Worst row: ${readable(found.worst, 3)} of its norm; largest difference of a number: ${readable(found.max_abs, 3)}.${near ? " So small that rounding explains it." : ""}`;
    rows(found.positions ?? found.by_position.map((_, at) => at), found.by_position);
  }

  /** Bars on a logarithmic scale from 1e-8 to 1. */
  function rows(positions, relative) {
    const most = 40;
    chart.replaceChildren(...positions.slice(0, most).map((position, at) => el("li", {},
      el("code", { text: visible(context.tokens[position]?.label ?? String(position)) }),
      el("span", { class: "where-at", text: `position ${position}` }),
      bar(relative[at] ? 1 + Math.log10(relative[at]) / 8 : 0),
      el("span", { class: "number", text: relative[at] === null ? "not finite" : readable(relative[at], 2) }),
    )));
    if (positions.length > most) chart.append(el("li", { text: `and ${positions.length - most} more` }));
  }

  /** The other tensor and the difference as heatmaps. */
  async function beside(found, against, signal) {
    const { run, summary, state, tokens, bounds, dark, inks } = context;
    const otherRun = against.against_run ?? run.id;
    const pass = { ...passOf(summary), view: against.against_view ?? summary.view, layer: against.against_layer ?? summary.layer, step: against.against_step ?? summary.step };
    if (pass.view !== "decode") pass.step = null;
    const theirs = await getJson(address(tensorPath(otherRun, summary.node), { ...pass, checks: "shape" }), signal);
    sides.hidden = false;
    maps ??= { other: createHeatmap(other, { failed }), gap: createHeatmap(gap, { failed }) };
    const hueOf = () => inks.soft;
    const colored = (scale, name) => ({ scale, palette: palette(scale.kind, dark), name, inks });
    maps.other.color(colored(createScale(bounds.kind, bounds.low, bounds.high), [bounds.kind, bounds.low, bounds.high, dark].join(" ")));
    maps.other.show(sceneOf({ run: otherRun, summary: theirs, state, index: indexOf(theirs, state), tokens, hueOf }));
    const reach = found.max_abs || 1;
    maps.gap.color(colored(createScale("diverging", -reach, reach), ["gap", reach, dark].join(" ")));
    const size = { ...summary, shape: found.shape, axes: found.axes };
    maps.gap.show(sceneOf({ run: run.id, summary: size, state: { ...state, part: partOf(summary, state) }, index: indexOf(size, state), tokens, hueOf, against }));
    gap.parentElement.querySelector("figcaption").textContent = `this minus the other, −${readable(reach, 2)} to ${readable(reach, 2)}`;
  }

  async function parting(id, signal) {
    const found = await getJson(`/api/runs/${context.run.id}/parting/${id}`, signal);
    words.textContent += ` ${found.sentence}`;
  }

  function agreement() {
    const { run, summary } = context;
    newest(async signal => {
      words.textContent = "Comparing every decode step with the full sequence…";
      sides.hidden = true;
      shown = "";
      const found = await getJson(address(`${tensorPath(run.id, summary.node)}/agreement`, { layer: summary.layer }), signal);
      words.textContent = found.worst === null
        ? "There is no position to compare."
        : `Prefill and ${run.steps} decode steps against the full sequence: worst row ${readable(found.worst, 2)} of its norm. ${found.worst < TIGHT ? "The cache gives what a pass without history gives, within rounding." : "More than rounding explains."}`;
      rows(found.positions, found.relative);
    });
  }

  if (root !== null) {
    publishedRuns().then(runs => {
      published = runs;
      if (context) update(context);
    }).catch(failed);
  }
  details.open ||= Boolean(againstOf(store.get().against));
  return { update };
}
