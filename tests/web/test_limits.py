"""What one client may ask for: requests in a minute, streams at once, time; and what happens when it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from atlas.catalog import Catalog
from atlas.errors import TimedOut, TooMany
from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.limits import Streams, TimeLimit, client_of

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/api/runs/x", "headers": []}
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
        (None, "unknown"),
    ],
)
def test_who_a_request_counts_for(address: str | None, client: str) -> None:
    assert client_of({"client": None if address is None else (address, 1234)}) == client


def test_beyond_the_limit_a_client_waits_and_others_do_not(catalog: Catalog, tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path, requests_per_minute=5), catalog=catalog)
    one, other = (TestClient(app, client=(address, 1)) for address in ("10.0.0.1", "10.0.0.2"))
    assert [one.get("/api/models").status_code for _ in range(5)] == [200] * 5
    answer = one.get("/api/models")
    assert (answer.status_code, answer.json()["code"], answer.json()["limit"]) == (429, "too-many", 5)
    assert answer.headers["retry-after"] == "10"
    assert "--requests-per-minute" in answer.json()["hint"]
    page = one.get("/how-to-read")
    assert (page.status_code, page.headers["content-type"]) == (429, "text/html; charset=utf-8")
    assert one.get("/healthz").status_code == 200
    assert one.get("/static/site.js").status_code == 200
    assert other.get("/api/models").status_code == 200


def test_streams_have_places() -> None:
    streams = Streams(most=3, most_per_client=2)
    with streams.place("a"), streams.place("a"):
        with pytest.raises(TooMany, match="2 event streams are open from a"), streams.place("a"):
            pass
        with streams.place("b"):
            assert len(streams) == 3
            with pytest.raises(TooMany, match="3 event streams"), streams.place("c"):
                pass
    assert len(streams) == 0
    with streams.place("a"):
        assert len(streams) == 1


def run(
    app: App, *, seconds: float = 5.0, stalled: float = 5.0, scope: Scope = SCOPE, leave_after: float = 60.0
) -> Any:
    """Run an application under the limit; gives what was sent. Its client leaves after a while."""

    async def main() -> list[Message]:
        sent: list[Message] = []

        async def receive() -> Message:
            await asyncio.sleep(leave_after)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message.get("body") == b"stuck":
                await asyncio.sleep(60)
            sent.append(message)

        async with asyncio.timeout(10):
            await TimeLimit(app, seconds, stalled)(dict(scope), receive, send)
        return sent

    return asyncio.run(main())


START: Message = {"type": "http.response.start", "status": 200, "headers": []}


def test_an_answer_that_does_not_begin_in_time_is_ended() -> None:
    ended = []

    async def slow(_: Scope, __: Receive, send: Send) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        await send(START)

    with pytest.raises(TimedOut, match=r"within 0\.05 seconds") as caught:
        run(slow, seconds=0.05)
    assert "--request-seconds" in caught.value.hint
    assert ended == ["cancelled"]


def test_an_answer_that_has_begun_may_take_its_time() -> None:
    async def stream(_: Scope, __: Receive, send: Send) -> None:
        await send(START)
        await asyncio.sleep(0.2)
        await send({"type": "http.response.body", "body": b"end"})

    assert [message["type"] for message in run(stream, seconds=0.05)] == ["http.response.start", "http.response.body"]


def test_a_client_that_takes_nothing_is_cut_off() -> None:
    left = []

    async def stream(_: Scope, __: Receive, send: Send) -> None:
        try:
            await send(START)
            for _number in range(100):
                await send({"type": "http.response.body", "body": b"stuck", "more_body": True})
        finally:
            left.append("stream")

    assert run(stream, stalled=0.05) == [START]
    assert left == ["stream"]


def test_what_nobody_waits_for_is_cancelled() -> None:
    left = []

    async def slow(_: Scope, receive: Receive, __: Send) -> None:
        assert (await receive())["type"] == "http.request"
        try:
            await asyncio.sleep(60)
        finally:
            left.append("gone")

    assert run(slow, leave_after=0.05) == []
    assert left == ["gone"]


def test_the_application_hears_that_its_client_has_left() -> None:
    async def polite(_: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await receive()
        async with asyncio.timeout(2):
            heard = await receive()
        await send({"type": "http.response.body", "body": heard["type"].encode()})

    # Its end is already due, so that it is cancelled as it hears of it, or just after.
    assert run(polite, leave_after=0.05)[0] == START


def test_a_request_with_a_body_reads_it_itself() -> None:
    async def reader(_: Scope, receive: Receive, send: Send) -> None:
        heard = await receive()
        await send(START)
        await send({"type": "http.response.body", "body": heard["type"].encode()})

    sent = run(reader, scope={**SCOPE, "method": "POST"}, leave_after=0.05)
    assert sent[-1]["body"] == b"http.disconnect"


def test_an_error_passes_through() -> None:
    async def wrong(*_: object) -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError):
        run(wrong)
