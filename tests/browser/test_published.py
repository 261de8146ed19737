"""A published site in Chromium, served by `python -m http.server` below a path: pages, views, layers, the viewer.

Where nothing new is computed, the viewer's own tests run against it unchanged.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Page, Response, expect

from atlas.catalog import Catalog
from atlas.runtime.engine import Engine
from tests.browser import test_viewer
from tests.browser.test_viewer import (  # noqa: F401
    test_a_click_reads_what_the_picture_shows,
    test_an_angle_is_that_of_the_complex_number,
    test_attention_token_to_token,
    test_logits_say_the_next_token,
    test_small_multiples_and_the_sheet_of_all_heads,
    test_tokens_and_cells_point_at_each_other,
)
from tests.published import publish

BELOW = "/deep/below"
WEIGHTS = "blocks/attention/attention-weights"
PART = (WEIGHTS, "blocks/attention/softmax", "blocks/attention/queries", "rotary/rotations", "unembedding/logits")
Opened = Callable[..., AbstractContextManager[Page]]


@pytest.fixture(scope="module")
def site(bundle: Path, catalog: Catalog, own_data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of files that knows nothing of the atlas."""
    folder = tmp_path_factory.mktemp("host")
    out = folder / BELOW.lstrip("/")
    out.parent.mkdir()
    publish(out, bundle, catalog, own_data_dir, ("smollm2-135m", "llama-3-8b"), PART)
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    port = re.search(r"port (\d+)", server.stdout.readline())
    assert port is not None
    yield f"http://127.0.0.1:{port[1]}"
    server.terminate()
    server.wait(10)
    server.stdout.close()


