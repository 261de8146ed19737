// Runs: what the form asks for, starting, following by server-sent events, stopping.

import { root } from "../address.js";
import { getJson, postJson, remove } from "./api.js";

const KNOWN = "atlas-runs"; // what this reader has run, in local storage: so a run that a server forgot can be asked again
const KEPT = 20;

/** What the form says, as POST /api/runs takes it. A prompt that is a JSON list of whole numbers is token ids. */
export function orderOf(form, model) {
  const data = new FormData(form);
  const prompt = String(data.get("prompt"));
  const number = name => (data.get(name) === "" ? undefined : Number(data.get(name)));
  const order = { model, max_new_tokens: number("max_new_tokens"), temperature: number("temperature"), seed: number("seed") };
  if (data.get("add_bos")) order.add_bos = data.get("add_bos") === "true";
  if (/^\s*\[\s*\d+(\s*,\s*\d+)*\s*\]\s*$/.test(prompt)) {
    order.token_ids = JSON.parse(prompt);
    delete order.add_bos;
  } else {
    order.prompt = prompt;
    if (data.get("chat")) {
      order.chat = true;
      delete order.add_bos; // the template says what the prompt begins with
    }
  }
  return order;
}

/** The order that gives this very run again. */
export function orderOfRun(run) {
  const ids = run.tokens.slice(0, run.prompt_length).map(token => token.id);
  const { model, max_new_tokens, temperature, seed } = run;
  if (run.chat) return { model, prompt: run.prompt, chat: true, max_new_tokens, temperature, seed };
  return { model, token_ids: ids, max_new_tokens, temperature, seed };
}

/** Puts a run's settings into the form. */
export function fillForm(form, run) {
  form.elements.prompt.value = run.prompt;
  for (const name of ["max_new_tokens", "temperature", "seed"]) form.elements[name].value = String(run[name]);
  if (form.elements.chat) form.elements.chat.checked = Boolean(run.chat);
}

export const startRun = order => postJson("/api/runs", order);
export const lookAtRun = (id, signal) => getJson(`/api/runs/${encodeURIComponent(id)}`, signal);
export const forgetRun = id => remove(`/api/runs/${encodeURIComponent(id)}`);

/** Remembers how to start a run again. */
export function rememberRun(run) {
  if (root !== null) return; // a published run cannot be started again
  const known = rememberedRuns().filter(one => one.id !== run.id);
  known.unshift({ id: run.id, prompt: run.prompt.slice(0, 200), order: orderOfRun(run) });
  try {
    localStorage.setItem(KNOWN, JSON.stringify(known.slice(0, KEPT)));
  } catch {
    // Storage is full or switched off: then it is not remembered.
  }
}

/** The runs that a published site holds. */
export async function publishedRuns() {
  const { publishedIds } = await import("./recorded/files.js");
  return Promise.all(publishedIds().map(id => lookAtRun(id)));
}

export function rememberedRuns() {
  try {
    const known = JSON.parse(localStorage.getItem(KNOWN) ?? "[]");
    return Array.isArray(known) ? known : [];
  } catch {
    return [];
  }
}

/**
 * Follows a run. Handlers: status({status, waiting, steps}), token(token), done(), failed({detail, hint}), lost().
 * Returns a function that stops following.
 */
export function followRun(id, handlers) {
  const events = new EventSource(`/api/runs/${encodeURIComponent(id)}/events`);
  const said = event => JSON.parse(event.data);
  events.addEventListener("status", event => handlers.status(said(event)));
  events.addEventListener("token", event => handlers.token(said(event)));
  events.addEventListener("done", () => {
    events.close();
    handlers.done();
  });
  events.addEventListener("error", event => {
    if (event.data) {
      events.close();
      handlers.failed(said(event));
    } else if (events.readyState === EventSource.CLOSED) {
      handlers.lost();
    }
  });
  return () => events.close();
}
