"""All files of a published site: the pages, each made by the application itself, and what goes with them.

Knows nothing of how runs are recorded: it is given what they hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.requests import Request

from atlas.catalog import Catalog
from atlas.graph.axes import VIEWS, View
from atlas.inspection.recorded.coverage import megabytes
from atlas.inspection.recorded.layout import RecordedRun
from atlas.render.assets import static_dir
from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.contexts import MissingContext, PublishedContext, PublishedRun
from atlas.web.pieces import Link
from atlas.web.preview_picture import preview_card, site_card
from atlas.web.published.address import Address
from atlas.web.published.diagrams import MOST, Drawings, folder_of
from atlas.web.published.folder import Folder
from atlas.web.published.listing import HOLDS, Listing, PublishedSite
from atlas.web.published.rendering import HOST, rendered
from atlas.web.published.rewriting import rewritten
from atlas.web.published.values import RecordedValues
from atlas.web.readable import readable
from atlas.web.site import Site
from atlas.web.state import State, node_href

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MISSING = "/404"
"""What hosts give for an address that has no file: GitHub's and many others take `404.html` for it."""
NOT_NEEDED = (".js", ".map")
"""Files of browser libraries that only the server uses, or nobody."""


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
        most_open: int = MOST,
    ) -> None:
        """`nodes` are those that have pages, with all that is in them (all, if there is none).

        `sizes` are the bytes of each run's files, by its id; `most_open` is how many ways of having parts open are
        drawn of each diagram.
        """
        self.models = models
        self.runs = runs
        self.sizes = sizes
        self.budget = budget
        self.catalog = catalog
        given = {"host": HOST, "token": "", "public": True, "requests_per_minute": 0, "trusted_proxy": ()}
        backend = RecordedValues(catalog, runs)
        self.app: FastAPI = create_app(settings.model_copy(update=given), catalog=catalog, backend=backend)
        self.site: Site = self.app.state.site
        self.published = self.site.published = PublishedSite(url)
        self.listing = Listing(catalog, models, nodes, backend.live_model)
        self.most_open = most_open
        self.static_folder = ""

    async def build(self, folder: Folder, tell: Callable[[str, int, int], None]) -> None:
        """Write everything into a folder. `tell` hears of what (pages, drawings, pictures) how many of how many are
        made.
        """
        self.static_folder = _static_files(folder)
        index = [{**asdict(entry), "keys": [asdict(key) for key in entry.keys]} for entry in self.site.index.entries()]
        kept = [entry for entry in map(self.listing.searchable, index) if entry is not None]
        folder.write("search/index.json", json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode())
        pages = self.listing.pages
        for done, page in enumerate(pages, 1):
            text = await rendered(self.app, page.path, page.query) if page.path != HOLDS else self._what_it_holds()
            folder.write(page.file, self._rewritten(text, page).encode())
            tell("pages", done, len(pages))
        missing = self._rewritten(self._what_is_missing(), Address(MISSING), self.published.folder)
        folder.write("404.html", missing.encode())
        self._draw(folder, tell)
        if self.published.url:
            folder.write("sitemap.xml", self.listing.sitemap(self.published).encode())
            self._picture(folder, tell)

    def _draw(self, folder: Folder, tell: Callable[[str, int, int], None]) -> None:
        """The diagrams with other parts open."""
        drawings = [self._drawings(one) for one in self.models]
        whole, done = sum(map(len, drawings)), 0
        for one in drawings:
            for name, content in one.files():
                folder.write(f"{folder_of(one.model.id)}/{name}", content)
                done += name.endswith(".svg.z")
                tell("drawings", done, whole)

    def _drawings(self, model: str) -> Drawings:
        view = self.site.views[model]
        with_pages = [view.graph[path] for path in self.listing.nodes_of(model)]
        shown = {node.path if node.kind == "component" else node.parent for node in with_pages}

        def link(path: str, pass_: View) -> str:
            page = Address(f"/models/{model}/{path}", pass_)
            return f"../../{page.file}" if page.file in self.listing.files else ""

        components = tuple(one for one in ("", *view.graph.nodes) if one in shown or not one)
        return Drawings(view.model, components, view.open_by_itself, link, self.most_open)

    def _picture(self, folder: Folder, tell: Callable[[str, int, int], None]) -> None:
        """What sites that show a link to a page show with it. The library that draws them lets two threads draw."""
        wanted = [(model, path) for model in self.models for path in ("", *self.listing.nodes_of(model))]
        folder.write("preview.png", site_card(self.site.views[self.models[0]], len(self.models)))
        pool = ThreadPoolExecutor(2)
        try:
            cards = pool.map(lambda one: preview_card(self.site.views[one[0]], one[1]), wanted)
            for done, ((model, path), picture) in enumerate(zip(wanted, cards, strict=True), 1):
                folder.write(f"preview/{model}{'/' if path else ''}{path}.png", picture)
                tell("pictures", done, len(wanted))
        finally:
            pool.shutdown(cancel_futures=True)

    def _rewritten(self, text: str, page: Address, up: str | None = None) -> str:
        version = "/static/"

        def static(address: str) -> str:
            return f"{self.static_folder}/{address.removeprefix(version).partition('/')[2]}"

        ids = tuple(run.id for run in self.runs)
        return rewritten(text, page, static=static, published=lambda to: to.file in self.listing.files, runs=ids, up=up)

    def _what_is_missing(self) -> str:
        frame = self.site.frame(_request(MISSING), "There is no such page", "This page is not here.", index=False)
        return self._page("missing.html", MissingContext(frame))

    def _page(self, template: str, context: DataclassInstance) -> str:
        """A page that only a published site has."""
        return State().fill(self.site.templates.render(template, context))

    def _what_it_holds(self) -> str:
        context = PublishedContext(
            frame=self.site.frame(
                _request(HOLDS), "What it holds", "Which pages and recorded runs this published atlas holds."
            ),
            models=tuple(
                Link(model.name, node_href(model.id)) for model in readable(self.catalog) if model.id in self.models
            ),
            pages=sum(not page.path.startswith("/embed/") for page in self.listing.pages),
            budget=megabytes(self.budget),
            runs=tuple(self._run(run) for run in self.runs),
        )
        return self._page("published.html", context)

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


def _request(path: str) -> Request:
    return Request({"type": "http", "method": "GET", "scheme": "http", "path": path, "query_string": b"",
                    "headers": [], "server": (HOST, 80)})  # fmt: skip


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
