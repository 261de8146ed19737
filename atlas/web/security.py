"""What every answer carries for safety, and how large a request may be.

Plain ASGI middleware, so that streams pass through as they are. Knows nothing of pages but which of them may stand
in a frame of another site.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from contextvars import ContextVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atlas.errors import TooLarge

EMBEDDABLE = "/embed/"
REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
current_request: ContextVar[str] = ContextVar("current_request", default="")
"""The id of the request that is being answered, for log lines; empty outside of one."""


def content_security_policy(path: str) -> str:
    """Scripts and styles from here only. KaTeX writes style attributes, so those are allowed; no script is.

    Browsers that do not know `style-src-attr` go by `style-src`.
    """
    frames = "*" if path.startswith(EMBEDDABLE) else "'none'"
    return "; ".join(
        (
            "default-src 'self'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",
            "style-src-elem 'self'",
            "style-src-attr 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            f"frame-ancestors {frames}",
        )
    )


class RequestId:
    """Names each request: the client's own `X-Request-ID` if it is plain, else a new one. The answer carries it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        name = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex[:16]
        scope.setdefault("state", {})["request_id"] = name
        current_request.set(name)

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-ID"] = name
            await send(message)

        await self.app(scope, receive, named)


class SecurityHeaders:
    """Adds the policy and its kin to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = content_security_policy(scope["path"])
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "strict-origin-when-cross-origin"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
                headers["Permissions-Policy"] = "camera=(), geolocation=(), microphone=()"
            await send(message)

        await self.app(scope, receive, guarded)


class BodyLimit:
    """Refuses a body of more than `limit` bytes with `TooLarge`: at once where its length is declared, else as it
    passes the limit. `larger` has the limits of addresses that take more."""

    def __init__(self, app: ASGIApp, limit: int, larger: Mapping[str, int] | None = None) -> None:
        self.app = app
        self.limit = limit
        self.larger = larger or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.larger.get(scope["path"], self.limit)
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            raise self._too_large(limit)
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > limit:
                    raise self._too_large(limit)
            return message

        await self.app(scope, counted, send)

    def _too_large(self, limit: int) -> TooLarge:
        option = "--max-body-bytes" if limit == self.limit else "--max-bundle-bytes"
        return TooLarge(
            f"The body is larger than {limit:,} bytes.",
            f"Send less; whoever runs this server can raise {option}.",
            limit=limit,
        )
