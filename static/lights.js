// Lights: pointing at, focusing or touching one mark of a node or of an axis lights all marks of the same thing.

// A section that is about a node (the live panel) is no mark of it.
const MARKS = ":is([data-node], [data-axis]):not(section)";

// The innermost mark decides: an axis inside a node's shape lights the axis.
const keyOf = mark => (mark.dataset.axis ? ["axis", mark.dataset.axis] : ["node", mark.dataset.node]);

export function lights() {
  let lit = [];
  let held = null; // the mark that touch or focus holds lit

  const show = mark => {
    for (const element of lit) element.classList.remove("lit");
    lit = [];
    if (!mark) return;
    const [name, value] = keyOf(mark);
    lit = [...document.querySelectorAll(`[data-${name}="${CSS.escape(value)}"]:not(section)`)];
    for (const element of lit) element.classList.add("lit");
  };
  const markAt = target => (target instanceof Element ? target.closest(MARKS) : null);

  document.addEventListener("pointerover", event => {
    if (event.pointerType !== "touch") show(markAt(event.target) ?? held);
  });
  document.addEventListener("pointerout", event => {
    if (event.pointerType !== "touch" && !markAt(event.relatedTarget)) show(held);
  });
  document.addEventListener("focusin", event => {
    held = markAt(event.target);
    show(held);
  });
  document.addEventListener("focusout", () => {
    held = null;
    show(null);
  });
  // By touch a mark that is no link stays lit until another place is touched.
  document.addEventListener("click", event => {
    if (event.pointerType !== "touch") return;
    held = markAt(event.target);
    show(held);
  });
}
