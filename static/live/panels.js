// The panels below the plane: each is loaded when it is first opened, and follows what is shown while it is open.

const MODULES = {
  multiples: () => import("./multiples.js"),
  meaning: () => import("./meaning.js"),
  across: () => import("./across.js"),
  explain: () => import("./explain.js"),
  table: () => import("./table.js"),
  compare: () => import("./compare.js"),
  take: () => import("./take.js"),
};

/** A module exports create({place, details, section, store, panel, failed, runner}), which gives {update(context)}. */
export function openPanels({ section, store, panel, failed, runner }) {
  for (const details of section.querySelectorAll("details[data-panel]")) {
    const name = details.dataset.panel;
    let made = null;
    let latest = null;
    const update = () => {
      if (made && latest && details.open) made.update(latest);
    };
    const open = async () => {
      if (!details.open) return;
      if (!made) {
        const { create } = await MODULES[name]();
        made ??= create({ place: details.querySelector(".panel"), details, section, store, panel, failed, runner });
      }
      update();
    };
    const listed = (store.get().panels ?? "").split(",");
    if (listed.includes(name)) details.open = true;
    if (listed.includes(`-${name}`)) details.open = false;
    details.addEventListener("toggle", () => {
      store.set({ panels: openNames(section) });
      open();
    });
    panel.follow(context => {
      latest = context;
      if (offered(name, details, context)) open();
    });
  }
  // What a reader has opened or closed before this was loaded is said as well.
  const names = openNames(section);
  if (names && !store.get().panels) store.set({ panels: names });
}

/** Which panels are open, for the address: names, with a minus those that were closed and are open by themselves. */
function openNames(section) {
  const names = [...section.querySelectorAll("details[data-panel]")].flatMap(details => {
    const byItself = details.dataset.panel === "meaning";
    if (details.open === byItself) return [];
    return [byItself ? `-${details.dataset.panel}` : details.dataset.panel];
  });
  return names.join(",") || null;
}

const MEANINGS = {
  attention: "What each token attends to",
  logits: "Which token comes next",
  stream: "Logit lens: what it would say if the stream ended here",
  cache: "Old and new positions",
  rotations: "Angles by position and pair",
};

/** Whether a panel has something to say about this tensor; it is hidden otherwise. */
function offered(name, details, { summary, plane }) {
  if (name === "meaning") {
    const { meaning } = summary.presentation;
    details.hidden = meaning === null;
    if (meaning) details.querySelector("summary").textContent = MEANINGS[meaning];
  }
  if (name === "multiples") {
    const axis = multiplesAxis(summary, plane);
    details.hidden = axis === null;
    if (axis) details.querySelector('[data-live="over"]').textContent = `${axis.size} ${axis.name}`;
  }
  return !details.hidden;
}

/** The axis of small multiples: the largest one beside the plane that is not too long for them. */
export function multiplesAxis(summary, plane) {
  const axes = summary.axes.filter(axis => axis.size > 1 && axis.size <= 256 && axis.name !== plane.rows && axis.name !== plane.columns);
  return axes.sort((a, b) => b.size - a.size)[0] ?? null;
}
