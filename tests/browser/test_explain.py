"""How a number came to be, in Chromium: asked of the chosen cell, shown with its inputs, followed by their links."""

from __future__ import annotations

import re

from playwright.sync_api import Page, Route, expect

A = "blocks/attention/"
READY = "#live[data-state=ready]"


def open_panel(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(READY)
    page.locator("details[data-panel=explain] > summary").click()
    page.wait_for_selector(".explain-numbers")


def numbers(page: Page) -> dict[str, str]:
    rows = page.locator(".explain-numbers > div")
    return {row.locator("dt").inner_text(): row.locator("dd").inner_text() for row in rows.all()}


def test_the_chosen_number_is_explained(page: Page) -> None:
    open_panel(page, f"/models/llama-3-8b/{A}attention-update?view=prefill&layer=7&cell=0,3,211")
    chosen = page.locator("output[data-cell]").get_attribute("data-value")
    found = numbers(page)
    assert found["captured"] == chosen
    assert abs(float(found["in float64"]) - float(chosen or "nan")) < 1e-5
    expect(page.locator(".explain .katex").first).to_be_visible()
    terms = page.locator(".explain-terms tbody tr")
    expect(terms).to_have_count(13)
    expect(terms.last).to_contain_text("the other 564 come to")
    expect(terms.first.locator("a")).to_have_count(2)


def test_its_inputs_are_lit_in_the_diagram_while_it_is_open(page: Page) -> None:
    open_panel(page, f"/models/llama-3-8b/{A}attention-update?view=prefill&layer=7&cell=0,3,211")
    lit = page.locator("svg .feeds")
    expect(lit.first).to_be_attached()
    nodes = {element.get_attribute("data-node") for element in lit.all()}
    assert nodes <= {f"{A}merged-heads", f"{A}output-weight"}
    assert f"{A}merged-heads" in nodes
    page.locator("details[data-panel=explain] > summary").click()
    expect(lit).to_have_count(0)


def test_an_input_leads_to_its_own_cell_where_the_same_is_asked(page: Page) -> None:
    open_panel(page, f"/models/llama-3-8b/{A}scaled-similarities?view=decode&layer=5&step=2&cell=0,3,0,4")
    source = page.locator(".explain-sources a").first
    expect(source).to_have_text("Similarities")
    said = page.locator(".explain-sources li").first.inner_text()
    source.click()
    page.wait_for_url(re.compile(rf"{A}similarities\?"))
    page.wait_for_selector(READY)
    for part in ("view=decode", "layer=5", "step=2", "cell=0,3,0,4"):
        assert part in page.url.replace("%2C", ",")
    value = page.locator("output[data-cell]")
    expect(value).to_have_attribute("data-cell", "0,3,0,4")
    assert said.endswith(f"= {value.get_attribute('data-value')}")


def test_another_cell_is_another_story(page: Page) -> None:
    open_panel(page, f"/models/llama-3-8b/{A}rotated-queries?view=prefill&layer=2&cell=0,3,2,11")
    expect(page.locator(".explain-sources")).to_contain_text("Rotations")
    before = numbers(page)["captured"]
    page.locator("canvas[data-tensor]").press("ArrowRight")
    expect(page.locator(".explain-numbers dd").first).not_to_have_text(before)
    assert numbers(page)["captured"] == page.locator("output[data-cell]").get_attribute("data-value")


def test_a_mark_opens_what_was_compared(page: Page) -> None:
    page.goto(f"/models/llama-3-8b/{A}attention-update")
    section = page.locator("#checks")
    expect(section).to_be_visible()
    links = page.locator("ul.checks a[href^='#proof-']")
    for link in links.all():
        link.click()
        expect(page.locator(str(link.get_attribute("href")))).to_be_visible()
    if not links.count():
        expect(section).to_contain_text("have not been checked on this machine yet")


def test_the_live_mark_says_whether_the_values_that_are_shown_hold(page: Page) -> None:
    """The page is made before anybody computes; what is then checked is marked where the other marks are."""
    page.goto(f"/models/llama-3-8b/{A}attention-update?view=prefill&layer=3")
    mark = page.locator('ul.checks li[data-check="live"]')
    expect(mark).to_have_attribute("data-ok", "true", timeout=30_000)
    expect(mark).to_have_text("✓Holds: live values")
    assert "equation, in float64: worst row" in str(mark.get_attribute("title"))

    wrong = {"ok": False, "worst_row": 0.5, "tolerance": 1e-5, "why": "It was changed on its way here."}

    def altered(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        if told["checks"]["equation"]["ok"] is not None:
            told["checks"]["equation"] |= wrong
        route.fulfill(response=answer, json=told)

    page.route("**/tensors/**/attention-update?*layer=4*", altered)
    page.locator('[data-live="layer"]').fill("4")
    expect(mark).to_have_attribute("data-ok", "false", timeout=30_000)
    expect(mark).to_have_text("✗Fails: live values")
    expect(page.locator('[data-live="checks"]')).to_contain_text("✗ equation gives other numbers: worst row 0.5")
