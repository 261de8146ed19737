"""A running server on the engine that all tests share, and Chromium to look at it with."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, expect

from tests.chromium import faultless, launched

PATIENCE = 30_000
"""Milliseconds that anything may take on a machine that others use too."""
Opened = Callable[..., AbstractContextManager[Page]]


class Server:
    """An application on a port of this machine, in a thread of its own."""

    def __init__(self, app: FastAPI, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.01)

    def close(self) -> None:
        """Stop listening."""
        self._server.should_exit = True
        self._thread.join(15)
        self._listener.close()


@pytest.fixture(scope="session")
def serve(live_app: FastAPI) -> Callable[..., Server]:
    """Serves the application with live values once more: `serve(port=0)`. Whoever asks closes it."""
    return lambda port=0: Server(live_app, port)


@pytest.fixture(scope="session")
def site(serve: Callable[..., Server]) -> Iterator[str]:
    """The address of a running server with live values, its demonstration done."""
    server = serve()
    yield server.address
    server.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, without a window, for one module: Playwright's event loop runs as long as it is open."""
    expect.set_options(timeout=PATIENCE)
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def opened(chromium: Browser) -> Opened:
    """Opens a page of 1,440 pixels in the light theme, unless told otherwise: `with opened(site, **options) as page`.

    Errors of its scripts fail the test; those of the network it may meet on purpose.
    """

    @contextmanager
    def open_page(site: str, **options: object) -> Iterator[Page]:
        given = {"viewport": {"width": 1440, "height": 1000}} | options
        with faultless(chromium, site, console=False, **given) as page:
            yield page

    return open_page


@pytest.fixture
def page(opened: Opened, site: str) -> Iterator[Page]:
    """A page on the shared server."""
    with opened(site) as page:
        yield page


@pytest.fixture
def open_page(page: Page) -> Callable[[str], Page]:
    """Goes to a path of the shared server."""

    def open_path(path: str) -> Page:
        page.goto(path)
        return page

    return open_path
