// The window on a plane: pure functions from sizes to windows, levels, tiles and pixels. Knows no canvas and no data.
//
// A window is {row, column, rows, columns}, in elements, fractions allowed. A plot is {width, height} in CSS pixels.

export const TILE = 256;
const MOST = { width: 64, height: 26 }; // CSS pixels of one element, zoomed in as far as it goes

/** All of a plane. */
export function whole(size) {
  return { row: 0, column: 0, rows: size.rows, columns: size.columns };
}

/** The smallest window: elements are not drawn larger than MOST, but for planes of a few. */
function smallest(size, plot) {
  return {
    rows: Math.min(size.rows, Math.max(1, plot.height / MOST.height)),
    columns: Math.min(size.columns, Math.max(1, plot.width / MOST.width)),
  };
}

/** A window that lies inside the plane. */
export function inside(window, size, plot) {
  const least = smallest(size, plot);
  const rows = clamp(window.rows, least.rows, size.rows);
  const columns = clamp(window.columns, least.columns, size.columns);
  return {
    rows,
    columns,
    row: clamp(window.row, 0, size.rows - rows),
    column: clamp(window.column, 0, size.columns - columns),
  };
}

/** Zoomed by a factor (above 1: in) about a point of the plot, which stays where it is. */
export function zoomed(window, size, plot, factor, x, y) {
  const atRow = window.row + (y / plot.height) * window.rows;
  const atColumn = window.column + (x / plot.width) * window.columns;
  const least = smallest(size, plot);
  const rows = clamp(window.rows / factor, least.rows, size.rows);
  const columns = clamp(window.columns / factor, least.columns, size.columns);
  return inside(
    { rows, columns, row: atRow - (y / plot.height) * rows, column: atColumn - (x / plot.width) * columns }, size, plot,
  );
}

/** Moved by CSS pixels. */
export function panned(window, size, plot, dx, dy) {
  return inside(
    {
      ...window,
      row: window.row - (dy / plot.height) * window.rows,
      column: window.column - (dx / plot.width) * window.columns,
    },
    size, plot,
  );
}

/** Moved just so far that an element is in it, with a margin. */
export function showing(window, size, plot, row, column) {
  const next = { ...window };
  if (row < window.row) next.row = row - 0.5;
  if (row + 1 > window.row + window.rows) next.row = row + 1.5 - window.rows;
  if (column < window.column) next.column = column - 0.5;
  if (column + 1 > window.column + window.columns) next.column = column + 1.5 - window.columns;
  return inside(next, size, plot);
}

/** Zoomed in all the way on an element. */
export function closest(size, plot, row, column) {
  const least = smallest(size, plot);
  return inside(
    { ...least, row: row + 0.5 - least.rows / 2, column: column + 0.5 - least.columns / 2 }, size, plot,
  );
}

/** The level of each direction: cells are at least one device pixel, so none is left out when drawn. */
export function levelsOf(window, size, plot, ratio) {
  const level = (elements, pixels, most) => {
    const wanted = Math.ceil(Math.log2(Math.max(1, elements / Math.max(1, pixels * ratio))) - 1e-9);
    return Math.min(Math.max(0, wanted), topLevel(most));
  };
  return { row: level(window.rows, plot.height, size.rows), column: level(window.columns, plot.width, size.columns) };
}

/** The level at which one cell holds a whole axis. */
export function topLevel(elements) {
  return elements <= 1 ? 0 : Math.ceil(Math.log2(elements));
}

/** The tiles that a window needs: [{row, column}], from the middle outwards. */
export function tilesOf(window, size, levels) {
  const range = (start, length, level, most) => {
    const span = TILE * 2 ** level;
    const last = Math.floor((most - 1) / span);
    return [clamp(Math.floor(start / span), 0, last), clamp(Math.ceil((start + length) / span) - 1, 0, last)];
  };
  const [top, bottom] = range(window.row, window.rows, levels.row, size.rows);
  const [left, right] = range(window.column, window.columns, levels.column, size.columns);
  const tiles = [];
  for (let row = top; row <= bottom; row++) for (let column = left; column <= right; column++) tiles.push({ row, column });
  const middle = { row: (top + bottom) / 2, column: (left + right) / 2 };
  const distance = tile => Math.hypot(tile.row - middle.row, tile.column - middle.column);
  return tiles.sort((a, b) => distance(a) - distance(b));
}

/** Where elements lie in the plot: {x, y, width, height} of `rows` x `columns` elements from (row, column). */
export function placeIn(window, plot, row, column, rows = 1, columns = 1) {
  const x = plot.width / window.columns;
  const y = plot.height / window.rows;
  return { x: (column - window.column) * x, y: (row - window.row) * y, width: columns * x, height: rows * y };
}

/** The element at a point of the plot, or null outside. */
export function elementAt(window, size, plot, x, y) {
  if (x < 0 || y < 0 || x >= plot.width || y >= plot.height) return null;
  const row = Math.floor(window.row + (y / plot.height) * window.rows);
  const column = Math.floor(window.column + (x / plot.width) * window.columns);
  return row < size.rows && column < size.columns ? { row, column } : null;
}

/** The elements that the cell over an element stands for: {row, column, rows, columns}. */
export function cellOver(element, size, levels) {
  const span = (at, level, most) => {
    const start = Math.floor(at / 2 ** level) * 2 ** level;
    return [start, Math.min(2 ** level, most - start)];
  };
  const [row, rows] = span(element.row, levels.row, size.rows);
  const [column, columns] = span(element.column, levels.column, size.columns);
  return { row, column, rows, columns };
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, low), Math.max(low, high));
}
