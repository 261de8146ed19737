// The controls of the panel: layer, step, other axes, rows and columns, colours. They show the store, and change it.

import { otherAxes } from "./look.js";
import { readable } from "./format.js";

/** `fit()` takes the range from what is shown; `steps()` is how many decode steps there are. */
export function createControls(section, store, { fit, steps }) {
  const el = name => section.querySelector(`[data-live="${name}"]`);
  const layers = Number(section.dataset.layers);
  let shown = { layer: 0, step: 1 };
  let built = "";

  const change = (name, listener) => el(name)?.addEventListener("input", event => listener(event.target.value));
  change("layer", value => store.set({ layer: Number(value) }));
  change("step", value => store.set({ step: Number(value) }));
  change("rows", value => store.set({ rows: value || null }));
  change("columns", value => store.set({ columns: value || null }));
  change("part", value => store.set({ part: value }));
  change("reduce", value => store.set({ reduce: value === "absmax" ? null : value }));
  change("scale", value => store.set({ scale: value || null, range: null }));
  change("range", value => {
    if (value === "fixed") store.set({ range: `${el("low").value}:${el("high").value}` });
    else store.set({ range: value === "robust" ? null : value });
  });
  for (const name of ["low", "high"]) {
    el(name)?.addEventListener("change", () => {
      const numbers = ["low", "high"].map(one => Number(el(one).value.replace("−", "-")));
      const good = numbers.every(Number.isFinite) && numbers[0] < numbers[1];
      el(name).setCustomValidity(good ? "" : "Two numbers, the smaller one first.");
      el(name).reportValidity();
      if (good) store.set({ range: numbers.join(":") });
    });
  }
  el("fit")?.addEventListener("click", fit);

  // The place bar's own steppers are links; here they change the panel in place.
  document.addEventListener("click", event => {
    const link = event.target instanceof Element ? event.target.closest("[data-stepper] [data-way]") : null;
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const { stepper } = link.closest("[data-stepper]").dataset;
    const now = store.get()[stepper] ?? shown[stepper]; // what was asked for last, shown already or not
    const next = now + (link.dataset.way === "up" ? 1 : -1);
    const [least, most] = stepper === "layer" ? [0, layers - 1] : [1, Math.max(1, steps())];
    if (next >= least && next <= most) store.set({ [stepper]: next });
  });

  /** Makes links of both ends of a stepper, so that its keys work wherever the panel stands. */
  function takeOver(bar, name, value, most) {
    if (!bar) return;
    bar.querySelector("[data-value]").textContent = String(value);
    const least = name === "layer" ? 0 : 1;
    for (const way of ["down", "up"]) {
      let link = bar.querySelector(`[data-way="${way}"], [data-${name}="${way}"]`);
      if (!link) {
        const end = bar.querySelector(".end");
        if (!end) continue;
        link = document.createElement("a");
        link.append(...end.childNodes);
        link.setAttribute("aria-label", `${way === "up" ? "Next" : "Previous"} ${name}`);
        end.replaceWith(link);
      }
      link.dataset.way = way;
      link.dataset.key = link.textContent.trim();
      link.dataset.keyLabel = link.getAttribute("aria-label");
      const query = new URLSearchParams(location.search);
      query.set(name, String(value + (way === "up" ? 1 : -1)));
      link.href = `${location.pathname}?${query}`;
      const ended = way === "up" ? value >= most : value <= least;
      link.classList.toggle("end", ended);
      link.setAttribute("aria-disabled", String(ended));
    }
  }

  const options = (select, names, chosen) => {
    if (!select) return;
    if ([...select.options].map(one => one.value).join() !== names.join()) {
      select.replaceChildren(...names.map(name => new Option(name || "none", name)));
    }
    select.value = chosen ?? "";
  };

  /** Sliders for the axes that are neither rows nor columns. */
  function others(summary, plane, index) {
    const axes = otherAxes(summary, plane);
    const wanted = axes.map(axis => `${axis.name}:${axis.size}`).join();
    const place = el("others");
    if (wanted !== built) {
      built = wanted;
      place.replaceChildren(...axes.map(axis => {
        const label = document.createElement("label");
        label.dataset.axis = axis.name;
        const slider = Object.assign(document.createElement("input"), { type: "range", min: "0", max: String(axis.size - 1) });
        slider.dataset.other = axis.name;
        label.append(`${axis.name} `, slider, " ", document.createElement("output"));
        return label;
      }));
    }
    for (const label of place.children) {
      const at = summary.axes.findIndex(axis => axis.name === label.dataset.axis);
      label.querySelector("input").value = String(index[at]);
      label.querySelector("output").textContent = String((summary.axes[at].first ?? 0) + index[at]);
    }
  }
  let current = null;
  el("others")?.addEventListener("input", event => {
    const name = event.target.dataset.other;
    const at = current.summary.axes.findIndex(axis => axis.name === name);
    const next = current.index.map((value, which) => (which === at ? Number(event.target.value) : value));
    const head = name.endsWith("_heads") ? next[at] : store.get().head;
    store.set({ cell: next.join(","), head });
  });

  return {
    setRun(run) {
      const slider = el("step");
      if (slider) slider.max = String(Math.max(1, run.steps));
    },
    /** Shows a tensor's place and axes. */
    update(summary, plane, index, run) {
      current = { summary, index };
      shown = { layer: summary.layer ?? 0, step: summary.step ?? 1 };
      for (const name of ["layer", "step"]) {
        const slider = el(name);
        if (!slider || summary[name] === null) continue;
        if (name === "step") slider.max = String(Math.max(1, run.steps));
        slider.value = String(summary[name]);
        el(`${name}-number`).textContent = name === "step" ? `${summary.step} of ${Math.max(1, run.steps)}` : String(summary.layer);
        takeOver(document.querySelector(`[data-stepper="${name}"]`), name, summary[name], name === "layer" ? layers - 1 : run.steps);
      }
      const names = summary.axes.map(axis => axis.name);
      options(el("rows"), plane.rows === null ? ["", ...names] : names, plane.rows);
      options(el("columns"), names, plane.columns);
      others(summary, plane, index);
      const complex = summary.dtype.startsWith("complex");
      el("part-label").hidden = !complex;
      if (complex) el("part").value = store.get().part ?? (summary.presentation.meaning === "rotations" ? "angle" : "real");
      el("reduce").value = store.get().reduce ?? "absmax";
      el("scale").value = store.get().scale ?? "";
    },
    showBounds(bounds) {
      el("range").value = bounds.mode;
      el("low").value = readable(bounds.low).replace("−", "-");
      el("high").value = readable(bounds.high).replace("−", "-");
    },
  };
}
