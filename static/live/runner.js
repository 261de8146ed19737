// The run of the panel: the one in the address, the demonstration, or the one that the form starts; followed as it goes.

import { root } from "../address.js";
import { Problem } from "./api.js";
import { untilReady } from "./problems.js";
import { fillForm, followRun, forgetRun, lookAtRun, orderOf, orderOfRun, rememberRun, rememberedRuns, startRun } from "./runs.js";

/**
 * `shown(run)` hears of every run to show, and again when it has grown enough to show more.
 * A decode page follows the newest step until the reader takes a step.
 */
export function createRunner({ section, store, strip, status, problems, shown }) {
  const { view, liveModel } = section.dataset;
  const isParameter = section.dataset.kind === "parameter";
  const form = section.querySelector("form#run");
  const stop = section.querySelector('[data-live="stop"]');
  const play = section.querySelector('[data-live="play"]');
  let run = null;
  let unfollow = null;
  let following = false; // the newest step is shown as it comes
  let displayed = false; // some tensor of this run is on the page
  let behind = false; // a step is being loaded, another has come
  let playing = 0;
  let own = false; // a step that this module has set, not the reader
  const later = view === "full" && !isParameter ? " The full sequence is one pass over all tokens, so it comes when they are there." : "";

  form.addEventListener("submit", event => {
    event.preventDefault();
    submit(orderOf(form, liveModel));
  });
  form.elements.prompt.addEventListener("keydown", event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  stop.addEventListener("click", async () => {
    unfollow?.();
    stop.disabled = true;
    try {
      await forgetRun(run.id);
      status("Stopped. The server has forgotten this run.");
    } catch (error) {
      problems.say(error);
    }
  });
  store.listen((_, changed) => {
    if (changed.has("step") && !own) takeOver();
  });

  function takeOver() {
    following = false;
    clearInterval(playing);
    playing = 0;
    play?.setAttribute("aria-pressed", "false");
    if (play) play.textContent = "Play steps";
  }

  function setStep(step) {
    own = true;
    store.set({ step });
    own = false;
  }

  play?.addEventListener("click", () => {
    if (playing) {
      takeOver();
      return;
    }
    play.setAttribute("aria-pressed", "true");
    play.textContent = "Pause";
    if ((store.get().step ?? 1) >= run.steps) setStep(1);
    playing = setInterval(() => {
      const step = store.get().step ?? 1;
      if (behind) return;
      if (step < run.steps) {
        behind = true;
        setStep(step + 1);
      } else if (finished()) takeOver();
    }, 450);
  });

  const finished = () => run !== null && ["done", "failed", "cancelled"].includes(run.status);

  async function submit(order) {
    problems.clear();
    takeOver();
    status("Starting…");
    try {
      const next = await startRun(order);
      following = view === "decode";
      adopt(next);
      own = true;
      store.set({ run: next.id, step: null, cell: null });
      own = false;
    } catch (error) {
      status("");
      problems.say(error);
    }
  }

  /** Makes a run the panel's own and follows it until it is finished. */
  function adopt(next) {
    unfollow?.();
    unfollow = null;
    run = next;
    displayed = behind = false;
    if (run.tokens.length) rememberRun(run);
    strip.set(run.tokens);
    shown(run);
    if (finished()) {
      settled();
      return;
    }
    stop.disabled = false;
    unfollow = followRun(run.id, {
      status: said => {
        run.status = said.status;
        if (said.status === "queued") status(said.waiting ? `Waiting: ${said.waiting} before it…` : "Waiting…");
        if (said.status === "running") status(`Running: prefill of ${run.prompt_length} tokens…${later}`);
      },
      token: token => {
        const { steps, ...known } = token;
        run.tokens[token.position] = known; // they all come again where the connection was lost in between
        run.steps = steps;
        strip.set(run.tokens);
        if (token.origin !== "generated") return;
        status(`Running: ${run.tokens.length - run.prompt_length} tokens generated…${later}`);
        grown();
      },
      done: () => {
        run.status = "done";
        rememberRun(run);
        settled();
        if (displayed) grown();
        else shown(run);
      },
      failed: said => {
        run.status = "failed";
        settled();
        problems.say(new Problem(0, said), [["Run it again", () => submit(orderOfRun(run))]]);
      },
      lost: () => again(),
    });
  }

  function settled() {
    stop.disabled = true;
    const { prefill, decode } = run.seconds ?? {};
    const time = prefill ? ` Prefill ${prefill.toFixed(2)} s${decode ? `, decode ${decode.toFixed(2)} s` : ""}.` : "";
    status(run.status === "done" ? `Done: ${run.prompt_length} prompt tokens, ${run.tokens.length - run.prompt_length} generated.${time}` : "");
  }

  /** A token more: the panel can show its first tensor, or the newest step. */
  function grown() {
    if (!canShow()) return;
    if (!displayed && !behind) {
      behind = true;
      shown(run);
    } else if (following && !behind && (store.get().step ?? 1) < run.steps) {
      behind = true;
      setStep(run.steps);
    }
  }

  function canShow() {
    if (run === null) return false;
    if (isParameter) return true;
    if (view === "full") return finished();
    const generated = run.tokens.length - run.prompt_length;
    return finished() || (view === "prefill" ? generated > 0 : run.steps >= 1);
  }

  function lost(problem) {
    const known = rememberedRuns().find(one => one.id === (run?.id ?? store.get().run));
    const actions = [];
    if (known && root === null) actions.push([`Run it again: “${known.prompt.slice(0, 40)}”`, () => submit(known.order)]);
    actions.push(["Show the demonstration", () => demonstrate()]);
    stop.disabled = true;
    status("");
    problems.say({ message: root === null ? "The server has no such run any more." : "This published atlas does not hold what was asked for.", hint: problem.message, code: problem.code }, actions);
  }

  async function demonstrate() {
    problems.clear();
    store.set({ run: null, cell: null });
    const ready = await untilReady(status);
    for (let tries = 0; !ready.demo_run && tries < 40; tries++) {
      await new Promise(resolve => setTimeout(resolve, 500));
      Object.assign(ready, await untilReady(status));
    }
    status("");
    if (ready.demo_run) await open(ready.demo_run);
    else status("Run a prompt to see values.");
  }

  async function open(id) {
    const found = await lookAtRun(id);
    if (found.model !== liveModel) {
      problems.say(new Problem(0, {
        detail: `The run ${id} is one of ${found.model}, but this page shows values of ${liveModel}.`,
        hint: `Open the same node of ${found.model}, or run a prompt here.`,
      }));
      return;
    }
    fillForm(form, found);
    adopt(found);
  }

  async function again() {
    const id = run?.id ?? store.get().run;
    try {
      if (id) await open(id);
      else await demonstrate();
    } catch (error) {
      if (error.status === 404) lost(error);
      else throw error;
    }
  }

  return {
    /** Shows the run of the address, or the demonstration. */
    async begin() {
      const ready = section.dataset.ready === "true";
      if (!ready) {
        await untilReady(status);
        status("");
      }
      if (store.get().run) await again();
      else if (section.dataset.demoRun) await open(section.dataset.demoRun);
      else await demonstrate();
    },
    again,
    lost,
    canShow,
    /** The panel has shown what it was asked for: the next step may come. */
    caughtUp() {
      behind = false;
      displayed = true;
      if (run && following) grown();
    },
    /** What was asked for did not come: the next step may be asked for all the same. */
    gaveUp() {
      behind = false;
    },
    run: () => run,
    submit,
    /** Which run, pass and layer the numbers come from, in words; and what else is to be said of the run. */
    provenance(summary = null) {
      if (!run) return "";
      const prompt = run.prompt.length > 40 ? `${run.prompt.slice(0, 40)}…` : run.prompt;
      const words = [`Run ${run.id.slice(0, 8)} of “${prompt}”`];
      if (summary?.view === "full") words.push("full sequence");
      if (summary?.view === "prefill") words.push("prefill");
      if (summary?.view === "decode") words.push(`decode step ${summary.step}, position ${run.prompt_length + summary.step - 1}`);
      if (summary && summary.layer !== null) words.push(`layer ${summary.layer} of 0–${Number(section.dataset.layers) - 1}`);
      return `${words.join(", ")}; weights ${run.checkpoint}. ${run.note}`.trim();
    },
  };
}
