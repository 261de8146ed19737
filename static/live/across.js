// Across layers: one number a layer and position, or for attention every head of every layer on one sheet.

export async function make(kind) {
  return kind === "attention" ? import("./across-heads.js") : import("./across-strip.js");
}

export function create(given) {
  let made = null;
  let kind = null;
  return {
    async update(context) {
      const wanted = context.summary.presentation.meaning === "attention" ? "attention" : "strip";
      if (wanted !== kind) {
        kind = wanted;
        made = null;
        const module = await make(wanted);
        if (kind !== wanted) return;
        given.place.replaceChildren();
        made = module.create(given);
      }
      made?.update(context);
    },
  };
}
