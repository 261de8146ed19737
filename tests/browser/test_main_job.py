"""The main job in a real browser: from the attention update's page to a live number that the API confirms."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import numpy as np
from fastapi.testclient import TestClient
from playwright.sync_api import Page, expect

UPDATE = "/models/llama-3-8b/blocks/attention/attention-update"
Opener = Callable[..., Page]


def test_run_a_prompt_switch_to_decode_and_read_a_number(open_page: Opener, live_client: TestClient) -> None:
    page = open_page(UPDATE)
    expect(page.get_by_role("heading", level=1)).to_have_text("Attention update")
    expect(page.locator("#live")).to_contain_text("SmolLM2 135M")
    expect(page.locator("[data-stat=rms]")).not_to_have_text("–")

    page.locator("form#run textarea[name=prompt]").fill("Two plus two is")
    page.locator("form#run button[type=submit]").click()
    expect(page).to_have_url(re.compile(r"run=[0-9a-f]{20}"))
    expect(page.locator("#token-strip [data-position]")).to_have_count(4 + 8)
    page.locator("nav#views a[data-view=decode]").click()
    expect(page.locator("nav#views a[data-view=decode]")).to_have_attribute("aria-current", "page")
    expect(page.locator("#live")).to_contain_text("decode")
    expect(page.locator("[data-stat=rms]")).not_to_have_text("–")

    canvas = page.locator("canvas[data-tensor]")
    canvas.focus()
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    chosen = page.locator("output[data-cell]")
    expect(chosen).to_have_attribute("data-cell", "0,0,3")
    expect(chosen).to_have_attribute("data-value", re.compile("."))
    expect(chosen).not_to_have_attribute("aria-busy", "true")
    expect(page.locator("#live[data-shown-step='1'][data-state=ready]")).to_be_visible()
    cell = [int(index) for index in (chosen.get_attribute("data-cell") or "").split(",")]
    shown = float(chosen.get_attribute("data-value") or "nan")

    run = re.search(r"run=([0-9a-f]+)", page.url)
    assert run is not None
    answer = live_client.get(
        f"/api/runs/{run[1]}/tensors/blocks/attention/attention-update/data?view=decode&layer=0&step=1&format=npy"
    )
    numbers = np.load(io.BytesIO(answer.content))
    assert numbers.shape == (1, 1, 576)
    assert np.float32(shown) == numbers[tuple(cell)]
    statistics = live_client.get(
        f"/api/runs/{run[1]}/tensors/blocks/attention/attention-update?view=decode&layer=0&step=1"
    ).json()["stats"]
    rms = float((page.locator("[data-stat=rms]").text_content() or "").replace("−", "-"))
    assert abs(rms - statistics["rms"]) <= 1e-3 * abs(statistics["rms"])


def test_the_code_is_an_index(open_page: Opener) -> None:
    page = open_page(f"{UPDATE}?view=prefill&layer=3")
    expect(page.locator("[data-stat=rms]")).not_to_have_text("–")
    undeclared = page.locator('#code [data-expression="Attention.forward/201.17-201.39"]').first
    undeclared.focus()
    expect(page.locator(".code-tip")).to_contain_text("float32 [1, 5, 9, 64]")
    page.keyboard.press("Enter")
    expect(page.locator("dialog.code-values .values")).to_have_text(re.compile(r"-?\d\.\d+"))
    page.keyboard.press("Escape")
    declared = page.locator('#code [data-expression="TransformerBlock.forward/252.12-252.82"]').first
    declared.focus()
    expect(page.locator(".code-tip")).to_contain_text("click for its page")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/blocks/mid-residual\?"))


def test_a_chat_templates_tokens_are_marked_and_the_prompt_stays_the_readers(open_page: Opener) -> None:
    page = open_page(UPDATE)
    expect(page.locator('#live [data-live="held"]')).to_have_text("float32 on cpu, 0.5 GB in memory")
    page.wait_for_selector("#live[data-state=ready]")  # what arrives moves what is below it
    page.locator(".run-options summary").click()
    page.locator("form#run input[name=chat]").check()
    page.locator("form#run textarea[name=prompt]").fill("Say two words")
    page.locator("form#run input[name=max_new_tokens]").fill("2")
    page.locator("form#run button[type=submit]").click()
    own = page.locator('#token-strip [data-origin="prompt"]:not([data-template])')
    expect(own).to_have_text(["Say", "␣two", "␣words"])
    expect(page.locator("#token-strip [data-template]").first).to_have_text("<|im_start|>")
    expect(page.locator("#token-strip [data-template]").first).to_have_attribute("title", re.compile("chat template"))
    expect(page).to_have_url(re.compile(r"run=[0-9a-f]{20}"))
    page.reload()
    expect(page.locator("form#run textarea[name=prompt]")).to_have_value("Say two words")
    expect(page.locator("form#run input[name=chat]")).to_be_checked()
