"""The pages in Chromium: lights, search, keys, theme, narrow and wide, without scripts, and for all readers (axe)."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.request import urlopen

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, Request, ViewportSize, expect

from atlas.catalog import Catalog
from atlas.settings import Settings
from atlas.web.app import create_app
from tests.chromium import faultless, launched

UPDATE = "/models/llama-3-8b/blocks/attention/attention-update"
KINDS = (
    "/",
    "/models/llama-3.1-8b",
    "/models/llama-3-8b/blocks",
    f"{UPDATE}?view=prefill",
    "/models/llama-3-8b/blocks/attention/masked-similarities?view=decode",
    "/models/smollm2-135m/blocks/attention/key-cache?view=decode",
    "/models/smollm2-135m/embedding/weight",
    "/models/llama-3.1-8b/rotary/scale-frequencies",
    "/how-to-read",
    "/walk",
    "/glossary",
    "/embed/llama-3-8b/blocks/attention",
    "/compare?a=llama-3-8b&b=llama-3.1-8b",
    "/search?q=softmax",
    "/docs",
    "/nowhere",
)


WATCH_SHIFTS = """window.moved = 0; new PerformanceObserver(list => {
    for (const shift of list.getEntries()) if (!shift.hadRecentInput) window.moved += shift.value;
}).observe({ type: "layout-shift", buffered: true });"""


def transferred(asked: list[Request]) -> int:
    """The bytes of a page's answers as they were sent, besides fonts and values."""
    return sum(one.sizes()["responseBodySize"] for one in asked if "/fonts/" not in one.url and "/api/" not in one.url)


@pytest.fixture(scope="module")
def site(live_app: FastAPI) -> Iterator[str]:
    """The address of the running application."""
    with served(live_app) as address:
        yield address


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of an application, on a free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Page]:
    """A page whose scripts have no errors."""
    with faultless(browser, site) as page:
        yield page


def lit(page: Page) -> list[str]:
    """What is lit: the kinds of place, each once."""
    found: list[str] = page.evaluate(
        """() => [...new Set([...document.querySelectorAll(".lit")].map(one =>
            one.closest("svg.diagram-svg") ? "diagram" : one.closest(".katex-display") ? "equation" :
            one.closest(".code") ? "code" : one.closest(".flow") ? "list" :
            one.closest(".chips") ? "chip" : "other"))].sort()"""
    )
    return found


def test_a_light_shines_in_every_direction(page: Page) -> None:
    page.goto(f"{UPDATE}?view=prefill")
    node = 'data-node="blocks/attention/attention-update"'
    for place in ("svg.diagram-svg g", ".katex-display span", ".code span"):
        page.mouse.move(0, 0)
        assert lit(page) == []
        page.locator(f"{place}[{node}]").first.hover()
        assert {"diagram", "equation", "code", "list"} <= set(lit(page)), place
    page.locator('.flow a[data-node="blocks/attention/output-weight"]').focus()
    assert {"diagram", "equation", "list"} <= set(lit(page))
    page.locator('.chip[data-axis="d_model"]').focus()
    assert "list" in lit(page)
    assert page.locator(".lit").count() == page.locator('[data-axis="d_model"]').count()


def test_a_light_by_touch_stays_until_another_place_is_touched(browser: Browser, site: str) -> None:
    context = browser.new_context(base_url=site, has_touch=True, viewport={"width": 360, "height": 740})
    page = context.new_page()
    page.goto(UPDATE)
    page.locator('.katex-display [data-node="blocks/attention/output-weight"]').first.tap()
    assert "list" in lit(page)
    page.locator(".lede").tap()
    assert lit(page) == []
    context.close()


