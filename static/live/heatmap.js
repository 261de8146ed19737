// A plane of a tensor on a canvas: only what is visible is fetched and painted, the chosen cell and pointed tokens are
// marked, and pointer, wheel, touch and keys move about. What the numbers mean is the panel's business.

import * as geometry from "./geometry.js";
import { drawColumns, drawRows, drawValues, gutters } from "./labels.js";
import { createTiles, painted } from "./tiles.js";
import { attachGestures } from "./gestures.js";

const PAINTING = 3; // milliseconds of a frame

/**
 * Handlers: pointed(place or null), chosen(place), windowed(window), failed(problem), shown(scene).
 * A place is {row, column, cell: {row, column, rows, columns}, exact}.
 *
 * A scene is {key, size: {rows, columns}, rowAxis, columnAxis, address(levels, tile), window?}, an axis {name, size,
 * first, token?(index), hue, newFrom?}.
 */
export function createHeatmap(canvas, handlers) {
  const context = canvas.getContext("2d");
  const tiles = createTiles({ arrived: () => later(), failed: problem => handlers.failed?.(problem) });
  let scene = null; // what is shown
  let coming = null; // what will be, as soon as its tiles are there
  let colors = null; // {scale, palette, name, inks}
  let marks = { chosen: null, rows: new Set(), columns: new Set() };
  let plot = { x: 0, y: 0, width: 1, height: 1 };
  let ratio = 1;
  let queued = 0;

  function later() {
    queued ||= requestAnimationFrame(() => {
      queued = 0;
      frame();
    });
  }

  const measured = one => {
    const room = gutters(context, one, canvas.clientWidth);
    return {
      x: room.left,
      y: room.top,
      width: Math.max(20, canvas.clientWidth - room.left - room.right),
      height: Math.max(8, canvas.clientHeight - room.top - room.bottom),
    };
  };

  /** Addresses of what a scene's window needs: its tiles, and those of the whole plane to stand behind them. */
  function needs(one, area) {
    const levels = geometry.levelsOf(one.window, one.size, area, ratio);
    const base = geometry.levelsOf(geometry.whole(one.size), one.size, area, ratio);
    const list = (at, window) =>
      geometry.tilesOf(window, one.size, at).map(tile => ({ levels: at, tile, url: one.address(at, tile) }));
    const near = list(levels, one.window);
    const same = levels.row === base.row && levels.column === base.column;
    return { near, far: same ? [] : list(base, geometry.whole(one.size)), levels };
  }

  function frame() {
    if (!canvas.clientWidth || !colors) return;
    ratio = Math.min(3, globalThis.devicePixelRatio || 1);
    const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    if (coming) {
      const wanted = needs(coming, measured(coming));
      tiles.want([...wanted.near, ...wanted.far].map(one => one.url));
      if (wanted.near.every(one => tiles.get(one.url))) {
        scene = coming;
        coming = null;
        handlers.shown?.(scene);
      }
    }
    if (!scene) return;
    plot = measured(scene);
    const wanted = needs(scene, plot);
    if (!coming) tiles.want([...wanted.near, ...wanted.far].map(one => one.url));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    drawPlane(wanted);
    drawMarks();
    const rows = new Set(marks.rows);
    const columns = new Set(marks.columns);
    if (marks.chosen) {
      rows.add(marks.chosen.row);
      columns.add(marks.chosen.column);
    }
    drawRows(context, scene, plot, { ...colors.inks, row: scene.rowAxis.hue, column: scene.columnAxis.hue }, rows);
    drawColumns(context, scene, plot, { ...colors.inks, row: scene.rowAxis.hue, column: scene.columnAxis.hue }, columns);
  }

  function drawPlane({ near, far, levels }) {
    context.save();
    context.beginPath();
    context.rect(plot.x, plot.y, plot.width, plot.height);
    context.clip();
    context.imageSmoothingEnabled = false;
    const begun = performance.now();
    let late = false; // a frame paints for so long at most; other tiles wait for the next one
    for (const { levels: at, tile, url } of [...far, ...near]) {
      const found = tiles.get(url);
      if (!found) continue;
      const [down, across] = [2 ** at.row, 2 ** at.column];
      const place = geometry.placeIn(
        scene.window, plot, tile.row * geometry.TILE * down, tile.column * geometry.TILE * across,
        found.rows * down, found.columns * across,
      );
      const fresh = found.paintedFor === colors.name;
      late ||= !fresh && performance.now() - begun > PAINTING;
      const picture = painted(found, colors.scale, colors.palette, colors.name, !late);
      if (picture) context.drawImage(picture, plot.x + place.x, plot.y + place.y, place.width, place.height);
    }
    if (late) later();
    // Past the last element of a ragged cell there is nothing.
    const end = geometry.placeIn(scene.window, plot, scene.size.rows, scene.size.columns);
    context.clearRect(plot.x, plot.y + end.y, plot.width, plot.height);
    context.clearRect(plot.x + end.x, plot.y, plot.width, plot.height);
    if (levels.row === 0 && levels.column === 0) {
      drawValues(context, scene, plot, colors.scale, { ...colors.palette, ink: colors.inks.ink }, valueAt);
    }
    context.restore();
  }

  function drawMarks() {
    context.save();
    context.beginPath();
    context.rect(plot.x - 4, plot.y - 2, plot.width + 6, plot.height + 6);
    context.clip();
    const { newFrom } = scene.rowAxis;
    if (newFrom !== undefined && newFrom < scene.size.rows) {
      const fresh = geometry.placeIn(scene.window, plot, newFrom, 0, scene.size.rows - newFrom, 1);
      context.fillStyle = colors.inks.accent;
      context.fillRect(plot.x - 4, plot.y + fresh.y, 3, fresh.height);
    }
    context.fillStyle = colors.inks.wash;
    for (const row of marks.rows) {
      const band = geometry.placeIn(scene.window, plot, row, 0);
      context.fillRect(plot.x, plot.y + band.y, plot.width, Math.max(2, band.height));
    }
    for (const column of marks.columns) {
      const band = geometry.placeIn(scene.window, plot, 0, column);
      context.fillRect(plot.x + band.x, plot.y, Math.max(2, band.width), plot.height);
    }
    if (marks.chosen) {
      const cell = geometry.placeIn(scene.window, plot, marks.chosen.row, marks.chosen.column);
      const grown = { x: cell.width < 7 ? (7 - cell.width) / 2 : 0, y: cell.height < 7 ? (7 - cell.height) / 2 : 0 };
      const box = [plot.x + cell.x - grown.x, plot.y + cell.y - grown.y, cell.width + 2 * grown.x, cell.height + 2 * grown.y];
      context.lineWidth = 4;
      context.strokeStyle = colors.inks.ground;
      context.strokeRect(...box);
      context.lineWidth = 2;
      context.strokeStyle = colors.inks.accent;
      context.strokeRect(...box);
    }
    context.restore();
  }

  /** The value of an element, if the tile that holds it at the bottom is here: {value, flag}. Null while another scene comes. */
  function valueAt(row, column) {
    if (!scene || (coming && coming.key !== scene.key)) return null;
    const tile = { row: Math.floor(row / geometry.TILE), column: Math.floor(column / geometry.TILE) };
    return read({ row: 0, column: 0 }, tile, row % geometry.TILE, column % geometry.TILE);
  }

  function read(levels, tile, row, column) {
    const found = tiles.get(scene.address(levels, tile));
    if (!found) return null;
    const at = row * found.columns + column;
    return { value: found.values[at], flag: found.flags[at] };
  }

  /** What lies at a point of the canvas: the element, the cell drawn there and its value; null beside the plane. */
  function placeAt(x, y) {
    if (!scene) return null;
    const element = geometry.elementAt(scene.window, scene.size, plot, x - plot.x, y - plot.y);
    if (!element) return null;
    const levels = geometry.levelsOf(scene.window, scene.size, plot, ratio);
    const cell = geometry.cellOver(element, scene.size, levels);
    const inTile = [cell.row / 2 ** levels.row, cell.column / 2 ** levels.column];
    const tile = { row: Math.floor(inTile[0] / geometry.TILE), column: Math.floor(inTile[1] / geometry.TILE) };
    const found = read(levels, tile, inTile[0] % geometry.TILE, inTile[1] % geometry.TILE);
    return { ...element, cell, exact: levels.row === 0 && levels.column === 0, ...found };
  }

  function move(window) {
    if (!scene) return;
    scene.window = window;
    if (coming && coming.size.rows === scene.size.rows && coming.size.columns === scene.size.columns) coming.window = window;
    later();
    handlers.windowed?.(window);
  }

  const view = {
    placeAt,
    pan: (dx, dy) => move(geometry.panned(scene.window, scene.size, plot, dx, dy)),
    zoom: (factor, x = plot.x + plot.width / 2, y = plot.y + plot.height / 2) =>
      scene && move(geometry.zoomed(scene.window, scene.size, plot, factor, x - plot.x, y - plot.y)),
    whole: () => scene && move(geometry.whole(scene.size)),
    closest: (row, column) => scene && move(geometry.closest(scene.size, plot, row, column)),
    isWhole: () => !scene || (scene.window.rows >= scene.size.rows && scene.window.columns >= scene.size.columns),
  };
  attachGestures(canvas, view, handlers);
  const sizes = new ResizeObserver(later);
  sizes.observe(canvas);

  return {
    ...view,
    valueAt,
    /** Shows another scene as soon as its tiles are there; the window stays where the sizes are the same. */
    show(next) {
      const last = coming ?? scene;
      const alike = last && last.size.rows === next.size.rows && last.size.columns === next.size.columns;
      const window = next.window ?? (alike ? last.window : geometry.whole(next.size));
      coming = { ...next, window: geometry.inside(window, next.size, measured(next)) };
      tiles.forgive();
      later();
    },
    /** Colours: {scale, palette, name, inks: {ink, ground, accent, wash}}. */
    color(next) {
      colors = next;
      later();
    },
    /** Marks: {chosen: {row, column} or null, rows: [..], columns: [..]}. */
    mark({ chosen = null, rows = [], columns = [] }) {
      marks = { chosen, rows: new Set(rows), columns: new Set(columns) };
      later();
    },
    /** Brings an element into the window. */
    reveal(row, column) {
      if (!scene) return;
      const { window } = scene;
      const next = geometry.showing(window, scene.size, plot, row, column);
      if (next.row !== window.row || next.column !== window.column) move(next);
    },
    /** The scene that is shown, or null. */
    scene: () => scene,
    tilesKept: () => tiles.size,
    redraw: later,
    close() {
      sizes.disconnect();
      tiles.clear();
    },
  };
}
