// Copies the code of a card, without its line numbers.

const SHOWN_FOR = 1500;

function textOf(card) {
  return [...card.querySelectorAll("pre.code")]
    .map(pre => {
      const lines = [...pre.querySelectorAll(".line")];
      return lines.map(line => [...line.childNodes].filter(node => !node.classList?.contains("ln")).map(node => node.textContent).join("")).join("\n");
    })
    .join("\n\n");
}

export function copyButtons() {
  document.addEventListener("click", async event => {
    const button = event.target instanceof Element && event.target.closest("[data-copy]");
    if (!button) return;
    const word = button.textContent;
    try {
      await navigator.clipboard.writeText(textOf(button.closest(".card")));
      button.textContent = "copied";
    } catch {
      button.textContent = "not allowed";
    }
    setTimeout(() => { button.textContent = word; }, SHOWN_FOR);
  });
}
