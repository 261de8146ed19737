"""A published site in Chromium, served by `python -m http.server` below a path: pages, views, layers, the viewer.

Where nothing new is computed, the viewer's own tests run against it unchanged.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Page, Response, expect

from atlas.catalog import Catalog
from atlas.inspection.recorded.record import Choice
from atlas.runtime.engine import Engine
from atlas.runtime.runs import RunRequest
from tests.browser import test_viewer
from tests.browser.test_viewer import (  # noqa: F401
    test_a_cache_tells_old_from_new,
    test_a_cell_chosen_by_keys_is_the_number_of_the_api,
    test_a_click_reads_what_the_picture_shows,
    test_an_address_restores_what_was_seen,
    test_an_angle_is_that_of_the_complex_number,
    test_attention_token_to_token,
    test_it_can_be_taken_away,
    test_layers_and_steps_change_in_place_and_quickly,
    test_logits_say_the_next_token,
    test_memory_stays_bounded_through_200_steps,
    test_nothing_moves_or_overflows,
    test_small_multiples_and_the_sheet_of_all_heads,
    test_statistics_and_shape_are_those_of_the_api,
    test_the_lens_at_every_layer,
    test_the_range_stays_until_it_is_asked_to_fit,
    test_the_strip_over_layers_leads_to_a_layer,
    test_the_table_holds_the_same_numbers,
    test_tokens_and_cells_point_at_each_other,
    test_two_passes_beside_each_other,
    test_what_a_view_does_not_compute_is_explained,
)
from tests.published import apart, file_server, publish, recorded
from tests.published_answers import ANSWERS, COMPARED, LOGITS, PLANES, REFUSED, UPDATE, WEIGHTS, A

BELOW = "/deep/below"
HELD = (
    WEIGHTS,
    UPDATE,
    f"{A}queries",
    f"{A}rotated-queries",
    f"{A}masked-similarities",
    f"{A}key-cache",
    "blocks/block-output",
    "final-norm",
    LOGITS,
    "rotary/rotations",
    "token-ids",
    "blocks/feed-forward/down-weight",
)
"""What is recorded of the demonstration: what the viewer's tests look at, and no more."""
BUDGET = 32_000_000
"""Bytes: all of it but the last layers of one large parameter, which comes last."""
PART = (*HELD, f"{A}softmax", f"{A}keys", "blocks/mid-residual")
"""The nodes that have pages."""
Opened = Callable[..., AbstractContextManager[Page]]


