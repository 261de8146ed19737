// Keys on the plane: arrows move the chosen cell, Shift ten at a time, Home, End and Page keys go far, + − zoom.

const FAR = 10;

/**
 * `at()` gives {row, column, rows, columns} of the chosen cell and the plane; `go(row, column)` chooses another.
 * `view` is a heatmap.
 */
export function attachKeys(canvas, { at, go, view }) {
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey && event.key !== "Home" && event.key !== "End") return;
    if (event.altKey || event.metaKey) return;
    const place = at();
    if (!place) return;
    const far = event.shiftKey ? FAR : 1;
    const moves = {
      ArrowLeft: [0, -far],
      ArrowRight: [0, far],
      ArrowUp: [-far, 0],
      ArrowDown: [far, 0],
      PageUp: [-FAR, 0],
      PageDown: [FAR, 0],
      Home: [event.ctrlKey ? -place.rows : 0, event.ctrlKey ? 0 : -place.columns],
      End: [event.ctrlKey ? place.rows : 0, event.ctrlKey ? 0 : place.columns],
    };
    const actions = {
      "+": () => view.zoom(2),
      "=": () => view.zoom(2),
      "-": () => view.zoom(0.5),
      Enter: () => view.closest(place.row, place.column),
      Escape: () => view.whole(),
    };
    const move = moves[event.key];
    const action = actions[event.key];
    if (!move && !action) return;
    event.preventDefault();
    if (action) action();
    else go(clamp(place.row + move[0], place.rows), clamp(place.column + move[1], place.columns));
  });
}

const clamp = (at, size) => Math.min(Math.max(at, 0), size - 1);
