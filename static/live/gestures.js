// Pointer, wheel and touch on a plane: hover reads, click chooses, drag pans, wheel and pinch zoom.
//
// A wheel scrolls the page unless the plane has the focus or Ctrl is held; one finger scrolls it unless the plane is
// zoomed in. So a page can always be scrolled past.

const SLACK = 5; // CSS pixels that a click may wander

export function attachGestures(canvas, view, handlers) {
  const fingers = new Map();
  let pressed = null; // where a press began: {x, y, moved}
  let spread = 0;

  const at = event => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const touchable = () => canvas.classList.toggle("zoomed", !view.isWhole());

  canvas.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    fingers.set(event.pointerId, at(event));
    pressed = fingers.size === 1 ? { ...at(event), moved: false } : null;
    spread = 0;
    if (event.pointerType !== "touch" || !view.isWhole()) canvas.setPointerCapture(event.pointerId);
  });

  canvas.addEventListener("pointermove", event => {
    const now = at(event);
    const before = fingers.get(event.pointerId);
    if (!before) {
      handlers.pointed?.(view.placeAt(now.x, now.y));
      return;
    }
    fingers.set(event.pointerId, now);
    if (fingers.size === 2) {
      const [one, other] = [...fingers.values()];
      const distance = Math.hypot(one.x - other.x, one.y - other.y);
      if (spread) view.zoom(distance / spread, (one.x + other.x) / 2, (one.y + other.y) / 2);
      spread = distance;
      touchable();
      return;
    }
    if (!pressed) return;
    if (!pressed.moved && Math.hypot(now.x - pressed.x, now.y - pressed.y) < SLACK) return;
    pressed.moved = true;
    if (!view.isWhole()) view.pan(now.x - before.x, now.y - before.y);
  });

  const lifted = event => {
    const known = fingers.delete(event.pointerId);
    if (known && pressed && !pressed.moved && event.type === "pointerup") {
      const place = view.placeAt(at(event).x, at(event).y);
      if (place) handlers.chosen?.(place);
    }
    if (!fingers.size) pressed = null;
    spread = 0;
  };
  canvas.addEventListener("pointerup", lifted);
  canvas.addEventListener("pointercancel", lifted);
  canvas.addEventListener("pointerleave", () => handlers.pointed?.(null));

  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const { x, y } = at(event);
    view.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0025)), x, y);
    touchable();
  }, { passive: false });

  canvas.addEventListener("dblclick", event => {
    const { x, y } = at(event);
    view.zoom(4, x, y);
    touchable();
  });
}
