"""The tensor viewer in Chromium, on the real model: what it shows against what the API gives."""

from __future__ import annotations

import io
import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from atlas.runtime.captures import Captured
from atlas.runtime.engine import Engine
from benchmarks.frames import script_times

A = "blocks/attention/"
Opened = Callable[..., AbstractContextManager[Page]]
Serve = Callable[..., Any]
READY = "#live[data-state=ready]"


def node_page(node: str, query: str, model: str = "llama-3-8b") -> str:
    return f"/models/{model}/{node}?{query}"


def npy(page: Page, run: str, node: str, query: str) -> npt.NDArray[Any]:
    address = page.evaluate("location.origin") + f"/api/runs/{run}/tensors/{node}/data?format=npy&{query}"
    with urllib.request.urlopen(address, timeout=60) as answer:
        loaded: npt.NDArray[Any] = np.load(io.BytesIO(answer.read()))
    return loaded


def shown_run(page: Page) -> str:
    return str(page.locator("#live").get_attribute("data-shown-run"))


def cell(page: Page) -> tuple[tuple[int, ...], str]:
    """The chosen cell: its indices and its value as text."""
    output = page.locator("output[data-cell]")
    index = tuple(int(at) for at in str(output.get_attribute("data-cell")).split(","))
    return index, str(output.get_attribute("data-value"))


def settled(page: Page) -> None:
    """Wait until the chosen cell has its value and rank from the server."""
    page.wait_for_selector(READY)
    page.wait_for_selector('output[data-value]:not([data-value=""], [aria-busy])')


def unfold(page: Page, name: str) -> Locator:
    """Open one of the panels below the plane."""
    panel = page.locator(f'details[data-panel="{name}"]')
    panel.locator("> summary").click()
    return panel


@pytest.mark.parametrize(
    ("node", "query"),
    [
        (A + "attention-update", "view=prefill&layer=14"),
        (A + "attention-weights", "view=full&layer=3&head=2"),
        (A + "attention-weights", "view=decode&layer=29&step=4"),
        (A + "masked-similarities", "view=prefill&layer=3&head=8"),
        (A + "rotated-queries", "view=decode&layer=1"),
        (A + "key-cache", "view=decode&layer=5&step=7&head=2"),
        ("unembedding/logits", "view=prefill"),
        ("blocks/feed-forward/down-weight", "layer=2"),
        ("token-ids", "view=full"),
        ("final-norm/reciprocal-rms", "view=full"),
    ],
)
def test_a_cell_chosen_by_keys_is_the_number_of_the_api(page: Page, node: str, query: str) -> None:
    page.goto(node_page(node, query))
    settled(page)
    start, _ = cell(page)
    page.locator("canvas[data-tensor]").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Shift+ArrowRight", "ArrowLeft", "PageDown", "End", "ArrowUp"):
        page.keyboard.press(key)
    settled(page)
    page.wait_for_timeout(250)
    index, text = cell(page)
    assert index != start
    numbers = npy(page, shown_run(page), node, query.replace(re.search(r"&?head=\d", query + "&head=0").group(0), ""))  # type: ignore[union-attr]
    assert numbers.dtype.type(text) == numbers[index]
    head = re.search(r"head=(\d)", query)
    if head:
        assert index[1 if "weights" in node or "masked" in node else 2] == int(head.group(1))
    expect(page).to_have_url(re.compile(r"[&?]cell=" + ",".join(map(str, index))))


def test_an_angle_is_that_of_the_complex_number(page: Page) -> None:
    page.goto(node_page("rotary/rotations", "view=prefill&cell=3,4"))
    settled(page)
    numbers = npy(page, shown_run(page), "rotary/rotations", "view=prefill")
    assert float(cell(page)[1]) == pytest.approx(np.angle(numbers[3, 4]), rel=1e-6)
    expect(page.locator(".dials li")).to_have_count(32)


