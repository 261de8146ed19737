"""The pages of a published site in Chromium, served by `python -m http.server` below a path.

What a server's pages pass without a run of their own, those of files pass too: the same tests are called, each address
in them led to its file. Then what is a published site's own: parts of a diagram opened in place out of files, frames,
and the page for what is missing.
"""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from atlas.catalog import Catalog
from atlas.web.published.address import read
from tests.chromium import faultless, launched
from tests.published import file_server, publish
from tests.web import test_pages_in_browser as served

MODEL = "smollm2-135m"
BELOW = "/deep/below"
ATTENTION = f"/models/{MODEL}/blocks/attention"
UPDATE = f"{ATTENTION}/attention-update"
PART = ("blocks/attention", "blocks/attention-residual", "blocks/attention-norm", "embedding/weight")
KINDS = (
    f"{UPDATE}?view=prefill",
    f"{ATTENTION}/key-cache?view=decode",
    f"/models/{MODEL}/blocks/attention-norm/normalized?open=blocks/attention-norm",
    "/published",
    f"/embed/{MODEL}/blocks/attention",
    "/search?q=softmax",
)
"""Pages that are not as a server gives them; the others are looked at there."""


@pytest.fixture(scope="module")
def folder(bundle: Path, catalog: Catalog, own_data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a host, in which the site lies below a path."""
    host = tmp_path_factory.mktemp("host")
    out = host / BELOW.lstrip("/")
    out.parent.mkdir()
    publish(out, bundle, catalog, own_data_dir, (MODEL,), PART)
    return host


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    with file_server(folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Page]:
    """A page whose scripts have no errors, and which misses no file."""
    with faultless(browser, site) as page:
        yield page


def file_of(address: str) -> str:
    """Where the page that a server has at an address is on this host."""
    target, after = read(address)
    return f"{BELOW}/{target.file}{after}"


def packed(asked: list[Request]) -> int:
    """The bytes of a page's files as a host sends them that packs them, besides fonts and values."""
    wanted = [one for one in asked if "/fonts/" not in one.url and "/runs/" not in one.url]
    bodies = [answer.body() for one in wanted if (answer := one.response()) is not None]
    return sum(len(gzip.compress(body, 5)) for body in bodies)


@pytest.fixture(autouse=True)
def _addresses_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of a server's pages speak of a server's addresses."""
    go, wait = Page.goto, Page.wait_for_url

    def goto(page: Page, url: str, **options: Any) -> object:
        return go(page, file_of(url) if url.startswith("/") else url, **options)

    def wait_for_url(page: Page, url: str, **options: Any) -> None:
        path = url.removeprefix("**").removesuffix("*")
        file = file_of(path if path.startswith("/models/") else f"/models/{MODEL}{path}")
        wait(page, re.compile(re.escape(file) + (".*" if url.endswith("*") else "$")), **options)

    monkeypatch.setattr(Page, "goto", goto)
    monkeypatch.setattr(Page, "wait_for_url", wait_for_url)
    monkeypatch.setattr(served, "UPDATE", UPDATE)
    monkeypatch.setattr(served, "KINDS", KINDS)
    monkeypatch.setattr(served, "transferred", packed)


# --- as a server's


def test_a_light_shines_in_every_direction(page: Page) -> None:
    served.test_a_light_shines_in_every_direction(page)


def test_a_light_by_touch_stays_until_another_place_is_touched(browser: Browser, site: str) -> None:
    served.test_a_light_by_touch_stays_until_another_place_is_touched(browser, site)


def test_search_by_keyboard_alone(page: Page) -> None:
    served.test_search_by_keyboard_alone(page)


def test_keys_lead_along_the_flow_and_are_listed(page: Page) -> None:
    served.test_keys_lead_along_the_flow_and_are_listed(page)


def test_what_is_open_and_the_layer_go_along_from_the_diagram(page: Page) -> None:
    served.test_what_is_open_and_the_layer_go_along_from_the_diagram(page)


def test_the_theme_is_switched_at_once_and_kept(page: Page) -> None:
    served.test_the_theme_is_switched_at_once_and_kept_without_a_flash(page)


def test_code_is_copied_without_its_numbers(page: Page) -> None:
    served.test_code_is_copied_without_its_numbers(page)


@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_is_wider_than_the_window_and_nothing_moves(browser: Browser, site: str, width: int) -> None:
    served.test_nothing_is_wider_than_the_window_and_nothing_moves(browser, site, width)


def test_axe_finds_nothing(browser: Browser, site: str) -> None:
    served.test_axe_finds_nothing(browser, site, "dark", 360)


def test_a_key_after_escape_is_for_the_page(page: Page) -> None:
    served.test_a_key_after_escape_is_for_the_page(page)


def test_dialogs_are_for_all_readers_too(browser: Browser, site: str) -> None:
    served.test_dialogs_are_for_all_readers_too(browser, site)


def test_on_paper_a_page_is_light_and_whole(browser: Browser, site: str) -> None:
    served.test_on_paper_a_page_is_light_and_whole(browser, site, f"{UPDATE}?view=prefill")


@pytest.mark.parametrize("address", [UPDATE, "/"])
def test_a_page_is_light(browser: Browser, site: str, address: str) -> None:
    served.test_a_page_is_light(browser, site, address)


def test_without_scripts_a_page_is_whole(browser: Browser, site: str) -> None:
    context = browser.new_context(base_url=site, java_script_enabled=False, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(f"{UPDATE}?view=decode")
    expect(page.locator("h1")).to_have_text("Attention update")
    expect(page.locator("#diagram > .diagram-svg")).to_be_visible()
    expect(page.locator(".katex-display").first).to_be_visible()
    expect(page.locator("#code")).to_contain_text("return self.wo(output)")
    page.locator('.map a.node-link:has([data-node="blocks/attention/output-projection"])').click()
    expect(page.locator("h1")).to_have_text("Output projection")
    expect(page.locator("#views a[aria-current=page]")).to_have_text("Decode")
    page.locator(".foot").get_by_text("Search").click()
    expect(page.locator("h1")).to_have_text("Search")
    context.close()


# --- diagrams


def opened(page: Page) -> list[str]:
    """The parts that the page's diagram has open."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('#diagram > .diagram-svg .opened')].map(one => one.dataset.node)"
    )
    return found


