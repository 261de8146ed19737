// What the reader has chosen, and its place in the address. One object a panel; listeners hear what has changed.

const NUMBERS = ["layer", "step", "head"];
const TEXTS = ["run", "cell", "rows", "columns", "part", "reduce", "scale", "range", "zoom", "panels", "against"];

/** Reads the query of an address. */
export function fromAddress(search) {
  const query = new URLSearchParams(search);
  const state = {};
  for (const name of NUMBERS) {
    const text = query.get(name);
    state[name] = text !== null && /^\d{1,6}$/.test(text) ? Number(text) : null;
  }
  for (const name of TEXTS) state[name] = query.get(name) || null;
  return state;
}

/** The query of an address with the state in it; what is null is left out, other parameters stay. */
export function toAddress(search, state) {
  const query = new URLSearchParams(search);
  for (const name of [...NUMBERS, ...TEXTS]) {
    const value = state[name];
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
  return text ? `?${text}` : "";
}

const REST = 120; // milliseconds between two writes: browsers allow only so many

/** Writes the address at most so often, the last state always, and before the page is left. `search()` gives the query. */
export function addressWriter(search) {
  let timer = 0;
  const put = () => {
    timer = 0;
    history.replaceState(history.state, "", `${location.pathname}${search()}${location.hash}`);
  };
  addEventListener("pagehide", () => timer && put());
  return () => {
    timer ||= setTimeout(put, REST);
  };
}

/** A store: `get()`, `set(changes)`, `touch()`, `listen(listener)` where listener(state, changed names). */
export function createStore(initial, write) {
  let state = { ...initial };
  const listeners = [];
  return {
    get: () => state,
    set(changes) {
      const changed = Object.keys(changes).filter(name => changes[name] !== state[name]);
      if (!changed.length) return;
      state = { ...state, ...changes };
      write(state);
      for (const listener of listeners) listener(state, new Set(changed));
    },
    /** Writes the address again. */
    touch: () => write(state),
    listen(listener) {
      listeners.push(listener);
    },
  };
}
