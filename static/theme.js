// The switch between light and dark. The choice is a cookie, so the server writes it into the page and nothing flashes;
// a published page reads it by itself.

import { root as published } from "./address.js";

const YEAR = 31536000;

export function theme() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  if (published !== null) show(/(?:^|;\s*)theme=(light|dark)(?:;|$)/.exec(document.cookie)?.[1] ?? "");
  button?.addEventListener("click", () => {
    const shown = root.dataset.theme || (system.matches ? "dark" : "light");
    const wanted = shown === "dark" ? "light" : "dark";
    const byItself = wanted === (system.matches ? "dark" : "light");
    show(byItself ? "" : wanted);
    document.cookie = `theme=${byItself ? "" : wanted}; path=/; max-age=${byItself ? 0 : YEAR}; samesite=lax`;
    document.dispatchEvent(new CustomEvent("atlas:theme", { detail: { theme: wanted } }));
  });

  // Paper is light, what scripts have painted included.
  let before = "";
  addEventListener("beforeprint", () => {
    before = root.dataset.theme ?? "";
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => show(before));

  /** Shows a theme, or the system's where it is empty. */
  function show(theme) {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    document.querySelector('meta[name="color-scheme"]').content = theme || "light dark";
  }
}
