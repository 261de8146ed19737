"""A bundle dropped on the page in Chromium: opened and looked at, or refused with the reason."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.inspection.recorded.test_bundle import changed, members_of, pack, with_true_hashes

OPEN = Callable[[str], Page]
DROP = """([name, content]) => {
  const bytes = Uint8Array.from(atob(content), letter => letter.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], name));
  const about = { bubbles: true, cancelable: true, dataTransfer };
  for (const kind of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(kind, about));
}"""
PAGE = "/models/smollm2-135m/blocks/attention/attention-weights?view=prefill"


@pytest.fixture(autouse=True)
def _nothing_stays(own_data_dir: Path) -> Iterator[None]:
    yield
    for path in (own_data_dir / "recorded").glob("*.atlas"):
        path.unlink()


def drop(page: Page, name: str, content: bytes) -> None:
    page.evaluate(DROP, [name, base64.b64encode(content).decode()])


def test_a_bundle_that_is_dropped_is_opened(open_page: OPEN, bundle: Path, own_data_dir: Path) -> None:
    page = open_page(PAGE)
    page.wait_for_selector("#live[data-state=ready]")
    drop(page, "run.atlas", bundle.read_bytes())
    page.wait_for_url(re.compile(r"attention-weights\?run=[0-9a-f]{20}#live"))
    page.wait_for_selector("#live[data-state=ready]")
    assert len(list((own_data_dir / "recorded").glob("*.atlas"))) == 1


def test_a_bundle_that_is_chosen_and_cut_short_is_refused_on_the_page(
    open_page: OPEN, bundle: Path, tmp_path: Path
) -> None:
    page = open_page(PAGE)
    page.wait_for_selector("#live[data-state=ready]")
    cut = tmp_path / "cut.atlas"
    cut.write_bytes(bundle.read_bytes()[:5000])
    page.locator(".run-options > summary").click()
    page.get_by_label("Open a bundle").set_input_files(cut)
    expect(page.locator('[data-live="problem"]')).to_contain_text("it was cut short")
    small = {name: members_of(bundle)[name] for name in ("run.json", "manifest.json")}
    newer = changed(small, "manifest.json", lambda manifest: manifest.update(format=99))
    altered = with_true_hashes(small) | {"run.json": small["run.json"][:-2] + b" }"}
    for members, reason in ((altered, "altered"), (newer, "is of format 99, and this version knows formats up to")):
        drop(page, "run.atlas", pack(tmp_path / "other.atlas", members).read_bytes())
        expect(page.locator('[data-live="problem"]')).to_contain_text(reason)
    drop(page, "letter.txt", b"text")
    expect(page.locator('[data-live="problem"]')).to_contain_text("letter.txt is no bundle")
    expect(page).to_have_url(re.compile("attention-weights"))
