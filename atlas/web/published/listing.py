"""Which pages a published site has: those of the chosen models and nodes, and what else lists pages.

Knows nothing of what is on a page, nor of files but their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from atlas.catalog import Catalog
from atlas.graph.axes import VIEWS
from atlas.models.entry import ModelEntry
from atlas.provenance.store import SourceStore
from atlas.web import walk
from atlas.web.published.address import Address, read

PLAIN = ("/", "/how-to-read", "/walk", "/glossary", "/search", "/compare")
HOLDS = "/published"
"""The page that says what the site holds."""


class ChosenModels(Catalog):
    """A catalogue that lists some of its models; the others can still be spoken of."""

    def __init__(self, store: SourceStore, entries: Iterable[ModelEntry], listed: frozenset[str]) -> None:
        super().__init__(store, entries)
        self.listed = listed

    def __iter__(self) -> Iterator[ModelEntry]:
        return (entry for entry in super().__iter__() if entry.id in self.listed)

    @property
    def default(self) -> ModelEntry:
        return next(entry for entry in super().__iter__() if entry.default_weights)


class PublishedSite:
    """The site as pages are told of it. `url` is its address on the web, or empty where that is not known."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def address(self, href: str) -> str:
        """The full address of a page, by its address on a server; that one where the site's is not known."""
        page, after = read(href)
        return f"{self.url}/{page.file}{after}" if self.url else href

    @property
    def folder(self) -> str:
        """The path of the site on its host, from `/` to `/`; where it is not known, the host's root."""
        return f"{urlsplit(self.url).path.rstrip('/')}/"


class Listing:
    """The pages of some models and nodes. `walked` is the model through which the guided walk leads."""

    def __init__(self, catalog: Catalog, models: tuple[str, ...], nodes: tuple[str, ...], walked: str) -> None:
        """`nodes` are those that have pages, with all that is in them (all, if there is none)."""
        self.catalog = catalog
        self.models = models
        self.nodes = nodes
        self.pages = [*self._pages(), *self._stops(walked)]
        self.files = frozenset(page.file for page in self.pages)

    def has(self, path: str) -> bool:
        """Whether nodes of this path have pages."""
        return not self.nodes or any(path == one or path.startswith(f"{one}/") for one in self.nodes)

    def nodes_of(self, model: str) -> list[str]:
        """The nodes of a model that have pages."""
        return [path for path in self.catalog[model].graph.nodes if self.has(path)]

    def _pages(self) -> Iterator[Address]:
        for path in (*PLAIN, HOLDS):
            yield Address(path)
        for one in self.models:
            for view in VIEWS:
                yield Address(f"/models/{one}", view)
            for path in self.nodes_of(one):
                for view in VIEWS:
                    yield Address(f"/models/{one}/{path}", view)
                    yield Address(f"/embed/{one}/{path}", view)
            yield Address("/compare", a=one)
            for other in self.models:
                yield Address("/compare", a=one, b=other)

    def _stops(self, model: str) -> Iterator[Address]:
        """The pages of the guided walk."""
        for stop in walk.stops(self.catalog[model]) if model in self.models else ():
            declared = walk.STOPS[stop.number - 1]
            if self.has(declared.path):
                yield Address(f"/models/{model}/{declared.path}", declared.view, walk=str(stop.number))

    def searchable(self, entry: dict[str, object]) -> dict[str, object] | None:
        """An entry of the search as far as it leads to pages of this site; None where it does not."""
        models = entry["models"]
        assert isinstance(models, dict)
        if not models:
            return entry if entry["kind"] != "model" or entry["path"] in self.models else None
        kept = {one: name for one, name in models.items() if one in self.models}
        return {**entry, "models": kept} if kept and self.has(str(entry["path"])) else None

    def sitemap(self, site: PublishedSite) -> str:
        """Every page once, in its usual view, by the address that it calls its own; those for frames are left out."""
        left_out = ("/search", "/embed/")
        listed = [page for page in self.pages if page == Address(page.path) and not page.path.startswith(left_out)]
        lines = "".join(f"<url><loc>{site.address(page.path)}</loc></url>\n" for page in listed)
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{lines}</urlset>\n'
        )
