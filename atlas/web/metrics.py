"""What the server has done, for whoever watches it: Prometheus metrics at /metrics, and a log line for each request.

Owns the numbers of requests and streams; those of runs and replays are the engine's. Neither metrics nor log lines say
what was in a request: no query, no prompt, no token.
"""

from __future__ import annotations

import logging
import time

from fastapi import APIRouter
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atlas.errors import Forbidden
from atlas.web.access import is_loopback
from atlas.web.backend import Backend
from atlas.web.limits import Streams, client_of
from atlas.web.problems import request_id

router = APIRouter(include_in_schema=False)
log = logging.getLogger("atlas.requests")
PROBES = ("/healthz", "/readyz", "/metrics")
"""What machines ask for again and again: logged only for who looks for faults."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)

disable_created_metrics()  # type: ignore[no-untyped-call]  # when a counter began is of no use to anybody


class Metrics:
    """The numbers of one application, in a registry of their own."""

    def __init__(self, streams: Streams) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "atlas_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "atlas_request_seconds",
            "Time until an answer began.",
            ["route"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        Gauge("atlas_event_streams", "Event streams that are open.", registry=self.registry).set_function(
            lambda: len(streams)
        )

    def text(self) -> bytes:
        """All numbers, in Prometheus' format."""
        return generate_latest(self.registry)


class Observed:
    """Counts, times and logs each request. Outermost but for what names the request."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, began, status = time.perf_counter(), 0.0, 0

        async def watched(message: Message) -> None:
            nonlocal began, status
            if message["type"] == "http.response.start":
                began, status = time.perf_counter() - started, message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            route = route_of(scope)
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(method, route, status or "none").inc()
            if status:
                self.metrics.seconds.labels(route).observe(began)
            log.log(
                logging.DEBUG if scope["path"] in PROBES else logging.INFO,
                "%s %s",
                scope["method"],
                scope["path"],
                extra={
                    "client": client_of(scope),
                    "route": route,
                    "status": status,
                    "ms": round(1000 * (time.perf_counter() - started), 1),
                    "request_id": request_id(scope),
                },
            )


METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"})


def route_of(scope: Scope) -> str:
    """The template of the address, so that there are as many as there are routes."""
    if scope["path"].startswith("/static/"):
        return "/static"
    return str(getattr(scope.get("route"), "path", "") or "none")


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """Numbers for Prometheus. A server that everybody may read shows them to this machine, and to who has the token."""
    if request.state.read_only and not is_loopback(client_of(request.scope)):
        raise Forbidden(
            "The numbers of a public server are not public.", "Ask from its own machine, or with its token."
        )
    mine: Metrics = request.app.state.metrics
    backend = request.app.state.backend
    theirs = backend.metrics() if isinstance(backend, Backend) else b""
    return Response(mine.text() + theirs, media_type=CONTENT_TYPE_PLAIN_0_0_4)
