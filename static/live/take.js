// Take it away: files, the picture, the link, and a few lines of Python that load exactly this tensor.

import { root } from "../address.js";
import { address, request } from "./api.js";
import { el, latest } from "./build.js";
import { bytes } from "./format.js";
import { passOf, sliceOf, tensorPath } from "./look.js";
import { drawLegend, histogramFor } from "./legend.js";
import { createScale, palette } from "./color.js";

const CSV_MOST = 1_000_000;

/** The lines that load a tensor: from this server, or from the files of a published site. */
async function linesFor(url, run, summary) {
  const axes = summary.axes.map(axis => axis.name).join(", ");
  const said = `print(tensor.shape, tensor.dtype)  # [${summary.shape.join(", ")}]: ${axes}`;
  if (root !== null) {
    const [{ recordedSnippet }, { openTensor }] = await Promise.all([import("./recorded/snippet.js"), import("./recorded/files.js")]);
    return recordedSnippet(await openTensor(run.id, summary.node, summary.view, summary.layer, summary.step), said);
  }
  return [
    "import io",
    "import urllib.request",
    "",
    "import numpy as np",
    "",
    `url = "${url}"`,
    "tensor = np.load(io.BytesIO(urllib.request.urlopen(url).read()))",
    said,
  ].join("\n");
}

const fileName = (summary, format) => [
  summary.model, summary.node.replaceAll("/", "."), summary.view, summary.layer !== null && `layer${summary.layer}`, summary.step !== null && `step${summary.step}`,
].filter(Boolean).join("_") + `.${format}`;

/** Saves what an address of the API gives: a published site has no server that names it a file. */
async function save(url, name) {
  const answer = await request(url);
  if (!answer.ok) throw new Error((await answer.json()).detail);
  const link = el("a", { href: URL.createObjectURL(await answer.blob()), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

export function create({ place, failed }) {
  const newest = latest(failed);
  const files = el("p", { class: "files" });
  const code = el("pre", { class: "snippet", tabindex: "0" });
  const said = el("p", { class: "about", role: "status", text: "\u00a0" });
  const copy = async (text, what) => {
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = `${what} copied.`;
    } catch {
      said.textContent = "The browser does not allow copying here; select the text instead.";
    }
  };
  const button = (text, act) => el("button", { type: "button", text, onclick: act });
  place.append(
    files,
    el("p", { class: "acts" }, button("Picture as PNG", () => picture()), button("Copy the link", () => copy(location.href, "The link")),
      button("Copy the Python lines", () => copy(code.textContent, "The lines"))),
    said, code,
  );
  let context = null;

  function picture() {
    const { summary, bounds, dark, inks, run } = context;
    const heatmap = place.closest("#live").querySelector("canvas[data-tensor]");
    const ratio = heatmap.width / heatmap.clientWidth;
    const [width, height] = [heatmap.clientWidth + 32, heatmap.clientHeight + 140];
    const canvas = el("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = inks.ground;
    pen.fillRect(0, 0, width, height);
    pen.fillStyle = inks.ink;
    pen.font = "600 15px system-ui, sans-serif";
    pen.fillText(`${summary.node}, ${summary.model}`, 16, 26);
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = inks.soft;
    const where = [summary.view, summary.step && `step ${summary.step}`, summary.layer !== null && `layer ${summary.layer}`];
    pen.fillText([...where.filter(Boolean), `[${summary.shape.join(", ")}]`, `run ${run.id}`].join(" · "), 16, 44);
    pen.drawImage(heatmap, 16, 54, heatmap.clientWidth, heatmap.clientHeight);
    const scale = createScale(bounds.kind, bounds.low, bounds.high);
    const legend = el("canvas", { class: "legend" });
    legend.style.width = `${heatmap.clientWidth}px`;
    place.append(legend);
    drawLegend(legend, { scale, palette: palette(bounds.kind, dark), histogram: histogramFor(summary, scale, bounds.mode), inks });
    pen.drawImage(legend, 16, heatmap.clientHeight + 62, legend.clientWidth, legend.clientHeight);
    legend.remove();
    canvas.toBlob(blob => {
      const link = el("a", { href: URL.createObjectURL(blob), download: `${summary.node.replaceAll("/", ".")}.png` });
      link.click();
      URL.revokeObjectURL(link.href);
      said.textContent = "The picture was saved.";
    }, "image/png");
  }

  return {
    update(next) {
      context = next;
      const { run, summary, index, plane } = next;
      const path = `${tensorPath(run.id, summary.node)}/data`;
      const file = (format, slice) => address(path, { ...passOf(summary), format, slice });
      const size = summary.stats.count * (summary.dtype.includes("64") ? 8 : 4);
      const shown = sliceOf(summary, index, [plane.rows, plane.columns].filter(Boolean));
      const cells = summary.axes.filter(axis => axis.name === plane.rows || axis.name === plane.columns).reduce((all, axis) => all * axis.size, 1);
      const made = (text, href) => el("a", { href: "#take", role: "button", text, onclick: event => {
        event.preventDefault();
        save(href, fileName(summary, text.slice(1))).catch(error => { said.textContent = error.message; });
      } });
      const link = (text, href) => (root === null ? el("a", { href, download: true, text }) : made(text, href));
      files.replaceChildren(
        `All of it (${bytes(size)}): `, link(".npy", file("npy")), " ", link(".safetensors", file("safetensors")),
        ...(summary.stats.count <= CSV_MOST ? [" ", link(".csv", file("csv"))] : []),
        ". The plane shown: ", link(".npy", file("npy", shown)), ...(cells <= CSV_MOST ? [" ", link(".csv", file("csv", shown))] : []),
        summary.stats.count > CSV_MOST ? ". CSV is given for up to a million numbers." : ".",
      );
      newest(async () => {
        const lines = await linesFor(new URL(file("npy"), location.href).href, run, summary);
        if (context === next) code.textContent = lines;
      });
    },
  };
}
