// RoPE: the angle of every pair at the chosen position, as dials; how fast each turns is read off position 1.

import { address, getNumbers } from "./api.js";
import { el, latest } from "./build.js";
import { readable, visible } from "./format.js";
import { passOf, tensorPath } from "./look.js";

const SVG = "http://www.w3.org/2000/svg";

function dial(angle) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "-12 -12 24 24");
  svg.setAttribute("aria-hidden", "true");
  const circle = document.createElementNS(SVG, "circle");
  circle.setAttribute("r", "11");
  const hand = document.createElementNS(SVG, "line");
  hand.setAttribute("x2", String(10 * Math.cos(angle)));
  hand.setAttribute("y2", String(-10 * Math.sin(angle)));
  svg.append(circle, hand);
  return svg;
}

export function create({ place, panel, failed }) {
  const newest = latest(failed);
  const about = el("p", { class: "about" });
  const dials = el("ol", { class: "dials", "aria-label": "Angle of each pair" });
  place.append(about, dials);
  let speeds = { of: "", values: null };

  const angles = (run, summary, row, pass, signal) => getNumbers(
    address(`${tensorPath(run.id, summary.node)}/tile`, { ...pass, slice: `${row},:`, part: "angle" }), signal,
  );

  return {
    update({ run, summary, index, tokens }) {
      const [positions] = summary.axes;
      const position = positions.first + index[0];
      newest(async signal => {
        const { values } = await angles(run, summary, index[0], passOf(summary), signal);
        if (speeds.of !== run.id && run.prompt_length > 1) {
          const second = await angles(run, summary, 1, { view: "prefill" }, signal);
          speeds = { of: run.id, values: second.values };
        }
        about.replaceChildren(
          `Position ${position}`, tokens[position] ? ` (${visible(tokens[position].label)})` : "",
          ": each pair of features of a query and of a key is turned by its angle, which grows with the position. ",
          "Fast pairs tell neighbours apart, slow ones tell far from near.",
        );
        dials.replaceChildren(...Array.from(values, (angle, pair) => {
          const speed = speeds.of === run.id ? Math.abs(speeds.values[pair]) : 0;
          const turn = speed ? `, once around in ${readable((2 * Math.PI) / speed, 3)} positions` : "";
          return el("li", {}, el("button", {
            type: "button", title: `pair ${pair}: ${readable(angle)} rad${turn}`, "aria-label": `pair ${pair}: ${readable(angle)} radians${turn}`,
            onclick: () => panel.pin([index[0], pair]),
          }, dial(angle), el("span", { text: String(pair) })));
        }));
      });
    },
  };
}
