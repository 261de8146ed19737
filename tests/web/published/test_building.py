"""A published site as files: the same bytes each time, no link that leads nowhere, and what was left out is said."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from atlas.catalog import Catalog
from tests.published import publish

MODEL = "smollm2-135m"
PART = ("final-norm/normalized", "final-norm/scale")
Sites = tuple[Path, Path]


@pytest.fixture(scope="module")
def sites(bundle: Path, catalog: Catalog, own_data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """The same small site, built twice."""
    folder = tmp_path_factory.mktemp("sites")
    for name in ("one", "two"):
        publish(folder / name, bundle, catalog, own_data_dir, (MODEL,), PART)
    return folder / "one", folder / "two"


def files(site: Path) -> dict[str, bytes]:
    return {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}


def test_two_builds_are_equal_byte_for_byte(sites: Sites) -> None:
    one, two = (files(site) for site in sites)
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


def test_no_link_leads_nowhere(sites: Sites) -> None:
    site = sites[0]
    broken, seen = [], 0
    for page in site.rglob("*.html"):
        for match in re.finditer(r'\s(?:href|src|action)="([^"]*)"', page.read_text(encoding="utf-8")):
            href = unescape(match[1])
            if href.startswith(("https:", "http:", "#", "data:")):
                continue
            seen += 1
            path = urlsplit(href).path
            if href.startswith("/") or not (page.parent / path if path else page).resolve().is_file():
                broken.append((page.name, href))
    assert seen > 500
    assert broken == []


def test_every_view_has_its_file_with_its_own_content(sites: Sites) -> None:
    folder = sites[0] / "models" / MODEL / "final-norm" / "normalized"
    assert sorted(path.name for path in folder.iterdir()) == ["decode.html", "index.html", "prefill.html"]
    for name, view in (("index", "full"), ("prefill", "prefill"), ("decode", "decode")):
        page = (folder / f"{name}.html").read_text(encoding="utf-8")
        assert f'data-view="{view}"' in page
        assert re.search(rf'<a href="[^"]*/{name}\.html" data-view="{view}"[^>]* aria-current="page"', page)
        assert "testserver" not in page
        assert "127.0.0.1" not in page


def test_a_page_says_what_was_left_out_and_the_site_says_all_of_it(sites: Sites) -> None:
    site = sites[0]
    model = (site / "models" / MODEL / "index.html").read_text(encoding="utf-8")
    assert "A published atlas: recorded runs can be looked at" in model
    norm = (site / "models" / MODEL / "final-norm" / "scale" / "index.html").read_text(encoding="utf-8")
    assert 'data-live="recorded"' not in norm
    holds = (site / "published" / "index.html").read_text(encoding="utf-8")
    assert "Recorded tensors may take 500 MB together" in holds
    assert "<code>blocks/attention/queries</code></th><td>nothing; it was not chosen for recording" in holds


def test_what_runs_hold_is_there_as_the_bundle_has_it(sites: Sites) -> None:
    (run,) = (sites[0] / "runs").iterdir()
    manifest = json.loads((run / "manifest.json").read_bytes())
    for name, member in manifest["members"].items():
        assert (run / name).stat().st_size == member["size"]


def test_a_site_that_knows_its_address_names_it(
    bundle: Path, catalog: Catalog, own_data_dir: Path, tmp_path: Path
) -> None:
    address = "https://example.org/below/atlas"
    publish(tmp_path / "site", bundle, catalog, own_data_dir, (MODEL,), ("token-ids",), address)
    page = (tmp_path / "site" / "models" / MODEL / "token-ids" / "prefill.html").read_text(encoding="utf-8")
    assert f'<link rel="canonical" href="{address}/models/{MODEL}/token-ids/index.html">' in page
    sitemap = (tmp_path / "site" / "sitemap.xml").read_text(encoding="utf-8")
    assert f"<loc>{address}/models/{MODEL}/token-ids/index.html</loc>" in sitemap
