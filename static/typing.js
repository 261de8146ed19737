// Whether a key is part of what somebody types. A browser may leave the focus in a dialog that has just been closed
// until it draws again; a key pressed in that moment is for the page.

const FIELDS = "input, textarea, select, [contenteditable], dialog";

/** Whether an event's target takes keys for itself. */
export function typing(target) {
  if (!(target instanceof Element) || !target.closest(FIELDS)) return false;
  const dialog = target.closest("dialog");
  return !dialog || dialog.open;
}
