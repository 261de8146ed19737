// The page's colours for what is drawn on canvases: read off the style sheets, and read again when the theme changes.

/** `colors.of("--accent")` is a CSS colour as the browser resolves it; `changed(listener)` is called after a change. */
export function createColors(section) {
  const probe = document.createElement("span");
  probe.hidden = true;
  section.append(probe);
  let known = new Map();
  const listeners = [];

  const refresh = () => {
    known = new Map();
    for (const listener of listeners) listener();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
  new MutationObserver(refresh).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class"] });

  const of = name => {
    if (!known.has(name)) {
      probe.style.color = `var(${name}, var(--ink-soft, gray))`;
      known.set(name, getComputedStyle(probe).color);
    }
    return known.get(name);
  };

  return {
    of,
    /** What drawings need beside a scale's own colours. */
    inks() {
      return {
        ink: of("--ink"), soft: of("--ink-soft"), line: of("--line-strong"), accent: of("--accent"), ground: of("--card"),
        bars: of("--line-strong"), wash: this.dark ? "rgb(255 255 255 / 0.16)" : "rgb(20 20 30 / 0.12)",
      };
    },
    hueOf: axis => of(`--axis-${axis.replaceAll("_", "-") || "one"}`),
    get dark() {
      const [r, g, b] = (of("--card").match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
      return 0.3 * r + 0.59 * g + 0.11 * b < 128;
    },
    changed: listener => listeners.push(listener),
  };
}