def test_statistics_and_shape_are_those_of_the_api(page: Page) -> None:
    page.goto(node_page(A + "attention-update", "view=prefill&layer=14"))
    page.wait_for_selector(READY)
    numbers = npy(page, shown_run(page), A + "attention-update", "view=prefill&layer=14").astype(np.float64)
    for name, value in {
        "mean": numbers.mean(),
        "std": numbers.std(),
        "min": numbers.min(),
        "max": numbers.max(),
    }.items():
        said = str(page.locator(f'[data-stat="{name}"]').get_attribute("data-value"))
        assert float(said) == pytest.approx(value, rel=1e-9, abs=1e-12)
    expect(page.locator('[data-live="shape"]')).to_have_text("[1 batch, 5 positions, 576 d_model] float32")
    expect(page.locator("#observed")).to_have_text("now 1 × 5 × 576")
    expect(page.locator('[data-live="provenance"]')).to_contain_text("prefill, layer 14 of 0–29")
    expect(page.locator(".live-source")).to_contain_text("stands in")
    expect(page.locator('[data-live="checks"]')).to_contain_text("✓ equation", timeout=20_000)


def test_values_that_were_made_again_elsewhere_say_so(page: Page) -> None:
    note = "First computed with another machine; its values are made again with this one."

    def noted(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"note": note})

    page.route(re.compile(r"/api/runs/[0-9a-f]{20}$"), noted)
    page.goto(node_page(A + "attention-update", "view=prefill&layer=14"))
    expect(page.locator('[data-live="provenance"]')).to_contain_text(note)


