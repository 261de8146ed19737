"""Chromium for tests: the one that CHROMIUM names, by default Debian's, and pages whose scripts must have no errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

PROGRAM = os.environ.get("CHROMIUM") or "/usr/bin/chromium"
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
LEFT_OUT = "Transition was "
"""How Chromium begins to say that it leaves a transition between pages out, since the next page came sooner."""


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser without a window. Playwright's event loop runs as long as it is open."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def faultless(browser: Browser, site: str, *, console: bool = True, **options: Any) -> Iterator[Page]:
    """A page of 1,440 pixels in the light theme, unless told otherwise. Its scripts must have no errors.

    Without `console` what the browser writes to it does not count: that the network failed, say.
    """
    given = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"} | options
    context = browser.new_context(base_url=site, **given)
    page = context.new_page()
    errors: list[str] = []

    def wrote(message: ConsoleMessage) -> None:
        if console and message.type == "error":
            errors.append(message.text)

    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", wrote)
    yield page
    context.close()
    assert [error for error in errors if not error.startswith(LEFT_OUT)] == []
