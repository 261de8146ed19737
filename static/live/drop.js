// A bundle dropped on the page, or chosen: sent to the server, which checks it, and then looked at like any other run.

import { root } from "../address.js";
import { Problem, request } from "./api.js";

const ENDING = ".atlas";

/** Takes bundles that are dropped anywhere. `status(words)` is told what happens, `problems` what went wrong. */
export function takeBundles({ section, status, problems }) {
  if (root !== null) return; // a published site receives nothing
  const files = event => [...(event.dataTransfer?.items ?? [])].some(item => item.kind === "file");
  section.querySelector('[data-live="bundle"]')?.addEventListener("change", event => open(event.target.files[0]));
  document.addEventListener("dragover", event => {
    if (!files(event)) return;
    event.preventDefault();
    section.toggleAttribute("data-drop", true);
  });
  document.addEventListener("dragleave", event => {
    if (!event.relatedTarget) section.removeAttribute("data-drop");
  });
  document.addEventListener("drop", event => {
    section.removeAttribute("data-drop");
    const [file] = event.dataTransfer?.files ?? [];
    if (!file) return;
    event.preventDefault();
    open(file);
  });

  async function open(file) {
    if (!file) return;
    problems.clear();
    try {
      if (!file.name.endsWith(ENDING)) {
        throw new Problem(0, { code: "bad-bundle", detail: `${file.name} is no bundle.`, hint: `Drop a file that atlas bundle has written: its name ends in ${ENDING}.` });
      }
      status(`Opening ${file.name}…`);
      const run = await sent(file);
      status("");
      const here = section.dataset.liveModel === run.model ? location.pathname : `/models/${run.model}`;
      location.assign(`${here}?${new URLSearchParams({ run: run.id })}#live`);
    } catch (error) {
      status("");
      problems.say(error);
    }
  }
}

async function sent(file) {
  let answer;
  try {
    answer = await request("/api/recorded", { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });
  } catch {
    throw new Problem(0, { code: "unreachable", detail: "The server did not take the file.", hint: "It may be larger than the server takes." });
  }
  const said = await answer.json();
  if (!answer.ok) throw new Problem(answer.status, said);
  return said;
}