@pytest.fixture
def page(opened: Opened, site: str, live_client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """A page that goes to addresses as a server has them, below the site's path. Nothing it asks for may be missing."""
    missing: list[str] = []

    def heard(response: Response) -> None:
        if response.status >= 400 and not response.url.endswith("/favicon.ico"):
            missing.append(f"{response.status} {response.url}")

    def npy(_: Page, run: str, node: str, query: str) -> npt.NDArray[Any]:
        answer = live_client.get(f"/api/runs/{run}/tensors/{node}/data?format=npy&{query}")
        loaded: npt.NDArray[Any] = np.load(io.BytesIO(answer.content))
        return loaded

    monkeypatch.setattr(test_viewer, "npy", npy)
    with opened(site) as page:
        page.on("response", heard)
        go = page.goto
        monkeypatch.setattr(page, "goto", lambda path: go(BELOW + path if path.startswith("/") else path))
        yield page
    assert missing == []


def settled(page: Page) -> None:
    test_viewer.settled(page)


@pytest.mark.parametrize(
    ("node", "query"),
    [
        (WEIGHTS, "view=full&layer=3"),
        (WEIGHTS, "view=prefill&layer=17"),
        (WEIGHTS, "view=decode&layer=29&step=4"),
        ("unembedding/logits", "view=decode&step=7"),
        ("unembedding/logits", "view=full"),
    ],
)
def test_a_cell_chosen_by_keys_is_the_number_of_the_api(
    page: Page, node: str, query: str, live_client: TestClient
) -> None:
    page.goto(f"/models/llama-3-8b/{node}?{query}")
    settled(page)
    page.locator("canvas[data-tensor]").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Shift+ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    settled(page)
    index, text = test_viewer.cell(page)
    numbers = test_viewer.npy(page, test_viewer.shown_run(page), node, query)
    assert numbers.dtype.type(text) == numbers[index]
    asked = f"{query}&slice={','.join(map(str, index))}"
    said = live_client.get(f"/api/runs/{test_viewer.shown_run(page)}/tensors/{node}/cell?{asked}").json()
    assert said["text"] == text


ASK = """async url => {
  const { src } = document.querySelector('script[src*="/site.js"]');
  const { answer } = await import(new URL("live/recorded/answers.js", src));
  const found = await answer(url);
  const bytes = new Uint8Array(await found.arrayBuffer());
  const [shape, dtype] = ["Atlas-Shape", "Atlas-Dtype"].map(name => found.headers.get(name));
  return { status: found.status, shape, dtype, bytes: [...bytes] };
}"""
PLANES = [
    f"{WEIGHTS}/tile?view=full&layer=3&slice=0,1,:,:&row_level=1&column_level=2",
    f"{WEIGHTS}/tile?view=full&layer=3&slice=0,1,:,:&transpose=true&column_level=1&reduce=mean",
    f"{WEIGHTS}/tile?view=full&layer=3&slice=0,:,4,:&reduce=min&row_level=3",
    f"{WEIGHTS}/tile?view=decode&layer=9&step=5&slice=0,2,0,:",
    f"{WEIGHTS}/thumbnails?view=full&layer=1&slice=0,:,:,:&over=q_heads&side=5",
    f"{WEIGHTS}/thumbnails?view=full&layer=1&slice=0,:,:,:&over=queries&side=4&transpose=true&reduce=max",
    "unembedding/logits/tile?view=full&slice=0,:,:&row_level=0&column_level=6&tile_column=1",
    "unembedding/logits/tile?view=full&slice=0,:,:&column_level=3&tile_column=11&reduce=max",
    "unembedding/logits/tile?view=full&slice=0,:,:&row_level=2&column_level=9",
    "unembedding/logits/tile?view=full&slice=0,:,:&tile_column=191",
    "rotary/rotations/tile?view=full&slice=:,:&part=magnitude&column_level=2",
    "rotary/rotations/tile?view=full&slice=:,:&part=imaginary&transpose=true",
    "token-ids/tile?view=full&slice=0,:&column_level=2",
    "final-norm/gain/tile?slice=:&column_level=1&tile_column=1",
]


def test_tiles_made_in_the_browser_are_the_servers(page: Page, live_client: TestClient, engine: Engine) -> None:
    page.goto("/")
    for asked in PLANES:
        url = f"/api/runs/{engine.demonstration}/tensors/{asked}"
        made, served = page.evaluate(ASK, url), live_client.get(url)
        assert (made["status"], served.status_code) == (200, 200), asked
        assert (made["shape"], made["dtype"]) == (served.headers["Atlas-Shape"], served.headers["Atlas-Dtype"]), asked
        content, kind = bytes(made["bytes"]), np.dtype(made["dtype"])
        count = int(np.prod([int(size) for size in made["shape"].split(",")]))
        ours, theirs = (np.frombuffer(one, kind, count) for one in (content, served.content))
        exact = not re.search("mean|magnitude", asked)
        np.testing.assert_allclose(ours, theirs, rtol=0 if exact else 1e-6, err_msg=asked)
        assert content[count * kind.itemsize :] == served.content[count * kind.itemsize :], asked


ANSWERS = [
    f"{WEIGHTS}?view=decode&layer=3&step=2",
    f"{WEIGHTS}/cell?view=full&layer=7&slice=0,4,9,0:9&pick=absmax&along=keys",
    f"{WEIGHTS}/top?view=full&layer=7&slice=0,4,9,:&count=5",
    f"{WEIGHTS}/heads?view=prefill&layer=2",
    "unembedding/logits/top?view=prefill&slice=0,4,:&count=7",
    "unembedding/logits/predictions?view=prefill&start=2&stop=4&count=3",
    "unembedding/logits/cell?view=full&slice=0,12,49151",
    "token-ids/cell?view=full&slice=0,3",
    "final-norm/gain?checks=all",
]


def test_answers_made_in_the_browser_are_the_servers(page: Page, live_client: TestClient, engine: Engine) -> None:
    page.goto("/")
    for asked in ANSWERS:
        url = f"/api/runs/{engine.demonstration}/tensors/{asked}"
        made, served = page.evaluate(ASK, url), live_client.get(url)
        assert (made["status"], served.status_code) == (200, 200), asked
        assert json.loads(bytes(made["bytes"])) == served.json(), asked


NOT_HELD = {
    f"{WEIGHTS}/difference?view=full&layer=3&against_layer=4": "not-recorded",
    f"{WEIGHTS}?view=decode&layer=3&step=99": "not-found",
    f"{WEIGHTS}/tile?view=full&layer=3&slice=0,99,:,:": "bad-request",
    "blocks/attention/keys?view=full&layer=3": "not-recorded",
}


def test_what_files_do_not_hold_is_a_problem_with_its_reason(page: Page, engine: Engine) -> None:
    page.goto("/")
    for asked, code in NOT_HELD.items():
        made = page.evaluate(ASK, f"/api/runs/{engine.demonstration}/tensors/{asked}")
        said = json.loads(bytes(made["bytes"]))
        assert said["code"] == code
        assert said["detail"]
        assert said["hint"]


def test_views_layers_and_steps_have_addresses_of_their_own(page: Page) -> None:
    page.goto(f"/models/smollm2-135m/{WEIGHTS}?view=decode&layer=3&step=2")
    settled(page)
    expect(page).to_have_url(re.compile(rf"{BELOW}/models/smollm2-135m/{WEIGHTS}/decode\.html\?layer=3&step=2"))
    page.keyboard.press("]")
    page.wait_for_selector('#live[data-shown-layer="4"][data-state=ready]')
    page.keyboard.press(".")
    page.wait_for_selector('#live[data-shown-step="3"][data-state=ready]')
    expect(page).to_have_url(re.compile(r"decode\.html\?layer=4&step=3"))
    page.locator('#views a[data-view="prefill"]').click()
    page.wait_for_selector('#live[data-view="prefill"][data-shown-layer="4"][data-state=ready]')
    expect(page).to_have_url(re.compile(r"prefill\.html\?.*layer=4"))
    expect(page.locator('[data-live="checks"]')).to_contain_text("equation")


def test_statistics_are_those_of_the_api(page: Page) -> None:
    page.goto(f"/models/smollm2-135m/{WEIGHTS}?view=full&layer=7")
    page.wait_for_selector(test_viewer.READY)
    numbers = test_viewer.npy(page, test_viewer.shown_run(page), WEIGHTS, "view=full&layer=7").astype(np.float64)
    for name, value in {"mean": numbers.mean(), "std": numbers.std(), "max": numbers.max()}.items():
        shown = float(str(page.locator(f'[data-stat="{name}"]').get_attribute("data-value")))
        assert shown == pytest.approx(value, rel=1e-6)


def test_what_was_left_out_is_said_on_its_page(page: Page) -> None:
    page.goto("/models/smollm2-135m/blocks/attention/queries?layer=2")
    expect(page.locator('[data-live="recorded"]')).to_contain_text("it was not chosen for recording")
    expect(page.locator('[data-live="problem"]')).to_contain_text(
        "The recorded run does not hold blocks/attention/queries in full, layer 2"
    )
    page.locator("p.read-only a").click()
    expect(page.locator("h1")).to_have_text("What this published atlas holds")


def test_numbers_can_be_taken_away(page: Page) -> None:
    page.goto(f"/models/smollm2-135m/{WEIGHTS}?view=full&layer=5")
    settled(page)
    test_viewer.unfold(page, "take")
    with page.expect_download() as download:
        page.locator(".files a", has_text=".npy").first.click()
    expected = test_viewer.npy(page, test_viewer.shown_run(page), WEIGHTS, "view=full&layer=5")
    assert np.array_equal(np.load(str(download.value.path())), expected)
    assert download.value.suggested_filename == f"smollm2-135m_{WEIGHTS.replace('/', '.')}_full_layer5.npy"


def test_the_search_answers_as_a_server_does(page: Page, live_client: TestClient) -> None:
    page.goto("/search?q=attention+weights")
    expect(page.locator("ol.hits .hit").first).to_contain_text("Attention weights")
    page.goto("/")
    for query in ("blk.3.attn_scores", "attn.hook_pattern", "Atention weihgts"):
        page.keyboard.press("/")
        page.locator("#search-dialog input").fill(query)
        said = [hit["path"] for hit in live_client.get("/api/search", params={"q": query}).json()["hits"]]
        if WEIGHTS in said[:1]:
            expect(page.locator("#search-dialog .hit .hit-path").first).to_contain_text(WEIGHTS)
        page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.locator("#search-dialog input").fill("attention weights")
    expect(page.locator("#search-dialog .hit").first).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_selector(test_viewer.READY)
    expect(page).to_have_url(re.compile(f"{WEIGHTS}/index.html"))


def test_two_models_are_compared_by_choosing_them(page: Page) -> None:
    page.goto("/compare?a=smollm2-135m&b=llama-3-8b")
    expect(page.locator("h1")).to_contain_text("SmolLM2 135M and Llama 3 8B")
    expect(page).to_have_url(re.compile(r"compare/smollm2-135m/llama-3-8b\.html"))


def test_the_theme_that_was_chosen_stays(page: Page) -> None:
    page.goto("/")
    page.locator("#theme").click()
    page.goto("/glossary")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_pages_read_without_a_script(opened: Opened, site: str) -> None:
    with opened(site, java_script_enabled=False) as page:
        page.goto(f"{BELOW}/models/smollm2-135m/{WEIGHTS}/index.html")
        page.locator('#views a[data-view="decode"]').click()
        expect(page.locator("#views a[aria-current=page]")).to_have_text("Decode")
        expect(page.locator("h1")).to_have_text("Attention weights")
