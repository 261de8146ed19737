// The tensor part of the live panel: one tensor of one run, its statistics, plane, legend and chosen cell.
//
// Owns what is loaded and what is shown. What the reader has chosen is in the store; runs and errors are main.js's.

import { address, getJson } from "./api.js";
import { createCell } from "./cell.js";
import { createScale, palette } from "./color.js";
import { createControls } from "./controls.js";
import { createHeatmap } from "./heatmap.js";
import { createHover } from "./hover.js";
import { attachKeys } from "./keyboard.js";
import { drawLegend, histogramFor, legendWords } from "./legend.js";
import { boundsOf, headOf, indexOf, onPlane, partOf, planeAxes, sceneOf, tensorPath, withPlace } from "./look.js";
import { forgetChecks, showChecks, showShape, showStats } from "./facts.js";

const STILL = 350; // milliseconds without a change before what takes longer is asked for
const SLOW = 700; // milliseconds of waiting before the page says so

/** `mayLoad()` says whether the run has come so far, `failed(problem)` hears what went wrong, `loaded()` what is shown. */
export function createPanel({ section, store, colors, strip, mayLoad, failed, loaded }) {
  const el = name => section.querySelector(`[data-live="${name}"]`);
  const canvas = section.querySelector("canvas[data-tensor]");
  const output = section.querySelector("output[data-cell]");
  const { node, view } = section.dataset;
  const followers = [];
  let run = null;
  let summary = null;
  let index = [];
  let bounds = null;
  let held = null; // the range as the address says it, where it was kept from another layer or step
  let loading = null;
  let still = 0;
  let resting = 0;
  let slow = 0;

  const heatmap = createHeatmap(canvas, {
    pointed: place => hover.point(place),
    chosen: choose,
    failed,
    shown: () => legend(),
    windowed: remember,
  });
  const cell = createCell(output, failed);
  const hover = createHover(el("readout"), {
    context: () => ({ run: run.id, summary, state: store.get(), index, tokens: run.tokens, plane: plane() }),
    pointed: positions => strip.mark({ ...marks(), pointed: positions }),
    value: value => legend(value),
  });
  const controls = createControls(section, store, { fit, steps: () => run?.steps ?? 0 });
  attachKeys(canvas, {
    at: () => (summary ? { ...onPlane(summary, index, plane()), ...sizes() } : null),
    go: (row, column) => pin(withPlace(summary, index, plane(), row, column)),
    view: heatmap,
  });
  section.querySelector(".plane-buttons")?.addEventListener("click", event => {
    const way = event.target.closest("[data-zoom]")?.dataset.zoom;
    if (way === "in") heatmap.zoom(2);
    if (way === "out") heatmap.zoom(0.5);
    if (way === "whole") heatmap.whole();
    canvas.classList.toggle("zoomed", !heatmap.isWhole());
  });
  colors.changed(recolor);
  new ResizeObserver(() => legend()).observe(el("legend"));

  const plane = () => planeAxes(summary, store.get());
  const sizes = () => scene(summary).size;

  store.listen((_, changed) => {
    if (!run) return;
    if (["layer", "step", "run"].some(name => changed.has(name))) {
      if (mayLoad()) load();
    } else if (!summary) return;
    else if (["cell", "head"].some(name => changed.has(name))) place(changed.has("head") && !changed.has("cell"));
    if (["scale", "range", "part"].some(name => changed.has(name))) fit();
    if (["rows", "columns", "reduce", "part"].some(name => changed.has(name))) place(true);
  });

  /** Asks for the tensor that the store names; what was asked before is dropped. */
  async function load() {
    clearTimeout(still);
    loading?.abort();
    loading = new AbortController();
    const { signal } = loading;
    const { layer, step } = store.get();
    section.dataset.state = "loading";
    clearTimeout(slow);
    slow = setTimeout(() => { el("shape").textContent = "Computing…"; }, SLOW);
    if (summary?.node === node && summary.run === run.id && summary.layer !== null && layer !== null && view !== "decode") {
      heatmap.show(scene({ ...summary, layer })); // its tiles come while the summary does
    }
    try {
      const query = { view, layer, step: view === "decode" ? step : null, rank: section.dataset.rank, checks: "shape" };
      take({ ...(await getJson(address(tensorPath(run.id, node), query), signal)), run: run.id });
    } catch (error) {
      if (error.name === "AbortError") return;
      clearTimeout(slow);
      el("shape").textContent = "\u00a0";
      section.dataset.state = "failed";
      failed(error);
    }
  }

  function take(next) {
    clearTimeout(slow);
    const first = summary === null || summary.node !== next.node || summary.dtype !== next.dtype;
    summary = next;
    if (first) bounds = boundsOf(summary, store.get().scale, store.get().range, partOf(summary, store.get()));
    keepRange();
    showStats(section, summary);
    showShape(section, summary);
    controls.update(summary, plane(), indexOf(summary, store.get()), run);
    recolor();
    place(true);
    section.dataset.state = "ready";
    Object.assign(section.dataset, { shownLayer: summary.layer ?? "", shownStep: summary.step ?? "", shownRun: run.id });
    loaded(summary);
    forgetChecks(el("checks"));
    still = setTimeout(verify, STILL);
    for (const follower of followers) follower(context());
  }

  /** The range stays when layer or step change; the address then says it in numbers, so that it restores the picture. */
  function keepRange() {
    const fresh = boundsOf(summary, store.get().scale, store.get().range, partOf(summary, store.get()));
    const same = fresh.low === bounds.low && fresh.high === bounds.high;
    held = same ? null : [bounds.low, bounds.high].map(value => value.toPrecision(4)).join(":");
    store.touch();
  }

  async function verify() {
    if (!summary) return;
    const { layer, step, node: path } = summary;
    const asked = run.id;
    try {
      const query = { view: summary.view, layer, step, rank: section.dataset.rank };
      const whole = await getJson(address(tensorPath(asked, path), query), loading.signal);
      if (whole.layer === summary.layer && whole.step === summary.step && asked === run.id) showChecks(el("checks"), whole.checks);
    } catch (error) {
      if (error.name !== "AbortError") failed(error);
    }
  }

  const scene = one =>
    sceneOf({ run: run.id, summary: one, state: store.get(), index: indexOf(one, store.get()), tokens: run.tokens, hueOf: colors.hueOf, newFrom: newFrom(one) });

  /** The address holds the window, once it has come to rest. */
  function remember(window) {
    clearTimeout(resting);
    resting = setTimeout(() => {
      const numbers = [window.row, window.column, window.rows, window.columns].map(one => Math.round(one * 10) / 10);
      store.set({ zoom: heatmap.isWhole() ? null : numbers.join(",") });
    }, STILL);
  }

  function windowOf(state) {
    const numbers = (state.zoom ?? "").split(",").map(Number);
    if (numbers.length !== 4 || !numbers.every(Number.isFinite)) return undefined;
    const [row, column, rows, columns] = numbers;
    return { row, column, rows, columns };
  }

  /** Where the rows of this step begin in a cache, for the mark beside them. */
  function newFrom(one) {
    const keys = one.axes.find(axis => axis.name === "keys");
    if (one.presentation.meaning !== "cache" || !keys) return undefined;
    return view === "decode" ? keys.size - 1 : 0;
  }

  /** Shows index and plane as the store has them. */
  function place(anew) {
    index = indexOf(summary, store.get());
    if (anew) heatmap.show({ ...scene(summary), window: heatmap.scene() ? undefined : windowOf(store.get()) });
    const { row, column } = onPlane(summary, index, plane());
    heatmap.mark({ chosen: { row, column } });
    strip.mark(marks());
    controls.update(summary, plane(), index, run);
    const local = anew ? null : heatmap.valueAt(row, column);
    cell.set({ run: run.id, summary, state: store.get(), index, tokens: run.tokens, along: plane().columns, local });
    if (section.dataset.state === "ready") for (const follower of followers) follower(context());
  }

  /** Pins a cell: the address holds it. */
  function pin(next) {
    store.set({ cell: next.join(","), head: headOf(summary, next) ?? store.get().head });
    const { row, column } = onPlane(summary, next, plane());
    heatmap.reveal(row, column);
  }

  /** A click: the element itself, or the one that a reduced cell stands for. */
  async function choose({ row, column, exact, cell: over }) {
    const here = withPlace(summary, index, plane(), row, column);
    const reduce = store.get().reduce ?? "absmax";
    if (exact || reduce === "mean") {
      pin(here);
      return;
    }
    try {
      const found = await getJson(hover.addressOf(over, reduce), loading.signal);
      pin(found.index);
    } catch (error) {
      if (error.name !== "AbortError") failed(error);
    }
  }

  function marks() {
    if (!summary) return {};
    const positional = summary.axes.flatMap((axis, at) => (axis.first === null ? [] : [axis.first + index[at]]));
    const computed = summary.axes.find(axis => axis.name === "positions" || axis.name === "queries");
    return { chosen: positional, computed: computed ? [computed.first, computed.first + computed.size - 1] : null };
  }

  function recolor() {
    if (!bounds || !summary) return;
    const { dark } = colors;
    const scale = createScale(bounds.kind, bounds.low, bounds.high);
    const name = [bounds.kind, bounds.low, bounds.high, dark].join(" ");
    heatmap.color({ scale, palette: palette(bounds.kind, dark), name, inks: colors.inks() });
    if (heatmap.scene()) heatmap.show(scene(summary)); // hues of the axes
    legend();
    controls.showBounds(bounds);
  }

  function legend(pointed = null) {
    if (!bounds || !summary) return;
    const scale = createScale(bounds.kind, bounds.low, bounds.high);
    const whole = [null, "real"].includes(partOf(summary, store.get()));
    const histogram = whole ? histogramFor(summary, scale, bounds.mode) : null; // statistics are over both parts
    drawLegend(el("legend"), { scale, palette: palette(bounds.kind, colors.dark), histogram, inks: colors.inks(), pointed });
    el("legend-text").textContent = legendWords(scale, bounds.mode, summary.stats);
  }

  /** Takes the range from the tensor that is shown. */
  function fit() {
    if (!summary) return;
    bounds = boundsOf(summary, store.get().scale, store.get().range, partOf(summary, store.get()));
    held = null;
    store.touch();
    recolor();
  }

  function context() {
    return { run, summary, state: store.get(), index, plane: plane(), tokens: run.tokens, bounds, inks: colors.inks(), dark: colors.dark };
  }

  return {
    heatmap,
    pin,
    load,
    context: () => (summary ? context() : null),
    /** The scene of what is loaded; the heatmap shows it as soon as its tiles are there. */
    scene: () => (summary ? scene(summary) : null),
    /** What the address must say beyond the store: the range that was kept. */
    kept: () => ({ range: held }),
    /** `follower(context)` hears of every tensor and cell that is shown. */
    follow(follower) {
      followers.push(follower);
      if (summary) follower(context());
    },
    setRun(next) {
      const other = run?.id !== next.id;
      run = next;
      if (other && summary !== null) section.dataset.state = "waiting"; // what is shown is the run before
      if (other) {
        loading?.abort(); // what was asked of the run before
        clearTimeout(still);
        summary = null;
      }
      controls.setRun(run);
    },
    /** A token was pointed at: its row and column are marked. */
    pointToken(position) {
      if (!summary) return;
      const at = name => summary.axes.find(axis => axis.name === name);
      const mark = name => {
        const axis = name === null ? null : at(name);
        if (!axis || axis.first === null || position === null) return [];
        const place = position - axis.first;
        return place >= 0 && place < axis.size ? [place] : [];
      };
      const { row, column } = onPlane(summary, index, plane());
      heatmap.mark({ chosen: { row, column }, rows: mark(plane().rows), columns: mark(plane().columns) });
    },
    /** A token was chosen: the cell moves to its row, or to its column where the row cannot. */
    chooseToken(position) {
      if (!summary) return;
      const names = [plane().rows, plane().columns, ...summary.axes.map(axis => axis.name)];
      for (const name of names) {
        const at = summary.axes.findIndex(axis => axis.name === name);
        const axis = summary.axes[at];
        const place = position - (axis?.first ?? 0);
        if (!axis || axis.first === null || axis.size < 2 || place < 0 || place >= axis.size) continue;
        pin(index.map((value, which) => (which === at ? place : value)));
        return;
      }
    },
  };
}
