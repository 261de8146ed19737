"""How much one client may ask for, and how long an answer may take.

Requests in a minute, event streams at once, seconds until an answer begins, seconds that a client may leave an answer
lying. A client is an address (of IPv6 its network: a machine has many). Middleware is plain ASGI and raises; `problems`
answers. What limits runs is the engine's; how large a body may be is `security`'s.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atlas.errors import TimedOut, TooMany

log = logging.getLogger(__name__)
STALLED = 30.0
"""Seconds that a client may take nothing of an answer before it is cut off."""
FREE = ("/healthz", "/readyz", "/static/")
"""What is not counted: it costs next to nothing, and one page loads many files."""


def client_of(scope: Scope) -> str:
    """Whom a request counts for: an IPv4 address, the /64 network of an IPv6 one, or what the server calls it."""
    client = scope.get("client")
    name = str(client[0]) if client else "unknown"
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class RequestLimit:
    """Counts each client's requests over a sliding minute; beyond `a_minute` they are refused with `TooMany`."""

    def __init__(self, app: ASGIApp, a_minute: int) -> None:
        self.app = app
        self.item = RateLimitItemPerMinute(a_minute)
        self.limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(FREE):
            client = client_of(scope)
            if not self.limiter.hit(self.item, client):
                raise TooMany(
                    f"More than {self.item.amount:,} requests came from {client} in a minute.",
                    "Wait a moment; whoever runs this server can raise --requests-per-minute.",
                    limit=self.item.amount,
                    retry_after=10,
                )
        await self.app(scope, receive, send)


class TimeLimit:
    """Ends what takes too long, and what nobody waits for.

    An answer must begin within `seconds`, else `TimedOut`. A client that takes nothing of it for `stalled` seconds is
    cut off. Where the client of a GET has left, whatever it was waiting for is cancelled.
    """

    def __init__(self, app: ASGIApp, seconds: float, stalled: float = STALLED) -> None:
        self.app = app
        self.seconds = seconds
        self.stalled = stalled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Answer(receive, send, asyncio.timeout(self.seconds), self.stalled)
        # What has a body reads it, and finds out by itself when there is no more of it.
        bodiless = scope["method"] in ("GET", "HEAD")
        watcher = asyncio.create_task(answer.watch()) if bodiless else None
        try:
            async with answer.limit:
                await self.app(scope, answer.receive if bodiless else receive, answer.send)
        except TimeoutError:
            if not answer.limit.expired():
                raise
            if not answer.ended:
                raise TimedOut(
                    f"The answer did not begin within {self.seconds:g} seconds.",
                    "Ask again in a moment, or for less; whoever runs this server can raise --request-seconds.",
                    limit=self.seconds,
                ) from None
            log.info("%s %s: its client has %s", scope["method"], scope["path"], answer.ended)
        finally:
            if watcher is not None:
                watcher.cancel()


class _Answer:
    """One answer on its way: when it must have begun, and whether its client is still there."""

    def __init__(self, receive: Receive, send: Send, limit: asyncio.Timeout, stalled: float) -> None:
        self._receive = receive
        self._send = send
        self._stalled = stalled
        self._asked = self._complete = False
        self._gone = asyncio.Event()
        self.limit = limit
        self.ended = ""

    async def send(self, message: Message) -> None:
        """Sends on. Never comes back from a client that takes nothing."""
        if message["type"] == "http.response.start" and not self.limit.expired():
            self.limit.reschedule(None)
        try:
            async with asyncio.timeout(self._stalled):
                await self._send(message)
        except TimeoutError:
            self._end("taken nothing of it for too long")
            await asyncio.Event().wait()  # for the cancellation that is due now
        self._complete = message["type"] == "http.response.body" and not message.get("more_body", False)

    async def receive(self) -> Message:
        """An empty body, then the end of the connection."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def watch(self) -> None:
        """Wait for the end of the connection; if the answer is not complete by then, nobody waits for it."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()
        if not self._complete:
            self._end("left")

    def _end(self, why: str) -> None:
        if not self.limit.expired():
            self.ended = why
            self.limit.reschedule(asyncio.get_running_loop().time())


class Streams:
    """Event streams that are open. Belongs to one event loop."""

    def __init__(self, most: int, most_per_client: int) -> None:
        self.most = most
        self.most_per_client = most_per_client
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """A place for one more stream, for as long as it is entered. Raises `TooMany`."""
        if len(self) >= self.most:
            raise TooMany(
                f"{len(self):,} event streams are open, and no more may.",
                "Ask for the run itself from time to time: GET /api/runs/{id}.",
                limit=self.most,
            )
        if self._open[client] >= self.most_per_client:
            raise TooMany(
                f"{self._open[client]} event streams are open from {client}, and no more may.",
                "Close one: a tab that follows a run has one.",
                limit=self.most_per_client,
            )
        self._open[client] += 1
        try:
            yield
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]
