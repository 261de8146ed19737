// The page that a host gives for an address without a file. It says which address that was, goes to the page that a
// server would have had there, and otherwise lists what is called like it.

import { pageAddress, root } from "../address.js";
import { listOf } from "./router.js";
import { searched } from "./search.js";

const MOST = 5; // answers of the search

/** Fills the page that says that there is no such page. */
export async function missing() {
  const place = document.querySelector("[data-missing]");
  if (!place || root === null) return;
  const folder = new URL(root, location.href).pathname;
  if (!location.pathname.startsWith(folder)) return;
  const path = decoded(location.pathname.slice(folder.length)).replace(/\/+$/, "");
  const meant = pageAddress(`/${path}${location.search}${location.hash}`);
  if (path === "404.html") return;
  if (!path.endsWith(".html") && (await there(meant))) return location.replace(meant);
  place.querySelector("[data-asked]").textContent = path;
  const words = path.replace(/(\/(index|prefill|decode|walk-\d+))?(\.html)?$/, "").split("/");
  const form = place.querySelector("form");
  form.elements.q.value = words.at(-1).replaceAll("-", " ");
  const hits = await searched({ q: form.elements.q.value, model: words[0] === "models" ? words[1] : "" });
  if (hits.length) form.after(listOf(hits.slice(0, MOST)));
}

function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/** Whether there is another page at an address. */
async function there(address) {
  const { href, pathname } = new URL(address, location.href);
  if (pathname === location.pathname) return false;
  try {
    return (await fetch(href, { method: "HEAD" })).ok;
  } catch {
    return false;
  }
}
