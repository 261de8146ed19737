"""Pages of an application as text, without a network: each is asked for as a browser would, in this process."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI
from starlette.types import Message

from atlas.errors import AtlasError

HOST = "127.0.0.1"


async def rendered(app: FastAPI, path: str, query: str) -> str:
    """The HTML at an address. Raises `AtlasError` where the application does not give a page."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", HOST.encode())],
        "client": (HOST, 1),
        "server": (HOST, 80),
        "app": app,
    }
    status, body = 0, bytearray()
    asked, answered = False, asyncio.Event()

    async def receive() -> Message:
        nonlocal asked
        if asked:
            await answered.wait()  # a browser stays until it has its page
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body.extend(message.get("body", b""))
            if not message.get("more_body", False):
                answered.set()

    await app(scope, receive, send)
    if status != 200:
        raise AtlasError(f"The page {path}?{query} could not be made: it answered {status}.", "See the lines above.")
    return body.decode()
