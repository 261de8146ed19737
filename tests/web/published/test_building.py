"""A published site as files: the same bytes each time, no link that leads nowhere, and what was left out is said."""

from __future__ import annotations

import json
import re
import struct
import zlib
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
    for page in (*site.rglob("*.html"), *site.rglob("*.svg.z")):
        content = page.read_bytes()
        text = (zlib.decompress(content) if page.suffix == ".z" else content).decode()
        around = site if page.name == "404.html" else page.parent
        for match in re.finditer(r'\s(?:href|src|action)="([^"<]*)"', text):
            href = unescape(match[1])
            if href.startswith(("https:", "http:", "#", "data:")):
                continue
            if page.name == "404.html":
                href = href.removeprefix("/")  # where the site's address is not known, its host's root is taken
            seen += 1
            path = urlsplit(href).path
            if href.startswith("/") or not (around / path if path else page).resolve().is_file():
                broken.append((page.name, href))
    assert seen > 500
    assert broken == []


def test_what_leads_out_of_the_part_is_text_and_has_no_key(sites: Sites) -> None:
    site = sites[0]
    page = (site / "models" / MODEL / "final-norm" / "scale" / "index.html").read_text(encoding="utf-8")
    assert re.search(r'<a class="node" data-node="final-norm/gain"', page)
    assert re.search(r'<a href="[^"]*" data-key="p"', page) is None or "final-norm/rms" not in PART
    model = (site / "models" / MODEL / "index.html").read_text(encoding="utf-8")
    for found in re.finditer(r"<a(?= )(?![^>]* href=)[^>]*>", model):
        assert "data-key" not in found[0]
        assert "aria-label" not in found[0]
    walk = (site / "walk" / "index.html").read_text(encoding="utf-8")
    assert "Text becomes numbers" in walk
    assert not re.search(r'<a href="[^"]*token-ids', walk)
    index = json.loads((site / "search" / "index.json").read_bytes())
    nodes = {entry["path"] for entry in index if entry["models"]}
    assert nodes == set(PART)


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
    site = tmp_path / "site"
    page = (site / "models" / MODEL / "token-ids" / "prefill.html").read_text(encoding="utf-8")
    assert f'<link rel="canonical" href="{address}/models/{MODEL}/token-ids/index.html">' in page
    assert f'&lt;iframe src="<span>{address}/embed/{MODEL}/token-ids/prefill.html</span>"' in page
    sitemap = (site / "sitemap.xml").read_text(encoding="utf-8")
    listed = re.findall(rf"<loc>{address}/(.*)</loc>", sitemap)
    assert f"models/{MODEL}/token-ids/index.html" in listed
    assert len(listed) == len(set(listed)) == sitemap.count("<loc>")
    for name in listed:
        assert f'<link rel="canonical" href="{address}/{name}">' in (site / name).read_text(encoding="utf-8")
    for html in site.rglob("*.html"):
        for picture in re.findall(
            rf'property="og:image" content="{address}/([^"]*)"', html.read_text(encoding="utf-8")
        ):
            assert struct.unpack(">8x8xII", (site / picture).read_bytes()[:24]) == (1200, 630)
    assert "og:image" in (site / "index.html").read_text(encoding="utf-8")
    missing = (site / "404.html").read_text(encoding="utf-8")
    assert 'data-root="/below/atlas/"' in missing
    assert '<form class="big-search" action="/below/atlas/search/index.html"' in missing