def test_search_by_keyboard_alone(page: Page) -> None:
    page.goto(f"{UPDATE}?view=decode")
    page.keyboard.press("/")
    page.keyboard.type("blk.3.attn_k.weight")
    first = page.locator('#search-hits [role="option"]').first
    expect(first).to_contain_text("Key weight")
    expect(first).to_contain_text("GGUF")
    expect(first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(first).to_have_attribute("aria-selected", "false")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url("**/blocks/attention/key-weight?view=decode&layer=3")
    page.keyboard.press("Control+k")
    expect(page.locator("#search-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#search-dialog")).not_to_be_visible()


def test_keys_lead_along_the_flow_and_are_listed(page: Page) -> None:
    page.goto(UPDATE)
    page.keyboard.press("3")
    page.wait_for_url(f"**{UPDATE}?view=decode")
    page.keyboard.press("n")
    page.wait_for_url("**/blocks/attention-residual?view=decode*")
    page.keyboard.press("p")
    page.wait_for_url(f"**{UPDATE}?view=decode*")
    page.keyboard.press("?")
    sheet = page.locator("#keys-dialog")
    expect(sheet).to_be_visible()
    for words in ("Search", "View: Prefill", "Next node", "Up: the component around", "Next layer"):
        expect(sheet).to_contain_text(words)
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    page.wait_for_url("**/blocks/attention?view=decode*")
    page.keyboard.press("?")
    page.get_by_label("Single keys are on").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    page.wait_for_timeout(100)
    expect(page.locator("#views a[aria-current=page]")).to_have_text("Decode")
    page.evaluate("localStorage.clear()")


def test_what_is_open_and_the_layer_go_along_from_the_diagram(page: Page) -> None:
    page.goto("/models/smollm2-135m/blocks/attention-residual")
    page.get_by_role("link", name="Open Attention here").click()
    softmax = page.locator('#diagram a.node-link:has([data-node="blocks/attention/softmax"])')
    expect(softmax).to_be_visible()
    page.keyboard.press("]")
    expect(page).to_have_url(re.compile(r"(?=.*layer=1)(?=.*open=blocks/attention)"))
    # Without a pointer: where a layer is not recorded, a note comes and moves what is below it.
    page.locator("details[data-panel=take] > summary").dispatch_event("click")
    expect(page).to_have_url(re.compile(r"(?=.*panels=take)(?=.*open=blocks/attention)"))
    softmax.click()
    expect(page.locator("h1")).to_have_text("Softmax over keys")
    expect(page).to_have_url(re.compile(r"(?=.*layer=1)(?=.*open=blocks/attention)"))


def test_the_theme_is_switched_at_once_and_kept_without_a_flash(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 21, 25)"
    page.goto(UPDATE)
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(251, 250, 247)"
    page.reload()
    assert page.locator("html").get_attribute("data-theme") is None


def test_code_is_copied_without_its_numbers(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(UPDATE)
    page.get_by_label("Copy the code of model.py").first.click()
    expect(page.get_by_text("copied", exact=True)).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.splitlines()[-1] == "        return self.wo(output)"


@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_is_wider_than_the_window_and_nothing_moves(browser: Browser, site: str, width: int) -> None:
    context = browser.new_context(base_url=site, viewport={"width": width, "height": 800})
    page = context.new_page()
    page.add_init_script(WATCH_SHIFTS)
    for address in KINDS:
        page.goto(address, wait_until="networkidle")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
        assert page.evaluate("window.moved") < 0.01, address
        assert page.evaluate("document.querySelector('.place-bar')?.offsetHeight ?? 0") < 110, "it stays in sight"
    context.close()


def test_without_scripts_a_page_is_whole(browser: Browser, site: str) -> None:
    context = browser.new_context(base_url=site, java_script_enabled=False, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(f"{UPDATE}?view=decode&layer=4")
    expect(page.locator("h1")).to_have_text("Attention update")
    expect(page.locator(".diagram-svg")).to_be_visible()
    expect(page.locator(".katex-display").first).to_be_visible()
    expect(page.locator("#code")).to_contain_text("return self.wo(output)")
    expect(page.locator("#live")).to_contain_text("stands in")
    page.get_by_label("Next layer").click()
    assert "layer=5" in page.url
    page.locator("#q").fill("hook_z")
    page.locator("#q").press("Enter")
    page.locator(".hits a").first.click()
    expect(page.locator("h1")).to_have_text("Head outputs")
    context.close()


@pytest.mark.parametrize(("theme", "width"), [("light", 360), ("dark", 1440)])
def test_axe_finds_nothing(browser: Browser, site: str, theme: Literal["light", "dark"], width: int) -> None:
    size: ViewportSize = {"width": width, "height": 900}
    context = browser.new_context(base_url=site, viewport=size, color_scheme=theme, bypass_csp=True)
    page = context.new_page()
    found = []
    for address in KINDS:
        page.goto(address)
        for one in Axe().run(page).response["violations"]:
            found.append((address, one["id"], [node["html"][:120] for node in one["nodes"][:2]]))
    context.close()
    assert found == []


def test_a_key_after_escape_is_for_the_page(page: Page) -> None:
    """Between two frames the focus is still in the sheet that Escape has closed."""
    page.goto("/how-to-read")
    page.keyboard.press("?")
    expect(page.get_by_label("Single keys are on")).to_be_focused()
    page.evaluate(
        """() => {
          const box = document.activeElement;
          box.closest("dialog").close();
          box.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true, cancelable: true }));
        }"""
    )
    expect(page.locator("#search-dialog")).to_be_visible()
    expect(page.get_by_role("combobox")).to_be_focused()


def test_dialogs_are_for_all_readers_too(browser: Browser, site: str) -> None:
    context = browser.new_context(base_url=site, bypass_csp=True)
    page = context.new_page()
    page.goto(UPDATE)
    page.keyboard.press("?")
    assert Axe().run(page).response["violations"] == []
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("softmax")
    expect(page.locator('#search-hits [role="option"]').first).to_be_visible()
    assert Axe().run(page).response["violations"] == []
    context.close()


@pytest.mark.parametrize("address", ["/", "/models/gemma-3-1b", f"{UPDATE}?view=prefill"])
def test_on_paper_a_page_is_light_and_whole(browser: Browser, site: str, address: str) -> None:
    context = browser.new_context(base_url=site, viewport={"width": 700, "height": 990}, color_scheme="dark")
    page = context.new_page()
    page.goto(address)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.card, .model-card')).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for place in (".site-bar", ".place-bar", ".to-map", "#theme", ".foot nav"):
        assert not page.locator(place).is_visible(), place
    if address != "/":
        for place in ("#diagram .diagram-svg", ".code", "#sources"):
            expect(page.locator(place).first).to_be_visible()
        high = page.evaluate("document.querySelector('#diagram .diagram-svg').getBoundingClientRect().height")
        assert high < 990, "it fits on a sheet"
    context.close()


@pytest.fixture(scope="module")
def large_site(catalog: Catalog, own_data_dir: Path) -> Iterator[str]:
    """A site of a hundred models that are made up, and those there are."""
    many = Catalog(catalog.store)
    one = many.entry("llama-3-8b")
    for number in range(100):
        name = f"Made up {number}"
        many.add(one.model_copy(update={"id": f"made-up-{number}", "name": name, "rank": 200 + number}))
    with served(create_app(Settings(data_dir=own_data_dir), catalog=many)) as address:
        for first in ("/", "/api/search?q=made+up"):  # the first to ask waits for all graphs, and for the index
            with urlopen(address + first, timeout=300) as answer:
                assert answer.status == 200
        yield address


def test_the_front_page_of_a_hundred_models_keeps_its_bounds(browser: Browser, large_site: str) -> None:
    context = browser.new_context(base_url=large_site, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.add_init_script(WATCH_SHIFTS)
    asked: list[Request] = []
    page.on("requestfinished", lambda one: asked.append(one))
    page.goto("/", wait_until="networkidle")
    assert page.locator(".model-card").count() > 100
    assert transferred(asked) < 150_000
    assert page.evaluate("window.moved") < 0.01
    context.close()


def test_the_front_page_of_a_hundred_models_is_walked_by_keyboard(browser: Browser, large_site: str) -> None:
    context = browser.new_context(base_url=large_site, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto("/")
    page.evaluate(
        """() => {
          window.reached = [];
          document.addEventListener("focusin", ({ target }) => {
            if (!target.matches(".model-card h3 a")) return;
            const box = target.getBoundingClientRect();
            const ringed = getComputedStyle(target).outlineStyle !== "none";
            window.reached.push([target.textContent, ringed && box.bottom > 0 && box.top < innerHeight]);
          });
        }"""
    )
    cards = page.locator(".model-card h3 a").all_text_contents()
    page.locator(".start a").last.focus()
    for _ in range(page.locator(".model-card a").count()):
        page.keyboard.press("Tab")
    assert page.evaluate("window.reached") == [[name, True] for name in cards]
    page.keyboard.press("/")
    page.keyboard.type("made up 77")
    expect(page.locator('#search-hits [role="option"]').first).to_contain_text("Made up 77")
    page.keyboard.press("Enter")
    page.wait_for_url("**/models/made-up-77")
    context.close()


@pytest.mark.parametrize("address", [UPDATE, "/", "/models/llama-3-8b"])
def test_a_page_is_light(browser: Browser, site: str, address: str) -> None:
    context = browser.new_context(base_url=site, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    asked: list[Request] = []
    page.on("requestfinished", lambda one: asked.append(one))
    page.goto(address, wait_until="load")
    assert transferred(asked) < 150_000
    context.close()
