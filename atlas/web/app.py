"""The web application: routers, middleware and the backend's life, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware

from atlas import __version__
from atlas.catalog import Catalog, open_catalog
from atlas.inspection.ledger import Ledger
from atlas.render.assets import static_dir, templates_dir
from atlas.render.javascript import KEPT, keep_answers
from atlas.settings import Settings
from atlas.web import (
    api,
    checkpoints,
    explain,
    expressions,
    meanings,
    metrics,
    pages,
    problems,
    recorded,
    runs,
    tensors,
)
from atlas.web.access import Access, HostCheck, OriginCheck
from atlas.web.limits import RequestLimit, Streams, TimeLimit
from atlas.web.live_values import LiveValues
from atlas.web.metrics import Metrics, Observed
from atlas.web.page_cache import PageCache, conditions
from atlas.web.security import BodyLimit, RequestId, SecurityHeaders
from atlas.web.site import Site
from atlas.web.static_files import VersionedFiles
from atlas.web.templates import Templates

NUMBERS = ("application/octet-stream", "application/vnd.safetensors", "application/x-npy")
"""Tensors leave as they are: packing them would take longer than sending them."""


def create_app(settings: Settings, *, catalog: Catalog | None = None, backend: LiveValues | None = None) -> FastAPI:
    """The app. With a backend its start and end are the app's; without one there are no live values.

    `catalog` is the one that the backend has.

    Raises `AssetMissing` where the installation is incomplete and `DeclarationError` for a bad lock or model.
    """
    catalog = catalog or open_catalog(settings.data_dir)
    keep_answers(settings.data_dir / KEPT)
    files = VersionedFiles(static_dir())
    ledger = Ledger(settings, catalog)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if backend is not None:
            backend.start()
        try:
            yield
        finally:
            if backend is not None:
                backend.close()

    app = FastAPI(
        title="OpenModelAtlas",
        version=__version__,
        summary="Language models from the inside: graph, equations, pinned sources and live tensors.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.catalog = catalog
    app.state.backend = backend
    app.state.streams = Streams(settings.max_streams, settings.max_streams_per_client)
    app.state.metrics = Metrics(app.state.streams)
    app.state.site = Site(catalog, Templates(templates_dir(), files), backend, ledger)
    problems.install(app)
    app.include_router(api.router)
    app.include_router(runs.router)
    app.include_router(checkpoints.router)
    app.include_router(recorded.router)
    app.include_router(expressions.router)
    app.include_router(explain.router)
    app.include_router(tensors.router)
    app.include_router(meanings.router)  # ends with the address that takes any node's path
    app.include_router(metrics.router)
    app.include_router(pages.router)
    app.mount("/static", files)

    # The last one added is the outermost.
    app.add_middleware(
        GZipMiddleware,
        minimum_size=1024,
        compresslevel=5,
        exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, *NUMBERS),
    )
    app.add_middleware(PageCache, conditions=lambda: conditions(catalog, backend, settings.data_dir))
    app.add_middleware(BodyLimit, limit=settings.max_body_bytes, larger={recorded.PATH: settings.max_bundle_bytes})
    app.add_middleware(OriginCheck, settings=settings)
    app.add_middleware(Access, settings=settings)
    if settings.requests_per_minute:
        app.add_middleware(RequestLimit, a_minute=settings.requests_per_minute)
    app.add_middleware(TimeLimit, seconds=settings.request_seconds)
    app.add_middleware(HostCheck, settings=settings)
    app.add_middleware(problems.LastHandler, owner=app)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Observed, metrics=app.state.metrics)
    app.add_middleware(RequestId)
    return app
