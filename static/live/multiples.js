// Small multiples: the plane at every index of the largest axis beside it, all heads at once for one.

import { address, getNumbers } from "./api.js";
import { createScale, palette } from "./color.js";
import { latest } from "./build.js";
import { partOf, passOf, sliceOf, tensorPath } from "./look.js";
import { multiplesAxis } from "./panels.js";
import { planesOf, thumb } from "./thumbs.js";

export function create({ place, panel, failed }) {
  place.classList.add("thumbs");
  const newest = latest(failed);
  let shown = "";
  let stack = null;

  function draw({ summary, index, bounds, dark }, axis) {
    const at = summary.axes.findIndex(one => one.name === axis.name);
    const scale = createScale(bounds.kind, bounds.low, bounds.high);
    const colors = palette(bounds.kind, dark);
    place.replaceChildren(...planesOf(stack).map((data, which) => thumb({
      label: `${axis.name} ${(axis.first ?? 0) + which}`,
      caption: String((axis.first ?? 0) + which),
      chosen: index[at] === which,
      data, scale, colors,
      onChoose: () => panel.pin(panel.context().index.map((value, one) => (one === at ? which : value))),
    })));
  }

  return {
    update(context) {
      const { run, summary, state, index, plane } = context;
      const axis = multiplesAxis(summary, plane);
      if (!axis) return;
      const names = [axis.name, plane.rows, plane.columns].filter(Boolean);
      const at = name => summary.axes.findIndex(one => one.name === name);
      const query = {
        ...passOf(summary),
        slice: sliceOf(summary, index, names),
        over: axis.name,
        side: 40,
        transpose: plane.rows !== null && at(plane.rows) > at(plane.columns) ? "true" : null,
        reduce: state.reduce,
        part: partOf(summary, state),
      };
      const url = address(`${tensorPath(run.id, summary.node)}/thumbnails`, query);
      newest(async signal => {
        if (url !== shown) {
          stack = await getNumbers(url, signal);
          shown = url;
        }
        const held = document.activeElement?.closest?.(".mini") ? [...place.children].indexOf(document.activeElement) : -1;
        draw(context, axis);
        if (held >= 0) place.children[held]?.focus();
      });
    },
  };
}
