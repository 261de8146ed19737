// Single keys for what a page offers: each element with `data-key` is clicked by its key, and listed on the sheet.

import { typing } from "./typing.js";

const SWITCH = "atlas-keys"; // "off" in local storage: no single keys, for those whose speech or hands set them off

const off = () => localStorage.getItem(SWITCH) === "off";

function labelOf(element) {
  return element.dataset.keyLabel || element.getAttribute("aria-label") || element.textContent.trim().replace(/\s+/g, " ");
}

function sheet() {
  const known = document.getElementById("keys-dialog");
  const dialog = known ?? document.createElement("dialog");
  dialog.id = "keys-dialog";
  dialog.setAttribute("aria-labelledby", "keys-title");
  const title = document.createElement("h2");
  title.id = "keys-title";
  title.textContent = "Keys";
  const list = document.createElement("dl");
  const rows = [["/", "Search"], ["Ctrl K", "Search, from anywhere"]];
  const seen = new Set();
  for (const element of document.querySelectorAll("[data-key]")) {
    if (!seen.has(element.dataset.key)) rows.push([element.dataset.key, labelOf(element)]);
    seen.add(element.dataset.key);
  }
  rows.push(["Esc", "Close what is open"]);
  for (const [key, label] of rows) {
    const dt = document.createElement("dt");
    for (const part of key.split(" ")) {
      const kbd = document.createElement("kbd");
      kbd.textContent = part;
      dt.append(kbd, " ");
    }
    const dd = document.createElement("dd");
    dd.textContent = label;
    list.append(dt, dd);
  }
  const form = document.createElement("form");
  form.method = "dialog";
  const choice = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = !off();
  box.addEventListener("change", () => localStorage.setItem(SWITCH, box.checked ? "on" : "off"));
  choice.append(box, " Single keys are on");
  const close = document.createElement("button");
  close.textContent = "Close";
  form.append(choice, close);
  dialog.replaceChildren(title, list, form);
  if (!known) document.body.append(dialog);
  return dialog;
}

export function keys() {
  document.getElementById("help")?.addEventListener("click", () => sheet().showModal());
  document.addEventListener("keydown", event => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (off() || typing(event.target)) return;
    const element = [...document.querySelectorAll("[data-key]")].find(one => one.dataset.key === event.key);
    if (!element) return;
    event.preventDefault();
    element.click();
  });
}
