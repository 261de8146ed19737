"""Hostile text as a prompt, as a query and as an address, wherever it is shown: it stays text, and no script runs."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

HOSTILE = (
    "</script><script>pwned=1</script><img src=x onerror=pwned=2><svg onload=pwned=3></textarea>"
    "<style>*{display:none}</style>'\"><a href=javascript:pwned=4>x</a>{{7*7}}${7*7}"
    "<iframe srcdoc='<script>parent.pwned=5</script>'></iframe>"
    "\u202e\u2028\x1b[31m\x00\r\n\r\nevent: done\r\ndata: {}\r\n\r\n"
)
WATCH = """
    window.violations = [];
    document.addEventListener("securitypolicyviolation", event => violations.push(
        `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
PATIENCE = 120_000
FOREIGN = "#live script, #live img, #live style, #live iframe, a[href^=javascript]"
MODEL = "smollm2-135m"
A = "blocks/attention/"
PLACES = [
    f"/models/{MODEL}/{A}attention-weights?view=full&layer=3",
    f"/models/{MODEL}/unembedding/logits?view=prefill",
    f"/models/llama-3-8b/{A}key-cache?view=decode&step=1",
]


def ask(site: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(site + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def run(site: str) -> str:
    """A run whose prompt is hostile."""
    found = ask(site, "/api/runs", {"model": MODEL, "prompt": HOSTILE, "max_new_tokens": 3})
    deadline = time.monotonic() + 120
    while found["status"] != "done":
        assert time.monotonic() < deadline
        time.sleep(0.05)
        found = ask(site, f"/api/runs/{found['id']}")
    assert found["prompt"] == HOSTILE
    return str(found["id"])


@pytest.fixture
def watched(chromium: Browser, site: str) -> Iterator[Page]:
    """A page that fails the test if a script of the text's runs, a dialog opens or the policy is broken."""
    context = chromium.new_context(base_url=site)
    context.add_init_script(WATCH)
    page = context.new_page()
    told: list[str] = []
    page.on("dialog", lambda dialog: told.append(dialog.message))
    page.on("pageerror", lambda error: told.append(str(error)))
    yield page
    assert unharmed(page) == [None, []]
    context.close()
    assert told == []


def unharmed(page: Page) -> Any:
    return page.evaluate("[window.pwned ?? null, window.violations]")


@pytest.mark.parametrize("place", PLACES)
def test_a_hostile_prompt_is_text_in_every_panel(watched: Page, run: str, place: str) -> None:
    watched.goto(f"{place}&run={run}")
    watched.wait_for_selector("#live[data-state=ready]", timeout=PATIENCE)
    strip = watched.locator("#token-strip")
    assert "pwned=2" in strip.inner_text().replace("\n", "")
    assert strip.locator("script, img, svg, style, iframe, a[href^=javascript]").count() == 0
    for details in watched.locator("#live details:visible").all():
        details.evaluate("element => { element.open = true; }")
    for token in watched.locator("#token-strip [data-position]").all()[:40:4]:
        token.hover()
    watched.wait_for_timeout(300)
    assert watched.locator(FOREIGN).count() == 0
    assert unharmed(watched) == [None, []]


def test_a_hostile_prompt_that_is_typed_and_followed_as_it_runs(watched: Page) -> None:
    watched.goto(f"/models/{MODEL}/{A}attention-weights?view=prefill")
    watched.wait_for_selector("#live[data-state=ready]", timeout=PATIENCE)
    typed = "".join(character for character in HOSTILE if character.isprintable()) + "!"
    watched.fill("textarea[name=prompt]", typed)
    watched.click("form#run button[type=submit]")
    watched.wait_for_function(
        "() => document.querySelector('#token-strip').innerText.replaceAll('\\n', '').includes('pwned=2')",
        timeout=PATIENCE,
    )
    watched.wait_for_selector("#live[data-state=ready]", timeout=PATIENCE)
    watched.reload()
    watched.wait_for_selector("#live[data-state=ready]", timeout=PATIENCE)
    assert watched.locator(FOREIGN).count() == 0


def test_a_hostile_address_is_text_on_the_page(watched: Page) -> None:
    for path in (
        "/search?q={}",
        "/search?q=norm&model={}",
        "/models/{}",
        f"/models/{MODEL}/{{}}",
        f"/models/{MODEL}?view={{}}",
        f"/models/{MODEL}?layer={{}}",
        f"/models/{MODEL}?open={{}}",
        f"/models/{MODEL}?run={{}}",
        "/compare?a={}&b=llama-3-8b",
        "/{}",
    ):
        watched.goto(path.format(urllib.parse.quote(HOSTILE, safe="")))
        assert watched.locator("main img, main iframe, main style").count() == 0, path
        assert watched.locator("main script:not([src^='/static/'])").count() == 0, path
        assert watched.locator("h1").is_visible(), path
        assert unharmed(watched) == [None, []], path


def test_a_hostile_search_as_it_is_typed(watched: Page) -> None:
    watched.goto("/")
    watched.keyboard.press("Control+k")
    watched.keyboard.insert_text("<img src=x onerror=pwned=1>")
    watched.wait_for_timeout(400)
    assert watched.locator("#search-dialog img").count() == 0


def test_answers_of_the_api_are_no_pages(watched: Page, run: str, site: str) -> None:
    """Looked at as they are, they do not become HTML by guessing."""
    for path in (f"/api/runs/{run}", f"/api/runs/{run}/events", "/api/models/" + urllib.parse.quote(HOSTILE, safe="")):
        answer = watched.request.get(site + path)
        assert "html" not in answer.headers["content-type"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    watched.goto(f"/api/runs/{run}")
    assert watched.locator("img, iframe").count() == 0


def test_events_cannot_be_forged_by_tokens(site: str, run: str) -> None:
    with urllib.request.urlopen(f"{site}/api/runs/{run}/events", timeout=60) as answer:
        blocks = answer.read().decode().replace("\r\n", "\n").strip().split("\n\n")
    kinds = [
        line.removeprefix("event: ") for block in blocks for line in block.split("\n") if line.startswith("event:")
    ]
    assert kinds.count("done") == 1
    assert kinds[-1] == "done"


def test_files_have_plain_names(site: str, run: str) -> None:
    address = f"{site}/api/runs/{run}/tensors/{A}attention-weights/data?view=full&layer=3&format=csv&slice=0,0,0,:"
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert answer.headers["Content-Disposition"] == (
            f'attachment; filename="{MODEL}_blocks.attention.attention-weights_full_layer3.csv"'
        )
