// What went wrong, said on the panel, with what can be done about it; and waiting for a server that is away.

import { request } from "./api.js";

/** `say(problem, actions)` shows it: actions are [label, function]. `clear()` takes it away. */
export function createProblems(place) {
  return {
    say(problem, actions = []) {
      const what = document.createElement("p");
      what.textContent = problem.message;
      place.replaceChildren(what);
      if (problem.hint) {
        const hint = document.createElement("p");
        hint.className = "hint";
        hint.textContent = problem.hint;
        place.append(hint);
      }
      for (const [label, act] of actions) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = label;
        button.addEventListener("click", act);
        place.append(button);
      }
      place.dataset.code = problem.code ?? "";
      place.hidden = false;
    },
    clear() {
      place.hidden = true;
      place.replaceChildren();
    },
  };
}

const pause = seconds => new Promise(resolve => setTimeout(resolve, 1000 * seconds));

/**
 * Waits until the server is ready; `progress(words)` is told how far it is. Gives what /readyz says.
 * Rejects with {message, hint} where it cannot get ready.
 */
export async function untilReady(progress) {
  for (let wait = 0.25; ; wait = Math.min(2, wait * 1.5)) {
    try {
      const response = await request("/readyz", { cache: "no-store" });
      const said = await response.json();
      if (response.ok) return said;
      if (said.failed) throw Object.assign(new Error(said.detail), { hint: said.hint });
      const share = said.progress === null || said.progress === undefined ? "" : ` ${Math.round(100 * said.progress)} %`;
      progress(`${said.stage ? capital(said.stage) : said.detail}${share}…`);
    } catch (error) {
      if (error.hint !== undefined) throw error;
      progress("The server does not answer. Asking again…");
    }
    await pause(wait);
  }
}

const capital = text => text.slice(0, 1).toUpperCase() + text.slice(1);
