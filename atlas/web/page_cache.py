"""Pages that have been made, kept for the next reader.

A page is a function of its address, the reader's theme, and which model runs here: as long as those are the same, so
is the page, and it is given as bytes without being made again. What a run has computed is in no page, but asked for by
it. Owns the key, the memory and the answers from it; knows nothing of what is on a page.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atlas.catalog import Catalog
from atlas.web.live_values import LiveValues

KEPT_BYTES = 64 << 20
NO_PAGES = ("/api/", "/static/", "/metrics", "/healthz", "/readyz", "/openapi.json")
BESIDE = ("checks", "sources")
"""Directories of the data directory that `atlas check` and `atlas sources sync` write."""
REVALIDATED = frozenset({b"etag", b"cache-control", b"vary", b"content-encoding"})


@dataclass(frozen=True)
class _Page:
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    tag: str
    route: object


class PageCache:
    """Keeps whole pages, as they leave (packed, where the reader takes that), up to a number of bytes.

    `conditions` gives what every page may depend on besides its request.
    """

    def __init__(self, app: ASGIApp, conditions: Callable[[], Hashable], kept_bytes: int = KEPT_BYTES) -> None:
        self.app = app
        self.conditions = conditions
        self.kept_bytes = kept_bytes
        self._pages: OrderedDict[Hashable, _Page] = OrderedDict()
        self._bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"].startswith(NO_PAGES):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        key = self._key(scope, headers)
        page = self._pages.get(key)
        if page is None:
            page = await self._made(scope, receive, send)
            if page is not None:
                self._keep(key, page)
            return
        self._pages.move_to_end(key)
        scope["route"] = page.route
        known = bool(page.tag) and page.tag in headers.get("if-none-match", "")
        kept = [(name, value) for name, value in page.headers if name in REVALIDATED] if known else list(page.headers)
        await send({"type": "http.response.start", "status": 304 if known else 200, "headers": kept})
        await send({"type": "http.response.body", "body": b"" if known else page.body})

    def _key(self, scope: Scope, headers: Headers) -> Hashable:
        try:
            theme = SimpleCookie(headers.get("cookie", "")).get("theme")
        except CookieError:
            theme = None
        return (
            scope["scheme"],
            headers.get("host"),
            scope["path"],
            scope["query_string"],
            theme.value if theme is not None else "",
            "gzip" in headers.get("accept-encoding", ""),
            scope.get("state", {}).get("read_only", False),
            self.conditions(),
        )

    async def _made(self, scope: Scope, receive: Receive, send: Send) -> _Page | None:
        """Have the page made and sent; what is to be kept of it, if anything is."""
        start: Message = {}
        body = bytearray()

        async def listen(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = dict(message)
                start["headers"] = list(message.get("headers", []))
            else:
                body.extend(message.get("body", b""))
            await send(message)

        await self.app(scope, receive, listen)
        headers = MutableHeaders(raw=start.get("headers", []))
        if start.get("status") != 200 or not headers.get("content-type", "").startswith("text/html"):
            return None
        return _Page(tuple(headers.raw), bytes(body), headers.get("etag", ""), scope.get("route"))

    def _keep(self, key: Hashable, page: _Page) -> None:
        if key in self._pages or len(page.body) > self.kept_bytes // 8:
            return
        self._pages[key] = page
        self._bytes += len(page.body)
        while self._bytes > self.kept_bytes:
            _, dropped = self._pages.popitem(last=False)
            self._bytes -= len(dropped.body)


def conditions(catalog: Catalog, backend: LiveValues | None, data_dir: Path) -> Hashable:
    """What pages say of the backend (whether it is ready, what runs on it) and of what other commands write beside."""
    beside = tuple(_changed(data_dir / name) for name in BESIDE)
    if backend is None:
        return beside
    status = backend.status
    return (
        beside,
        status.ready,
        status.stage,
        status.progress,
        str(status.error),
        backend.demo_run(),
        backend.live_model,
        backend.quantization if status.ready else None,
        tuple(entry.id for entry in catalog if backend.has_checkpoint(entry.id)),
    )


def _changed(directory: Path) -> int:
    """When a directory was last changed; 0 where there is none."""
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0