def test_a_click_reads_what_the_picture_shows(page: Page) -> None:
    """In a zoomed-out plane a click takes the element that its cell stands for; zoomed in, the element itself."""
    page.goto(node_page("unembedding/logits", "view=prefill"))
    settled(page)
    canvas = page.locator("canvas[data-tensor]")
    box = canvas.bounding_box()
    assert box is not None
    first = page.locator("output[data-cell]").get_attribute("data-cell")
    canvas.click(position={"x": box["width"] * 0.6, "y": box["height"] * 0.3})
    page.wait_for_selector(f'output[data-cell]:not([data-cell="{first}"])')
    settled(page)
    (_, row, column), text = cell(page)
    numbers = npy(page, shown_run(page), "unembedding/logits", "view=prefill")[0]
    span = 128 if box["width"] > 400 else 256
    block = numbers[row, column // span * span :][:span]
    assert np.float32(text) == numbers[row, column]
    assert abs(numbers[row, column]) == np.abs(block).max()
    canvas.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(600)
    canvas.click(position={"x": box["width"] * 0.7, "y": box["height"] * 0.3})
    page.wait_for_timeout(400)
    index, text = cell(page)
    assert abs(index[2] - column) < 20
    assert np.float32(text) == numbers[index[1], index[2]]


def test_tokens_and_cells_point_at_each_other(page: Page) -> None:
    page.goto(node_page(A + "attention-weights", "view=full&layer=3"))
    settled(page)
    strip = page.locator("#token-strip [data-position]")
    expect(strip).to_have_count(13)
    expect(strip.nth(1)).to_have_text("␣capital")
    strip.nth(7).click()
    settled(page)
    assert cell(page)[0][2] == 7
    expect(strip.nth(7)).to_have_attribute("data-mark", re.compile("chosen"))
    page.locator("canvas[data-tensor]").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(strip.nth(2)).to_have_attribute("data-mark", re.compile("chosen"))
    page.locator("canvas[data-tensor]").scroll_into_view_if_needed()
    box = page.locator("canvas[data-tensor]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.4)
    expect(page.locator('[data-live="readout"]')).to_contain_text("queries")
    expect(page.locator('#token-strip [data-mark~="pointed"]').first).to_be_visible()
    expect(page.locator('[data-live="readout"]')).to_contain_text("of 13 keys")


def test_layers_and_steps_change_in_place_and_quickly(page: Page) -> None:
    page.goto(node_page(A + "attention-update", "view=prefill&layer=3"))
    settled(page)
    spent = []
    for layer in range(4, 16):
        begun = page.evaluate(
            """layer => new Promise(resolve => {
                const live = document.getElementById("live");
                const begun = performance.now();
                new MutationObserver((_, observer) => {
                    if (live.dataset.state !== "ready" || live.dataset.shownLayer !== String(layer)) return;
                    observer.disconnect();
                    resolve(performance.now() - begun);
                }).observe(live, { attributes: true });
                document.dispatchEvent(new KeyboardEvent("keydown", { key: "]", bubbles: true }));
            })""",
            layer,
        )
        spent.append(begun)
    assert all(one > 0 for one in spent)  # how long it takes is measured by the benchmarks
    settled(page)
    numbers = npy(page, shown_run(page), A + "attention-update", "view=prefill&layer=15")
    assert float(str(page.locator('[data-stat="max"]').get_attribute("data-value"))) == numbers.max()
    expect(page).to_have_url(re.compile("layer=15"))
    expect(page.locator('[data-stepper="layer"] [data-value]')).to_have_text("15")


def test_the_range_stays_until_it_is_asked_to_fit(page: Page) -> None:
    page.goto(node_page("blocks/block-output", "view=prefill&layer=0"))
    settled(page)
    before = page.locator('[data-live="legend-text"]').text_content()
    page.keyboard.press("]")
    page.wait_for_selector('#live[data-shown-layer="1"][data-state=ready]')
    assert page.locator('[data-live="legend-text"]').text_content() == before
    expect(page).to_have_url(re.compile("range="))
    page.locator(".view-options > summary").click()
    page.get_by_role("button", name="Fit the range to this tensor").click()
    expect(page.locator('[data-live="legend-text"]')).not_to_have_text(str(before))
    expect(page).not_to_have_url(re.compile("range="))


def test_an_address_restores_what_was_seen(page: Page) -> None:
    page.goto(node_page(A + "queries", "view=full&layer=2"))
    settled(page)
    page.locator(".view-options > summary").click()
    page.locator('[data-live="rows"]').select_option("q_heads")
    page.locator('[data-live="scale"]').select_option("log")
    page.locator('[data-live="reduce"]').select_option("max")
    page.locator("canvas[data-tensor]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("]")
    page.wait_for_selector('#live[data-shown-layer="3"][data-state=ready]')
    settled(page)
    unfold(page, "table")
    page.locator("canvas[data-tensor]").focus()
    page.keyboard.press("Enter")
    before, legend = cell(page), page.locator('[data-live="legend-text"]').text_content()
    expect(page).to_have_url(re.compile("panels=table"))
    expect(page).to_have_url(re.compile("zoom="))
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    settled(page)
    page.wait_for_timeout(300)
    assert cell(page) == before
    assert before[0] == (0, 0, 1, 10)
    assert page.locator('[data-live="rows"]').input_value() == "q_heads"
    words = [str(one).split(",")[0] for one in (page.locator('[data-live="legend-text"]').text_content(), legend)]
    assert words[0] == words[1]
    expect(page.locator(".values td[data-chosen]")).to_have_text(before[1])
    expect(page).to_have_url(address)


def test_a_prompt_is_run_and_decode_follows_it(page: Page) -> None:
    page.goto(node_page(A + "attention-update", "view=prefill&layer=7"))
    settled(page)
    page.locator("textarea[name=prompt]").fill("One two three four")
    page.locator(".run-options > summary").click()
    page.locator("input[name=max_new_tokens]").fill("6")
    page.locator("form#run button[type=submit]").click()
    expect(page.locator('[data-live="status"]')).to_contain_text("Done: 4 prompt tokens, 6 generated", timeout=30_000)
    page.locator('nav#views a[data-view="decode"]').click()
    page.wait_for_url(re.compile("view=decode"))
    settled(page)
    run = shown_run(page)
    expect(page).to_have_url(re.compile(f"run={run}"))
    expect(page).to_have_url(re.compile("layer=7"))
    expect(page.locator("textarea[name=prompt]")).to_have_value("One two three four")
    for _ in range(2):
        page.keyboard.press(".")
    page.wait_for_selector('#live[data-shown-step="3"][data-state=ready]')
    settled(page)
    index, text = cell(page)
    numbers = npy(page, run, A + "attention-update", "view=decode&layer=7&step=3")
    assert np.float32(text) == numbers[index]
    page.locator("textarea[name=prompt]").fill("Five six seven")
    page.locator("form#run button[type=submit]").click()
    page.wait_for_function("old => !['', old].includes(document.getElementById('live').dataset.shownRun)", arg=run)
    expect(page.locator('[data-live="status"]')).to_contain_text("Done", timeout=30_000)
    page.wait_for_selector('#live[data-shown-step="5"][data-state=ready]')


def test_small_multiples_and_the_sheet_of_all_heads(page: Page) -> None:
    page.goto(node_page(A + "attention-weights", "view=full&layer=3"))
    settled(page)
    expect(page.get_by_text("All of 9 q_heads at once")).to_be_visible()
    unfold(page, "multiples")
    minis = page.locator('[data-panel="multiples"] .mini')
    expect(minis).to_have_count(9)
    minis.nth(5).click()
    settled(page)
    assert cell(page)[0][1] == 5
    expect(minis.nth(5)).to_have_attribute("aria-pressed", "true")
    unfold(page, "across")
    sheet = page.locator(".sheet .mini")
    expect(sheet).to_have_count(270, timeout=60_000)
    page.get_by_label("Sorted by").select_option("previous")
    best = str(sheet.first.get_attribute("data-head")).split(".")
    sheet.first.click()
    page.wait_for_selector(f'#live[data-shown-layer="{best[0]}"][data-state=ready]')
    expect(page).to_have_url(re.compile(f"head={best[1]}"))


def test_the_strip_over_layers_leads_to_a_layer(page: Page) -> None:
    page.goto(node_page("blocks/block-output", "view=prefill&layer=3"))
    settled(page)
    unfold(page, "across")
    strip = page.locator("canvas.strip")
    expect(page.locator('[data-panel="across"] .about')).to_contain_text("Colours", timeout=30_000)
    expect(page.locator('[data-panel="across"] .about')).not_to_contain_text("so far", timeout=60_000)
    box = strip.bounding_box()
    assert box is not None
    strip.click(position={"x": box["width"] * 0.5, "y": box["height"] * 21.5 / 30})
    page.wait_for_selector('#live[data-shown-layer="21"][data-state=ready]')
    settled(page)
    assert cell(page)[0][1] == 2


def test_logits_say_the_next_token(page: Page) -> None:
    page.goto(node_page("unembedding/logits", "view=prefill&cell=0,4,0"))
    settled(page)
    first = page.locator(".predicted li").first
    expect(first).to_contain_text("␣Paris")
    expect(first).to_have_attribute("data-next", "")
    expect(page.locator(".came-next")).to_have_text(re.compile("Next came ␣Paris: 1st"))


def test_the_lens_at_every_layer(page: Page) -> None:
    page.goto(node_page("blocks/block-output", "view=prefill&layer=29&cell=0,4,0"))
    settled(page)
    expect(page.locator(".predicted li").first).to_contain_text("␣Paris")
    page.get_by_role("button", name="The lens at every layer").click()
    expect(page.locator(".lens-layers tbody td.number")).to_have_count(90, timeout=60_000)
    expect(page.locator(".lens-layers tbody tr").last).to_contain_text("␣Paris")


def test_attention_token_to_token(page: Page) -> None:
    page.goto(node_page(A + "attention-weights", "view=full&layer=3&head=2&cell=0,2,7,0"))
    settled(page)
    weights = npy(page, shown_run(page), A + "attention-weights", "view=full&layer=3")[0, 2, 7]
    best = page.locator(".ranked li").first.locator(".number")
    assert float(str(best.get_attribute("title"))) == pytest.approx(float(weights.max()))
    page.locator('.attended [data-key-position="9"]').click()
    page.wait_for_selector('output[data-cell="0,2,9,0"]')


def test_a_cache_tells_old_from_new(page: Page) -> None:
    page.goto(node_page(A + "key-cache", "view=decode&step=3"))
    settled(page)
    expect(page.locator(".cached button")).to_have_count(8)
    expect(page.locator(".cached button[data-new]")).to_have_count(1)
    expect(page.locator('[data-panel="meaning"]')).to_contain_text("it wrote position 7")


def test_two_passes_beside_each_other(page: Page) -> None:
    page.goto(node_page(A + "attention-update", "view=decode&layer=5&step=3"))
    settled(page)
    panel = unfold(page, "compare")
    panel.get_by_label("Beside").select_option("view")
    expect(panel.locator(".about").first).to_contain_text("So small that rounding explains it.")
    expect(page).to_have_url(re.compile("against=view:full"))
    expect(panel.locator("canvas.beside").first).to_be_visible()
    panel.get_by_role("button", name=re.compile("at every position")).click()
    expect(panel.locator(".about").first).to_contain_text(
        "The cache gives what a pass without history gives", timeout=30_000
    )
    expect(panel.locator(".positions li")).to_have_count(12)


def test_the_table_holds_the_same_numbers(page: Page) -> None:
    page.goto(node_page(A + "attention-update", "view=prefill&layer=14&cell=0,2,100"))
    settled(page)
    unfold(page, "table")
    chosen = page.locator(".values td[data-chosen]")
    expect(chosen).to_have_text(cell(page)[1])
    numbers = npy(page, shown_run(page), A + "attention-update", "view=prefill&layer=14")[0]
    shown = page.locator(".values tbody tr").nth(4).locator("td").all_text_contents()
    assert [np.float32(one) for one in shown] == numbers[4, 99 : 99 + len(shown)].tolist()
    page.get_by_role("button", name="Columns after").click()
    expect(page.locator(".values thead th").first).not_to_have_text("99")


def test_it_can_be_taken_away(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(node_page(A + "attention-update", "view=prefill&layer=14"))
    settled(page)
    unfold(page, "take")
    with page.expect_download() as download:
        page.locator(".files a", has_text=".npy").first.click()
    taken = np.load(str(download.value.path()))
    assert taken.shape == (1, 5, 576)
    with page.expect_download() as download:
        page.get_by_role("button", name="Picture as PNG").click()
    assert download.value.path().read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    page.get_by_role("button", name="Copy the Python lines").click()
    lines = page.evaluate("navigator.clipboard.readText()")
    given: dict[str, Any] = {}
    exec(compile(lines.replace("print(", "result = ("), "snippet", "exec"), given)
    assert np.array_equal(given["tensor"], taken)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_moves_or_overflows(opened: Opened, site: str, theme: str, width: int) -> None:
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": theme}
    with opened(site, **options) as page:
        page.add_init_script(
            """window.moved = [];
            new PerformanceObserver(list => {
                for (const entry of list.getEntries()) for (const { node } of entry.sources)
                    if (node?.closest?.("#live")) window.moved.push([entry.value, node.outerHTML.slice(0, 120)]);
            }).observe({ type: "layout-shift", buffered: true });"""
        )
        page.goto(node_page(A + "attention-weights", "view=full&layer=3"))
        settled(page)
        page.wait_for_timeout(300)
        for key in ("]", "]", "["):
            page.keyboard.press(key)
            settled(page)
        moved = page.evaluate("window.moved")
        assert sum(value for value, _ in moved) < 0.02, moved
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        painted = page.evaluate(
            """() => { const c = document.querySelector("canvas[data-tensor]");
            const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data; const s = new Set();
            for (let i = 0; i < d.length; i += 400) s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return s.size; }"""
        )
        assert painted > 10


def test_without_a_decode_step_the_page_says_so(page: Page) -> None:
    page.goto(node_page(A + "attention-update", "view=decode"))
    settled(page)
    page.locator(".run-options > summary").click()
    page.locator("input[name=max_new_tokens]").fill("1")
    page.locator("form#run button[type=submit]").click()
    expect(page.locator('[data-live="problem"]')).to_contain_text("no decode step", timeout=30_000)
    expect(page.locator("form#run button[type=submit]")).to_be_enabled()


def test_what_a_view_does_not_compute_is_explained(page: Page) -> None:
    page.goto(node_page(A + "masked-similarities", "view=decode"))
    expect(page.locator(".live-absent").first).to_contain_text("not computed in this view")


def test_what_a_pass_does_not_compute_is_explained(page: Page) -> None:
    page.goto(node_page(A + "masked-similarities", "view=prefill"))
    settled(page)
    page.locator("textarea[name=prompt]").fill("[504]")
    page.locator("form#run button[type=submit]").click()
    expect(page.locator('[data-live="problem"]')).to_contain_text("does not compute", timeout=30_000)


def test_bad_prompts_lose_nothing(page: Page) -> None:
    page.goto(node_page(A + "attention-update", "view=prefill"))
    settled(page)
    before = cell(page)
    page.locator("textarea[name=prompt]").fill("word " * 5000)
    page.locator("form#run button[type=submit]").click()
    expect(page.locator('[data-live="problem"]')).to_contain_text("tokens", timeout=30_000)
    assert cell(page) == before
    expect(page.locator("textarea[name=prompt]")).not_to_be_empty()
    page.locator("textarea[name=prompt]").fill("[504, 999999]")
    page.locator("form#run button[type=submit]").click()
    expect(page.locator('[data-live="problem"]')).to_contain_text("999999")


def test_a_run_that_the_server_forgot_can_be_run_again(page: Page, site: str) -> None:
    page.goto(node_page(A + "attention-update", "view=prefill"))
    settled(page)
    page.locator("textarea[name=prompt]").fill("Seven eight nine")
    page.locator("form#run button[type=submit]").click()
    expect(page.locator('[data-live="status"]')).to_contain_text("Done: 3", timeout=30_000)
    settled(page)
    run = shown_run(page)
    urllib.request.urlopen(urllib.request.Request(f"{site}/api/runs/{run}", method="DELETE"), timeout=10)
    page.keyboard.press("]")
    problem = page.locator('[data-live="problem"]')
    expect(problem).to_contain_text("no such run any more")
    problem.get_by_role("button", name=re.compile("Run it again")).click()
    page.wait_for_selector(f'#live[data-shown-run="{run}"][data-shown-layer="1"][data-state=ready]', timeout=30_000)
    expect(problem).to_be_hidden()


def test_a_server_that_restarts_under_the_page(opened: Opened, serve: Serve) -> None:
    server = serve()
    with opened(server.address) as page:
        page.goto(node_page(A + "attention-update", "view=prefill"))
        settled(page)
        server.close()
        page.keyboard.press("]")
        expect(page.locator('[data-live="problem"]')).to_contain_text("does not answer")
        server = serve(server.port)
        page.wait_for_selector('#live[data-shown-layer="1"][data-state=ready]', timeout=30_000)
        expect(page.locator('[data-live="problem"]')).to_be_hidden()
    server.close()


def test_memory_stays_bounded_through_200_steps(page: Page) -> None:
    page.goto(node_page(A + "attention-weights", "view=decode&layer=0"))
    settled(page)
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable")

    def heap() -> float:
        client.send("HeapProfiler.collectGarbage")
        found = {one["name"]: one["value"] for one in client.send("Performance.getMetrics")["metrics"]}
        return float(found["JSHeapUsedSize"])

    def walk(moves: int) -> None:
        for at in range(moves):
            page.keyboard.press("." if at % 14 < 6 else "," if at % 14 >= 8 else "]")
            page.wait_for_timeout(15)
        page.wait_for_selector(READY)

    walk(40)
    before = heap()
    walk(200)
    assert heap() - before < 4e6


@pytest.fixture(scope="module")
def vast(engine: Engine, serve: Serve) -> Iterator[str]:
    """A server whose attention weights and logits are synthetic, and far larger than its run's."""
    import torch

    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1, 1, 2048, 2048, generator=generator) * 3
    weights = torch.softmax(scores + torch.full((2048, 2048), float("-inf")).triu(1), -1)
    many = weights.to(torch.float16).expand(1, 32, 2048, 2048)
    logits = torch.randn(1, 1, 128_256, generator=generator)
    real = engine.tensor

    async def tensor(run: str, node: str, view: str, layer: int | None, step: int | None) -> Captured:
        captured = await real(run, node, view, layer, step)
        if node == "unembedding/logits":
            return replace(captured, tensor=logits)
        if node == "blocks/attention/attention-weights":
            return replace(captured, tensor=many if layer == 1 else weights)
        return captured

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "tensor", tensor)
        server = serve()
        yield server.address
        server.close()


def test_vast_tensors_open(opened: Opened, vast: str) -> None:
    with opened(vast) as page:
        for node, query, shape in (
            (
                A + "attention-weights",
                "view=full&layer=1&head=31",
                "[1 batch, 32 q_heads, 2,048 queries, 2,048 keys] float16",
            ),
            ("unembedding/logits", "view=full", "[1 batch, 1 positions, 128,256 vocab] float32"),
        ):
            page.goto(node_page(node, query))
            page.wait_for_selector(READY, timeout=60_000)
            expect(page.locator('[data-live="shape"]')).to_have_text(shape)
            settled(page)
            page.locator("canvas[data-tensor]").focus()
            page.keyboard.press("End")
            page.keyboard.press("Enter")
            settled(page)
            page.wait_for_timeout(500)
            assert cell(page)[0][-1] == (2047 if "attention" in node else 128_255)


def test_frames_are_read_off_a_trace() -> None:
    """The measure itself: nested calls count once, and go to the frame that ends after them."""
    at: dict[str, Any] = {"pid": 1, "tid": 1, "ph": "X"}
    trace = [
        {**at, "name": "FireAnimationFrame", "ts": 100, "dur": 5000},
        {**at, "name": "FunctionCall", "ts": 101, "dur": 4000, "tdur": 3000},
        {**at, "name": "FunctionCall", "ts": 102, "dur": 1000, "tdur": 1000},
        {**at, "name": "FunctionCall", "ts": 6000, "dur": 1000, "tdur": 2000},
        {**at, "name": "FireAnimationFrame", "ts": 8000, "dur": 100},
    ]
    assert script_times(trace) == [3.0, 2.0]
