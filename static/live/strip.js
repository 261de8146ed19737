// The tokens of a run as a strip of buttons: white space visible, prompt and generated told apart, marked from outside.

import { visible } from "./format.js";

/** `onPoint(position or null)` on hover and focus, `onChoose(position)` on click. */
export function createStrip(list, { onPoint, onChoose }) {
  let buttons = [];
  let marked = [];
  let computedRange = "";
  let computedOf = 0; // how many buttons know whether they were computed

  const positionOf = target => {
    const button = target instanceof Element ? target.closest("[data-position]") : null;
    return button ? Number(button.dataset.position) : null;
  };
  list.addEventListener("pointerover", event => onPoint(positionOf(event.target)));
  list.addEventListener("pointerleave", () => onPoint(null));
  list.addEventListener("focusin", event => onPoint(positionOf(event.target)));
  list.addEventListener("focusout", () => onPoint(null));
  list.addEventListener("click", event => {
    const position = positionOf(event.target);
    if (position !== null) onChoose(position);
  });
  list.addEventListener("keydown", event => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const position = positionOf(event.target);
    if (!move || position === null) return;
    event.preventDefault();
    buttons[position + move]?.focus();
  });

  function add(token) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.position = String(token.position);
    button.dataset.origin = token.origin;
    button.toggleAttribute("data-template", Boolean(token.template));
    button.textContent = visible(token.label);
    const source = token.template ? " · from the chat template" : token.origin === "generated" ? " · generated" : "";
    button.title = `position ${token.position} · token ${token.id}${source}`;
    button.tabIndex = token.position ? -1 : 0;
    item.append(button);
    list.append(item);
    buttons.push(button);
  }

  return {
    /** Shows exactly these tokens, keeping what is there already. */
    set(tokens) {
      const same = buttons.every((button, at) => tokens[at] && button.textContent === visible(tokens[at].label)
        && button.hasAttribute("data-template") === Boolean(tokens[at].template));
      if (!same || buttons.length > tokens.length) {
        list.replaceChildren();
        buttons = [];
      }
      for (const token of tokens.slice(buttons.length)) add(token);
    },
    /** Marks positions: {chosen: [..], pointed: [..], computed: [first, last]}. Touches only what changes. */
    mark({ chosen = [], pointed = [], computed = null }) {
      const range = computed ? computed.join() : "";
      if (range !== computedRange || buttons.length !== computedOf) {
        computedRange = range;
        computedOf = buttons.length;
        for (const [at, button] of buttons.entries()) {
          button.toggleAttribute("data-computed", computed !== null && at >= computed[0] && at <= computed[1]);
        }
      }
      for (const button of marked) button.removeAttribute("data-mark");
      marked = [];
      const put = (position, name) => {
        const button = buttons[position];
        if (!button) return;
        button.dataset.mark = button.dataset.mark ? `${button.dataset.mark} ${name}` : name;
        marked.push(button);
      };
      for (const position of new Set(chosen)) put(position, "chosen");
      for (const position of new Set(pointed)) put(position, "pointed");
    },
  };
}