def test_parts_open_in_place_and_the_address_brings_them_back(page: Page, site: str) -> None:
    page.goto(f"/models/{MODEL}?view=decode")
    page.evaluate("document.body.dataset.kept = 'the same document'")
    assert opened(page) == ["blocks"]
    page.get_by_role("link", name="Open Attention here").click()
    page.wait_for_selector('#diagram [data-node="blocks/attention/softmax"]')
    assert opened(page) == ["blocks", "blocks/attention"]
    assert page.get_attribute("body", "data-kept") == "the same document"
    expect(page.locator(":focus")).to_have_attribute("data-toggle", "blocks/attention")
    address = f"{file_of(f'/models/{MODEL}?view=decode')}?open=blocks,blocks/attention"
    expect(page).to_have_url(f"{site}{address}")
    page.goto("about:blank")
    page.goto(f"{site}{address}")
    page.wait_for_selector('#diagram [data-node="blocks/attention/softmax"]')
    page.get_by_role("link", name="Close Attention").click()
    page.wait_for_selector('#diagram [data-node="blocks/attention/softmax"]', state="detached")
    expect(page).to_have_url(re.compile(r"decode\.html$"))
    page.locator('.map a.node-link:has([data-node="blocks/attention"])').click()
    expect(page.locator("h1")).to_have_text("Attention")
    expect(page.locator("#views a[aria-current=page]")).to_have_text("Decode")


def test_what_is_open_goes_along_and_the_page_is_marked_in_it(page: Page) -> None:
    page.goto(f"/models/{MODEL}/blocks/attention-residual")
    assert opened(page) == []
    page.get_by_role("link", name="Open Attention here").click()
    page.wait_for_selector('#diagram [data-node="blocks/attention/softmax"]')
    marked = page.locator("#diagram .node.current")
    assert marked.get_attribute("data-node") == "blocks/attention-residual"
    assert page.locator("#diagram [aria-current=page]").count() >= 1
    near = page.eval_on_selector_all("#diagram .node.near", "all => all.map(one => one.dataset.node)")
    assert set(near) >= {"blocks/attention/attention-update", "blocks/mid-residual"}
    page.locator('#views a[data-view="prefill"]').click()
    page.wait_for_selector('#diagram [data-node="blocks/attention/softmax"]')
    expect(page).to_have_url(re.compile(r"attention-residual/prefill\.html\?.*open=blocks/attention"))


