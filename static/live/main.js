// The live panel: finds its section, brings a run to it, and keeps the address in step.

import { createColors } from "./theme.js";
import { createPanel } from "./panel.js";
import { createProblems, untilReady } from "./problems.js";
import { createRunner } from "./runner.js";
import { takeBundles } from "./drop.js";
import { addressWriter, createStore, fromAddress, toAddress } from "./state.js";
import { createStrip } from "./strip.js";
import { carryState } from "./links.js";
import { openPanels } from "./panels.js";

function start(section) {
  const el = name => section.querySelector(`[data-live="${name}"]`);
  const exists = section.dataset.exists === "true";
  const problems = createProblems(el("problem"));
  const status = words => {
    el("status").textContent = words;
  };
  let panel = null;
  const store = createStore(fromAddress(location.search), addressWriter(() => {
    const state = store.get();
    return toAddress(location.search, { ...state, range: panel?.kept().range ?? state.range });
  }));
  const strip = createStrip(document.getElementById("token-strip"), {
    onPoint: position => panel?.pointToken(position),
    onChoose: position => panel?.chooseToken(position),
  });
  const runner = createRunner({ section, store, strip, status, problems, shown: run => show(run) });

  function failed(problem) {
    runner.gaveUp();
    if (problem.code === "unreachable") return comeBack(problem);
    if (problem.status === 503) return comeBack(problem);
    if (problem.code === "not-found" && problem.message.includes("run")) return runner.lost(problem);
    return problems.say(problem);
  }

  let waiting = false;
  async function comeBack(problem) {
    if (waiting) return;
    waiting = true;
    problems.say(problem);
    try {
      await untilReady(status);
      status("");
      problems.clear();
      await runner.again();
    } catch (error) {
      problems.say(error);
    } finally {
      waiting = false;
    }
  }

  function show(run) {
    if (!panel) {
      el("provenance").textContent = runner.provenance();
      return;
    }
    panel.setRun(run);
    if (runner.canShow()) {
      problems.clear();
      panel.load();
    }
  }

  if (exists) {
    panel = createPanel({
      section, store, colors: createColors(section), strip, failed, mayLoad: () => runner.canShow(),
      loaded: summary => {
        problems.clear();
        runner.caughtUp();
        el("provenance").textContent = runner.provenance(summary);
      },
    });
    openPanels({ section, store, panel, failed, runner });
  }
  carryState(store);
  takeBundles({ section, status, problems });
  runner.begin().catch(failed);
}

const section = document.getElementById("live");
if (section?.querySelector("form#run")) start(section);