@pytest.fixture(scope="module")
def others(engine: Engine, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Two more runs: one with another prompt, and one with the demonstration's tokens and another seed."""
    orders = {"The capital of Italy is": (2, 0), "The capital of France is": (8, 1)}
    model = catalog.default.id
    runs = []
    for prompt, (count, seed) in orders.items():
        tokens = tuple(engine.tokens(model, prompt))
        order = RunRequest(model=model, token_ids=tokens, max_new_tokens=count, temperature=0.0, seed=seed)
        runs.append(engine.submit(order).id)
    for run in runs:
        apart(finished(engine, run))
    yield runs[0], runs[1]
    for run in runs:
        engine.delete(run)


async def finished(engine: Engine, run: str) -> None:
    async for _ in engine.watch(run):
        pass


@pytest.fixture(scope="module")
def site(
    engine: Engine,
    others: tuple[str, str],
    catalog: Catalog,
    own_data_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The address of a server of files that knows nothing of the atlas."""
    folder = tmp_path_factory.mktemp("host")
    out = folder / BELOW.lstrip("/")
    out.parent.mkdir()
    assert engine.demonstration is not None
    choice = Choice(HELD, BUDGET, expressions=False)
    bundle = recorded(engine, engine.demonstration, choice, folder / "demonstration.atlas")
    beside = tuple(recorded(engine, run, Choice(("final-norm",)), folder / f"{run}.atlas") for run in others)
    publish(out, bundle, catalog, own_data_dir, ("smollm2-135m", "llama-3-8b"), PART, others=beside)
    with file_server(folder) as address:
        yield address


@pytest.fixture(scope="module")
def opened(opened: Opened) -> Opened:
    """As on a server, but the addresses of a server lie below the site's path. Nothing asked for may be missing."""

    @contextmanager
    def open_page(site: str, **options: object) -> Iterator[Page]:
        missing: list[str] = []

        def heard(response: Response) -> None:
            if response.status >= 400 and not response.url.endswith("/favicon.ico"):
                missing.append(f"{response.status} {response.url}")

        with opened(site, **options) as page, pytest.MonkeyPatch.context() as patch:
            page.on("response", heard)
            go = page.goto
            patch.setattr(page, "goto", lambda path: go(BELOW + path if path.startswith("/") else path))
            yield page
        assert missing == []

    return open_page


@pytest.fixture
def page(opened: Opened, site: str, live_client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """A page of the site; the numbers that it shows are compared with those of a server."""

    def npy(_: Page, run: str, node: str, query: str) -> npt.NDArray[Any]:
        answer = live_client.get(f"/api/runs/{run}/tensors/{node}/data?format=npy&{query}")
        loaded: npt.NDArray[Any] = np.load(io.BytesIO(answer.content))
        return loaded

    monkeypatch.setattr(test_viewer, "npy", npy)
    with opened(site) as page:
        yield page


def settled(page: Page) -> None:
    test_viewer.settled(page)


ASK = """async url => {
  const { src } = document.querySelector('script[src*="/site.js"]');
  const { answer } = await import(new URL("live/recorded/answers.js", src));
  const found = await answer(url);
  const bytes = new Uint8Array(await found.arrayBuffer());
  const [shape, dtype] = ["Atlas-Shape", "Atlas-Dtype"].map(name => found.headers.get(name));
  return { status: found.status, shape, dtype, bytes: [...bytes] };
}"""


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


def test_answers_made_in_the_browser_are_the_servers(page: Page, live_client: TestClient, engine: Engine) -> None:
    for asked in ANSWERS:
        made, served = both(page, live_client, f"/api/runs/{engine.demonstration}/tensors/{asked}")
        assert made == served, asked


def both(page: Page, client: TestClient, url: str, status: int = 200) -> tuple[Any, Any]:
    """What files and the server answer, as JSON."""
    if page.url == "about:blank":
        page.goto("/")
    made, served = page.evaluate(ASK, url), client.get(url)
    assert (made["status"], served.status_code) == (status, status), url
    return json.loads(bytes(made["bytes"])), served.json()


def near(value: Any) -> Any:
    """The same but for rounding of float64."""
    if isinstance(value, dict):
        return {name: near(one) for name, one in value.items()}
    if isinstance(value, list):
        return [near(one) for one in value]
    return pytest.approx(value, rel=1e-10, abs=1e-15) if isinstance(value, float) else value


def test_what_is_compared_in_the_browser_is_the_servers(page: Page, live_client: TestClient, engine: Engine) -> None:
    for asked in COMPARED:
        made, served = both(page, live_client, f"/api/runs/{engine.demonstration}/tensors/{asked}")
        assert made == near(served), asked


def test_what_cannot_be_is_refused_in_the_servers_words(page: Page, live_client: TestClient, engine: Engine) -> None:
    for asked in REFUSED:
        made, served = both(page, live_client, f"/api/runs/{engine.demonstration}/tensors/{asked}", 422)
        for said in ("code", "detail", "hint"):
            assert made[said] == served[said], asked


NOT_HELD = {
    f"{A}keys/difference?view=full&layer=3&against_layer=4": (
        "not-recorded",
        "keys in full, layer 3: it was not chosen",
    ),
    f"{A}keys/agreement?layer=3": ("not-recorded", f"does not hold {A}keys in full, layer 3: it was not chosen"),
    f"{WEIGHTS}?view=decode&layer=3&step=99": ("not-found", "no decode step 99"),
    f"{A}keys?view=full&layer=3": ("not-recorded", f"does not hold {A}keys in full, layer 3"),
    "blocks/feed-forward/down-weight?layer=29": ("not-recorded", "left out to keep within 32 MB"),
    f"{WEIGHTS}/difference?view=full&layer=3&against_run=0123456789": ("not-found", "is not published here"),
}


def test_what_files_do_not_hold_is_a_problem_with_its_reason(page: Page, engine: Engine) -> None:
    page.goto("/")
    for asked, (code, detail) in NOT_HELD.items():
        made = page.evaluate(ASK, f"/api/runs/{engine.demonstration}/tensors/{asked}")
        said = json.loads(bytes(made["bytes"]))
        assert said["code"] == code
        assert detail in said["detail"]
        assert said["hint"]


def test_two_runs_part_where_the_server_says(
    page: Page, live_client: TestClient, engine: Engine, others: tuple[str, str]
) -> None:
    between = f"/api/runs/{engine.demonstration}/parting"
    made, served = both(page, live_client, f"{between}/{others[0]}")
    assert made == served
    assert "position 3: ' France' here, ' Italy' there" in made["sentence"]
    same = json.loads(bytes(page.evaluate(ASK, f"{between}/{others[1]}")["bytes"]))
    assert (same["common"], same["position"], same["node"]) == (13, None, None)
    assert same["sentence"] == "What is recorded of both is the same throughout; not all of it is."


def test_another_published_run_beside_this_one(page: Page, others: tuple[str, str]) -> None:
    page.goto("/models/smollm2-135m/final-norm/normalized?view=prefill")
    settled(page)
    panel = test_viewer.unfold(page, "compare")
    panel.get_by_label("Beside").select_option("run")
    expect(panel.get_by_label("namely").locator("option")).to_have_count(2)
    panel.get_by_label("namely").select_option(others[0])
    expect(panel.locator(".about").first).to_contain_text("They part at the token ids, position 3")
    expect(panel.locator("canvas.beside").first).to_be_visible()
    expect(page).to_have_url(re.compile(f"against=run:{others[0]}"))


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


def test_what_was_left_out_is_said_on_its_page(page: Page) -> None:
    page.goto("/models/smollm2-135m/blocks/attention/keys?layer=2")
    expect(page.locator('[data-live="recorded"]')).to_contain_text("it was not chosen for recording")
    expect(page.locator('[data-live="problem"]')).to_contain_text(
        "The recorded run does not hold blocks/attention/keys in full, layer 2"
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


@pytest.mark.parametrize(
    ("node", "query"),
    [
        (LOGITS, "view=full"),
        ("rotary/rotations", "view=prefill"),
        ("token-ids", "view=decode&step=3"),
        ("blocks/feed-forward/down-weight", "layer=1"),
    ],
)
def test_the_python_lines_load_a_tensor_from_the_files(page: Page, node: str, query: str) -> None:
    page.goto(f"/models/smollm2-135m/{node}?{query}")
    settled(page)
    test_viewer.unfold(page, "take")
    lines = page.locator("pre.snippet")
    expect(lines).to_contain_text("tensor.shape")
    given: dict[str, Any] = {}
    exec(compile(lines.inner_text().replace("print(", "result = ("), "snippet", "exec"), given)
    expected = test_viewer.npy(page, test_viewer.shown_run(page), node, query)
    assert (given["tensor"].dtype, given["tensor"].shape) == (expected.dtype, expected.shape)
    assert np.array_equal(given["tensor"], expected)


def test_expressions_of_the_code_say_what_they_gave(
    page: Page, live_client: TestClient, others: tuple[str, str]
) -> None:
    asked = f"/api/runs/{others[0]}/expressions?view=prefill&part=outside"
    made, served = both(page, live_client, asked)
    assert made == served
    page.goto(f"/models/smollm2-135m/final-norm/normalized?view=prefill&run={others[0]}")
    settled(page)
    name = next(one["name"] for one in served["expressions"] if one["text"] == "x.pow(2)")
    page.locator(f'#code [data-expression="{name.partition("/")[2]}"]').first.focus()
    expect(page.locator(".code-tip")).to_contain_text("float32 [1, 5, 576] rms")
    page.keyboard.press("Enter")
    dialog = page.locator("dialog.code-values")
    expect(dialog.locator(".values")).to_contain_text("does not hold all its numbers")
    expect(dialog.locator("a")).to_have_count(0)


def test_the_code_leads_to_nodes_whatever_is_recorded_of_it(page: Page) -> None:
    page.goto(f"/models/smollm2-135m/{UPDATE}?view=prefill&layer=3")
    settled(page)
    mark = page.locator('#code [data-expression][data-node="blocks/mid-residual"]').first
    mark.focus()
    expect(page.locator(".code-tip")).to_contain_text("does not hold what expressions gave in prefill, layer 3")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"mid-residual/prefill\.html\?.*layer=3"))


def test_the_number_that_a_page_opens_with_is_explained(page: Page, live_client: TestClient, engine: Engine) -> None:
    for asked in EXPLAINED:
        made, served = both(page, live_client, f"/api/runs/{engine.demonstration}/explain/{asked}")
        assert made == served, asked
    page.goto(f"/models/smollm2-135m/{WEIGHTS}?view=decode&layer=4&step=3")
    settled(page)
    panel = test_viewer.unfold(page, "explain")
    expect(panel).to_contain_text("how the number at [0, 0, 0, 0] of layer 0, step 1 came to be, and of no other here")
    expect(panel).to_contain_text("atlas serve explains any number")
    panel.get_by_role("button", name="Show that number").click()
    page.wait_for_selector('#live[data-shown-layer="0"][data-shown-step="1"][data-state=ready]')
    settled(page)
    chosen = page.locator("output[data-cell]").get_attribute("data-value")
    expect(page.locator(".explain-numbers dd").first).to_have_text(str(chosen))
    expect(page.locator(".explain .katex").first).to_be_visible()


EXPLAINED = [
    f"{UPDATE}?view=prefill&layer=0&cell=0,0,0",
    f"{WEIGHTS}?view=full&layer=0&cell=0,0,12,0",
    f"{A}key-cache?view=decode&layer=0&step=1&cell=0,0,0,0",
    f"{LOGITS}?view=prefill&cell=0,4,0",
    "blocks/block-output?view=full&layer=0&cell=0,12,0",
    "final-norm/gain?cell=0",
    "token-ids?view=full&cell=0,0",
]
"""The cells that pages open with."""


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
        page.goto(f"/models/smollm2-135m/{WEIGHTS}/index.html")
        page.locator('#views a[data-view="decode"]').click()
        expect(page.locator("#views a[aria-current=page]")).to_have_text("Decode")
        expect(page.locator("h1")).to_have_text("Attention weights")
