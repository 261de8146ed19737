// The switch between light and dark. The choice is a cookie, so the server writes it into the page and nothing flashes.

const YEAR = 31536000;

export function theme() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  button?.addEventListener("click", () => {
    const shown = root.dataset.theme || (system.matches ? "dark" : "light");
    const wanted = shown === "dark" ? "light" : "dark";
    const byItself = wanted === (system.matches ? "dark" : "light");
    if (byItself) delete root.dataset.theme;
    else root.dataset.theme = wanted;
    document.cookie = `theme=${byItself ? "" : wanted}; path=/; max-age=${byItself ? 0 : YEAR}; samesite=lax`;
    document.querySelector('meta[name="color-scheme"]').content = byItself ? "light dark" : wanted;
    document.dispatchEvent(new CustomEvent("atlas:theme", { detail: { theme: wanted } }));
  });
}
