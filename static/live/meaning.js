// The panel of a tensor with a meaning: which module shows it.

const KINDS = {
  attention: () => import("./meaning-attention.js"),
  logits: () => import("./meaning-predictions.js"),
  stream: () => import("./meaning-predictions.js"),
  cache: () => import("./meaning-cache.js"),
  rotations: () => import("./meaning-rotations.js"),
};

export function create(given) {
  let kind = null;
  let made = null;
  return {
    async update(context) {
      const { meaning } = context.summary.presentation;
      if (!meaning) return;
      if (meaning !== kind) {
        kind = meaning;
        made = null;
        const module = await KINDS[meaning]();
        if (kind !== meaning) return;
        given.place.replaceChildren();
        made = module.create(given);
      }
      made?.update(context);
    },
  };
}