def test_beyond_what_is_drawn_the_part_that_is_asked_for_opens(page: Page) -> None:
    parts = ["rotary", "unembedding", "final-norm", "embedding", "blocks"]
    page.goto(f"/models/{MODEL}?open=")
    page.wait_for_selector("#diagram > .diagram-svg:not(:has(.opened))")
    for part in parts:
        sign = page.locator(f'#diagram a.toggle[data-toggle="{part}"]')
        expect(sign).to_have_attribute("aria-label", re.compile("^Open"))
        sign.click()
        page.wait_for_selector(f'#diagram .opened[data-node="{part}"]')
    assert opened(page) != sorted(parts)


def test_without_scripts_a_sign_leads_to_the_part(browser: Browser, site: str) -> None:
    context = browser.new_context(base_url=site, java_script_enabled=False, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(f"/models/{MODEL}?view=prefill")
    expect(page.locator("#diagram a.toggle[aria-label^=Close]")).to_be_hidden()
    page.get_by_role("link", name="Open Attention here").click()
    expect(page.locator("h1")).to_have_text("Attention")
    expect(page.locator("#views a[aria-current=page]")).to_have_text("Prefill")
    context.close()


# --- frames, and what is missing


def test_one_node_in_a_frame_of_another_page(page: Page, site: str) -> None:
    page.goto(UPDATE)
    page.locator("details.embed summary").click()
    said = page.locator("details.embed code").inner_text()
    assert said.startswith(f'<iframe src="{site}{BELOW}/embed/{MODEL}/blocks/attention/attention-update/index.html"')
    address = f"{site}{BELOW}/embed/{MODEL}/blocks/attention/attention-update/index.html?view=decode&theme=dark"
    page.goto("/how-to-read")
    page.evaluate(
        "src => document.querySelector('main').append(Object.assign(document.createElement('iframe'), { src }))",
        address,
    )
    frame = page.frame_locator("iframe")
    expect(frame.locator("h1")).to_contain_text("Attention update")
    expect(frame.locator("html")).to_have_attribute("data-theme", "dark")
    expect(frame.locator(".shape-words")).to_contain_text("1 position")
    frame.locator('[data-node="blocks/attention/output-weight"]').first.hover()
    assert frame.locator(".lit").count() > 1


class _WithMissingPage(SimpleHTTPRequestHandler):
    """A host that gives `404.html` of the site for what is missing, as GitHub's pages do."""

    def do_GET(self) -> None:
        if Path(self.translate_path(self.path)).exists():
            super().do_GET()
            return
        body = (Path(self.directory) / BELOW.lstrip("/") / "404.html").read_bytes()
        self.send_response(404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def host(bundle: Path, catalog: Catalog, own_data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a host with a page for what is missing, which knows where on the web the site is."""
    folder = tmp_path_factory.mktemp("host")
    out = folder / BELOW.lstrip("/")
    out.parent.mkdir()
    publish(out, bundle, catalog, own_data_dir, (MODEL,), ("token-ids",), f"https://example.org{BELOW}")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_WithMissingPage, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(10)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_is_missing_is_said_at_any_depth_and_leads_on(
    browser: Browser, host: str, theme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(base_url=host, color_scheme=theme)
    page = context.new_page()
    page.goto(f"{host}{BELOW}/models/{MODEL}/blocks/nowhere/tokn-ids/index.html")
    expect(page.locator("h1")).to_have_text("There is no such page")
    expect(page.locator("[data-asked]")).to_have_text(f"models/{MODEL}/blocks/nowhere/tokn-ids/index.html")
    first = page.locator(".hits .hit").first
    expect(first).to_contain_text("Token ids")
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == ("rgb(251, 250, 247)" if theme == "light" else "rgb(20, 21, 25)"), "its style sheets are found"
    first.click()
    expect(page.locator("h1")).to_have_text("Token ids")
    page.goto(f"{host}{BELOW}/nowhere")
    page.locator("main").get_by_role("link", name="All models").click()
    expect(page.locator("h1")).to_have_text("Look inside a language model")
    context.close()
