"""A running server on the engine that all tests share, and Chromium to look at it with."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, sync_playwright

from atlas.catalog import Catalog
from atlas.runtime.engine import Engine
from atlas.settings import Settings
from atlas.web.app import create_app
from tests.web.conftest import SharedBackend

CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
Serve = Callable[..., "Server"]


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
def app_with(catalog: Catalog, own_data_dir: Path) -> Callable[[Engine], FastAPI]:
    """Makes an application around an engine that somebody else starts and stops."""

    def make(engine: Engine) -> FastAPI:
        settings = Settings(data_dir=own_data_dir)
        return create_app(settings, catalog=catalog, backend=SharedBackend(settings, catalog, engine))

    return make


@pytest.fixture(scope="session")
def site(app_with: Callable[[Engine], FastAPI], engine: Engine) -> Iterator[str]:
    """The address of a running server with live values, its demonstration done."""
    server = Server(app_with(engine))
    yield server.address
    server.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM)
        yield browser
        browser.close()


@contextmanager
def opened(chromium: Browser, site: str, **options: object) -> Iterator[Page]:
    """A page in a fresh context. Errors of its scripts fail the test; those of the network it may meet on purpose."""
    given: dict[str, object] = {"viewport": {"width": 1440, "height": 1000}, "color_scheme": "light"} | options
    context = chromium.new_context(base_url=site, **given)  # type: ignore[arg-type]
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


@pytest.fixture
def page(chromium: Browser, site: str) -> Iterator[Page]:
    """A page of 1,440 pixels in the light theme."""
    with opened(chromium, site) as page:
        yield page
