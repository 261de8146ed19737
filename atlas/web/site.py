"""The site around the pages: catalogue, templates, backend, and the frame that every page has.

Owns how a request becomes a frame (title, canonical address, theme, other models) and how a context becomes an
answer. Each kind of page is built elsewhere.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from atlas.catalog import Catalog, Model
from atlas.inspection.ledger import Ledger
from atlas.web.live_values import LiveValues
from atlas.web.model_view import Views
from atlas.web.pieces import Frame, Link, PlaceBar
from atlas.web.readable import readable
from atlas.web.search_index import SearchIndex
from atlas.web.state import State, node_href
from atlas.web.templates import Templates

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NAME = "OpenModelAtlas"
THEMES = ("light", "dark")
STYLES = ("vendor/katex/katex.min.css", "theme.css", "frame.css", "page.css", "code.css", "diagram.css", "proofs.css")
SCRIPTS = ("site.js",)
SWITCHER_LIMIT = 12


class Published(Protocol):
    """A site of files without a server: its address, where that is known, and those of its pages.

    `address` gives the full address of a page by its address on a server, which stays where the site's is not known.
    """

    url: str

    def address(self, href: str) -> str: ...


class Site:
    """What every page needs. One for each app. `published` is set where pages become files of a site."""

    def __init__(self, catalog: Catalog, templates: Templates, backend: LiveValues | None, ledger: Ledger) -> None:
        self.catalog = catalog
        self.templates = templates
        self.backend = backend
        self.ledger = ledger
        self.views = Views(catalog)
        self.index = SearchIndex(catalog)
        self.published: Published | None = None

    def frame(
        self,
        request: Request,
        title: str,
        description: str,
        *,
        model: Model | None = None,
        path: str = "",
        place: PlaceBar | None = None,
        index: bool = True,
    ) -> Frame:
        """The frame of a page. `title` is without the site's name. `model` and `path` say what it is about."""
        origin = f"{request.url.scheme}://{request.url.netloc}"
        canonical = f"{origin}{request.url.path}"
        if self.published is not None:
            origin = self.published.url
            canonical = self.published.address(request.url.path) if origin else ""
        about = f"/{model.id}{'/' if path else ''}{path}" if model is not None else ""
        theme = request.cookies.get("theme", "")
        return Frame(
            title=f"{title} · {NAME}" if title else NAME,
            description=description,
            canonical=canonical,
            origin=origin,
            theme=theme if theme in THEMES else "",
            model_id=model.id if model is not None else "",
            model_name=model.name if model is not None else "",
            others=self._others(model, path),
            query=request.query_params.get("q", "")[:200],
            place=place,
            scripts=SCRIPTS,
            styles=STYLES if self.published is not None else (*STYLES, "transitions.css"),
            index=index,
            preview_image=f"{origin}/preview{about}.png" if origin and index else "",
            published=self.published is not None,
            read_only=getattr(request.state, "read_only", False),
        )

    def _others(self, model: Model | None, path: str) -> tuple[Link, ...]:
        """The same node in other models, where they have it, else the model; those of the same architecture first."""
        models = list(readable(self.catalog))
        if model is not None:
            models.sort(key=lambda other: other.entry.architecture != model.entry.architecture)
        found = []
        for other in models[:SWITCHER_LIMIT]:
            has = bool(path) and path in other.graph.nodes
            found.append(Link(other.name, node_href(other.id, path if has else ""), other is model))
        return tuple(found)

    def answer(
        self, request: Request, template: str, context: DataclassInstance, state: State | None = None, status: int = 200
    ) -> Response:
        """The page as HTML; 304 where the browser has this very page already."""
        body = (state or State()).fill(self.templates.render(template, context)).encode()
        tag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Cookie"}
        if status == 200 and tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return HTMLResponse(body, status, headers)
