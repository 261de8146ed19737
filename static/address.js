// Where pages are. On a server an address is what it says; a published site has a file for each page, below any path.
// `atlas/web/published/address.py` names the files, and says the same as this.

const { root: folder, page: own } = document.documentElement.dataset;

/** The way from this page to the folder of the published site; null on a server. */
export const root = folder ?? null;

/** The address of this page as a server has it, without its query; null on a server. */
export const page = own ?? null;

const VIEWS = ["prefill", "decode"];

/** The address of a page: `/models/a/b?view=decode&layer=3` is `../b/decode.html?layer=3` on a published site. */
export function pageAddress(href) {
  if (root === null || !href.startsWith("/")) return href;
  const url = new URL(href, "http://site.invalid");
  const query = url.searchParams;
  const take = name => {
    const value = query.get(name);
    query.delete(name);
    return value;
  };
  const path = url.pathname.replace(/^\/+|\/+$/g, "");
  let file = path ? `${path}/index.html` : "index.html";
  if (path === "compare") {
    const [a, b] = [take("a"), take("b")];
    if (a) file = b ? `compare/${a}/${b}.html` : `compare/${a}/index.html`;
  } else {
    const [view, walk] = [take("view"), take("walk")];
    if (walk) file = `${path}/walk-${walk}.html`;
    else if (VIEWS.includes(view) && /^(models|embed)\//.test(path)) file = `${path}/${view}.html`;
  }
  const text = query.toString();
  return `${root}${file}${text ? `?${text}` : ""}${url.hash}`;
}

/** Whether an address (a URL) is that of a page of a model or node. */
export function leadsToModels(url) {
  const models = root === null ? "/models/" : new URL(`${root}models/`, location.href).pathname;
  return url.origin === location.origin && url.pathname.startsWith(models);
}
