"""All pages of a published site: which there are, each made by the application itself, and what goes beside them.

Knows nothing of how runs are recorded: it is given what they hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from fastapi import FastAPI

from atlas.catalog import Catalog
from atlas.graph.axes import VIEWS
from atlas.inspection.recorded.coverage import megabytes
from atlas.inspection.recorded.layout import RecordedRun
from atlas.models.entry import ModelEntry
from atlas.provenance.store import SourceStore
from atlas.render.assets import static_dir
from atlas.settings import Settings
from atlas.web import walk
from atlas.web.app import create_app
from atlas.web.contexts import Link, PublishedContext, PublishedRun
from atlas.web.published.address import Address
from atlas.web.published.folder import Folder
from atlas.web.published.rendering import HOST, rendered
from atlas.web.published.rewriting import rewritten
from atlas.web.published.values import RecordedValues
from atlas.web.readable import readable
from atlas.web.site import Site
from atlas.web.state import State, node_href

PLAIN = ("/", "/how-to-read", "/walk", "/glossary", "/search", "/compare")
HOLDS = "/published"
"""The page that says what the site holds."""
NOT_NEEDED = (".js", ".map")
"""Files of browser libraries that only the server uses, or nobody."""


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

    def canonical(self, path: str) -> str:
        """The full address of a page, by its path on a server."""
        return f"{self.url}/{Address(path.rstrip('/') or '/').file}" if self.url else ""


class SiteBuilder:
    """Makes the pages of chosen models, with recorded runs as their live values."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        models: tuple[str, ...],
        nodes: tuple[str, ...],
        runs: tuple[RecordedRun, ...],
        sizes: Mapping[str, int],
        budget: int,
        url: str,
    ) -> None:
        """`nodes` are those that have pages, with all that is in them (all, if there is none).

        `sizes` are the bytes of each run's files, by its id.
        """
        self.models = models
        self.nodes = nodes
        self.runs = runs
        self.sizes = sizes
        self.budget = budget
        self.url = url.rstrip("/")
        self.catalog = catalog
        given = {"host": HOST, "token": "", "public": True, "requests_per_minute": 0, "trusted_proxy": ()}
        backend = RecordedValues(catalog, runs)
        self.app: FastAPI = create_app(settings.model_copy(update=given), catalog=catalog, backend=backend)
        self.site: Site = self.app.state.site
        self.site.published = PublishedSite(url)
        self.stops = self._stops(backend.live_model)
        self.pages = list(self._pages())
        self.files = {page.file for page in self.pages}
        self.static_folder = ""

    async def build(self, folder: Folder, tell: Callable[[int, int], None]) -> None:
        """Write everything into a folder. `tell` hears how many pages of how many are made."""
        self.static_folder = _static_files(folder)
        index = [{**asdict(entry), "keys": [asdict(key) for key in entry.keys]} for entry in self.site.index.entries()]
        kept = [entry for entry in map(self._searchable, index) if entry is not None]
        folder.write("search/index.json", json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode())
        for done, page in enumerate(self.pages, 1):
            text = await rendered(self.app, page.path, page.query) if page.path != HOLDS else self._what_it_holds()
            folder.write(page.file, self._rewritten(text, page).encode())
            tell(done, len(self.pages))
        if self.url:
            folder.write("sitemap.xml", self._sitemap().encode())

    def _rewritten(self, text: str, page: Address) -> str:
        version = "/static/"

        def static(address: str) -> str:
            return f"{self.static_folder}/{address.removeprefix(version).partition('/')[2]}"

        ids = tuple(run.id for run in self.runs)
        return rewritten(text, page, static=static, published=lambda to: to.file in self.files, runs=ids)

    def _pages(self) -> Iterator[Address]:
        for path in (*PLAIN, HOLDS):
            yield Address(path)
        for one in self.models:
            model = self.catalog[one]
            for path in ("", *filter(self._has_page, model.graph.nodes)):
                for view in VIEWS:
                    yield Address(f"/models/{one}{'/' if path else ''}{path}", view)
            yield Address("/compare", a=one)
            for other in self.models:
                if other != one:
                    yield Address("/compare", a=one, b=other)
        yield from self.stops

    def _has_page(self, path: str) -> bool:
        return not self.nodes or any(path == one or path.startswith(f"{one}/") for one in self.nodes)

    def _stops(self, model: str) -> list[Address]:
        """The pages of the guided walk."""
        if model not in self.models:
            return []
        found = []
        for stop in walk.stops(self.catalog[model]):
            declared = walk.STOPS[stop.number - 1]
            if self._has_page(declared.path):
                found.append(Address(f"/models/{model}/{declared.path}", declared.view, walk=str(stop.number)))
        return found

    def _searchable(self, entry: dict[str, object]) -> dict[str, object] | None:
        """An entry of the search that leads to a page of this site."""
        models = entry["models"]
        assert isinstance(models, dict)
        if not models:
            return entry if entry["kind"] != "model" or entry["path"] in self.models else None
        kept = {one: name for one, name in models.items() if one in self.models}
        return {**entry, "models": kept} if kept and self._has_page(str(entry["path"])) else None

    def _what_it_holds(self) -> str:
        from starlette.requests import Request

        request = Request({"type": "http", "method": "GET", "scheme": "http", "path": HOLDS, "query_string": b"",
                           "headers": [], "server": (HOST, 80)})  # fmt: skip
        context = PublishedContext(
            frame=self.site.frame(
                request, "What it holds", "Which pages and recorded runs this published atlas holds."
            ),
            models=tuple(
                Link(model.name, node_href(model.id)) for model in readable(self.catalog) if model.id in self.models
            ),
            pages=len(self.pages),
            budget=megabytes(self.budget),
            runs=tuple(self._run(run) for run in self.runs),
        )
        return State().fill(self.site.templates.render("published.html", context))

    def _run(self, run: RecordedRun) -> PublishedRun:
        left = {
            view: tuple(
                (one.node, f"{one.words}; {one.why}")
                for one in run.held
                if one.view == (view or "parameter") and one.held < max(1, one.of)
            )
            for view in (*VIEWS, None)
        }
        shown = next((one for one in self.models if one == run.model), "")
        return PublishedRun(
            id=run.id,
            href=f"/models/{shown or self.models[0]}?run={run.id}",
            model_name=self.catalog.entry(run.model).name,
            text="".join(token.text for token in run.tokens),
            tokens=len(run.tokens),
            size=megabytes(self.sizes[run.id]),
            left_out=tuple((view, rows) for view, rows in left.items() if rows),
        )

    def _sitemap(self) -> str:
        lines = "".join(f"<url><loc>{self.url}/{page.file}</loc></url>\n" for page in self.pages if page.view == "full")
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{lines}</urlset>\n'
        )


def _static_files(folder: Folder) -> str:
    """Copy what browsers load, under a name that changes with it. Gives that name."""
    source = static_dir()
    wanted: dict[str, Path] = {}
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        name = path.relative_to(source).as_posix()
        if not (name.startswith("vendor/") and name.endswith(NOT_NEEDED)):
            wanted[name] = path
    digest = hashlib.sha256()
    for name, path in wanted.items():
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    place = f"static/{digest.hexdigest()[:12]}"
    for name, path in wanted.items():
        folder.write(f"{place}/{name}", path.read_bytes())
    return place
