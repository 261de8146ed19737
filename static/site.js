// What every page loads: each part looks for its own marks and does nothing where there are none.
import { copyButtons } from "./copy.js";
import { diagrams } from "./diagram.js";
import { keys } from "./keys.js";
import { lights } from "./lights.js";
import { menus } from "./menus.js";
import { fillSearch, fullAddresses, route } from "./published/router.js";
import { search } from "./search.js";
import { theme } from "./theme.js";

document.documentElement.classList.add("scripted");
route();
theme();
lights();
diagrams();
menus();
copyButtons();
search();
keys();
fillSearch();
fullAddresses();
if (document.querySelector("[data-missing]")) import("./published/missing.js").then(({ missing }) => missing());
