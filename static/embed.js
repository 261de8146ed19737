// What a page in a frame of another site loads: lights, and the diagram's keys. On a published site also what a server
// would have done with the query: a view has a file of its own, and `theme=dark` is put into the page.
import { root } from "./address.js";
import { diagrams } from "./diagram.js";
import { lights } from "./lights.js";

if (root !== null) {
  import("./published/router.js").then(({ route }) => route());
  const theme = new URLSearchParams(location.search).get("theme");
  if (["light", "dark"].includes(theme)) document.documentElement.dataset.theme = theme;
}

lights();
diagrams();
