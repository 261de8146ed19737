// Tiles of a plane: fetched when they are wanted, kept up to a number, painted when they are drawn.

import { getNumbers } from "./api.js";
import { paint } from "./color.js";

const KEPT = 96; // tiles: at most 96 x (256 x 256) numbers with their flags and pixels, about 55 MB
const AT_ONCE = 6;

/** `arrived()` is called when a tile is there, `failed(problem, address)` when one cannot be had. */
export function createTiles({ arrived, failed }) {
  const kept = new Map(); // address -> tile, the one used last at the end
  const asked = new Map(); // address -> AbortController
  const refused = new Set();
  let line = [];

  function fetchNext() {
    while (asked.size < AT_ONCE && line.length) load(line.shift());
  }

  async function load(url) {
    const controller = new AbortController();
    asked.set(url, controller);
    try {
      const { shape, dtype, values, flags } = await getNumbers(url, controller.signal);
      kept.set(url, { rows: shape[0], columns: shape[1], dtype, values, flags, canvas: null, paintedFor: null });
      for (const old of kept.keys()) {
        if (kept.size <= KEPT) break;
        kept.delete(old);
      }
      arrived();
    } catch (error) {
      if (error.name !== "AbortError") {
        refused.add(url);
        failed(error, url);
      }
    } finally {
      asked.delete(url);
      fetchNext();
    }
  }

  return {
    /** A tile, or null while it is not there. */
    get(url) {
      const tile = kept.get(url);
      if (!tile) return null;
      kept.delete(url);
      kept.set(url, tile);
      return tile;
    },
    /** Exactly these are wanted now, the first ones first; what was asked and is not wanted any more is dropped. */
    want(urls) {
      const wanted = new Set(urls);
      for (const [url, controller] of asked) if (!wanted.has(url)) controller.abort();
      line = urls.filter(url => !kept.has(url) && !asked.has(url) && !refused.has(url));
      fetchNext();
    },
    /** What could not be had may be asked for again. */
    forgive: () => refused.clear(),
    get size() {
      return kept.size;
    },
    clear() {
      line = [];
      for (const controller of asked.values()) controller.abort();
      kept.clear();
      refused.clear();
    },
  };
}

/**
 * The tile as a canvas in the given colours; painted again only when they have changed. `name` names them. Without
 * `may` it is not painted now, and comes as it was before, or null.
 */
export function painted(tile, scale, colors, name, may) {
  if (tile.paintedFor === name || !may) return tile.canvas;
  tile.canvas ??= Object.assign(document.createElement("canvas"), { width: tile.columns, height: tile.rows });
  const context = tile.canvas.getContext("2d");
  const image = context.createImageData(tile.columns, tile.rows);
  paint(tile.values, tile.flags, scale, colors, new Int32Array(image.data.buffer));
  context.putImageData(image, 0, 0);
  tile.paintedFor = name;
  return tile.canvas;
}
