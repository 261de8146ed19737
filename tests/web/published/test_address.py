"""Pages of a server and their files: each page has one, no two share one, and what scripts need goes along."""

from __future__ import annotations

import pytest

from atlas.web.published.address import Address, read, way_up
from atlas.web.published.rewriting import rewritten


@pytest.mark.parametrize(
    ("href", "file", "after"),
    [
        ("/", "index.html", ""),
        ("/how-to-read#checked", "how-to-read/index.html", "#checked"),
        ("/models/llama-3-8b", "models/llama-3-8b/index.html", ""),
        ("/models/llama-3-8b?view=prefill", "models/llama-3-8b/prefill.html", ""),
        (
            "/models/m/blocks?view=decode&open=blocks/a,blocks/b",
            "models/m/blocks/decode.html",
            "?open=blocks/a,blocks/b",
        ),
        ("/models/m/a/b?view=decode&layer=3&step=2#live", "models/m/a/b/decode.html", "?layer=3&step=2#live"),
        ("/models/m/a?view=decode&walk=4&layer=2", "models/m/a/walk-4.html", "?layer=2"),
        ("/models/m/a?view=nonsense", "models/m/a/index.html", ""),
        ("/compare", "compare/index.html", ""),
        ("/compare?a=x", "compare/x/index.html", ""),
        ("/compare?a=x&b=y.1", "compare/x/y.1.html", ""),
        ("/embed/m/a?view=decode&theme=dark", "embed/m/a/decode.html", "?theme=dark"),
        ("/glossary?view=decode", "glossary/index.html", ""),
        ("/search?q=blk.3&model=m", "search/index.html", "?q=blk.3&model=m"),
    ],
)
def test_a_page_has_one_file(href: str, file: str, after: str) -> None:
    address, rest = read(href)
    assert (address.file, rest) == (file, after)


def test_the_way_up_leads_to_the_folder() -> None:
    assert [way_up(file) for file in ("index.html", "walk/index.html", "a/b/c.html")] == ["", "../", "../../"]


def test_addresses_become_relative_and_none_leads_nowhere() -> None:
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<link rel="stylesheet" href="/static/abc/theme.css">'
        '<a href="/models/m/a?view=decode&amp;layer=2">here</a><a href="/models/m/gone">gone</a>'
        '<a href="https://example.org/x">out</a><a href="#main">skip</a><form action="/api/runs"></form>'
        '<a class="toggle" href="/models/m?open=a" data-toggle="a" aria-label="Open A"><path/></a>'
        '<a class="toggle" href="/models/m?open=" data-toggle="c" aria-label="Close C"><path/></a>'
        '<a href="/models/m/gone" data-key="n" data-key-label="Next" title="Gone">on</a>'
    )
    here = Address("/models/m/a/b", "prefill")
    known = {here, Address("/models/m/a", "decode"), Address("/models/m/a", "prefill")}
    found = rewritten(
        page, here, static=lambda name: f"static/1/{name.rpartition('/')[2]}", published=known.__contains__, runs=("r",)
    )
    assert (
        '<html lang="en" data-root="../../../../" data-page="/models/m/a/b" data-page-view="prefill" data-runs="r">'
        in found
    )
    assert '<link rel="stylesheet" href="../../../../static/1/theme.css">' in found
    assert '<a href="../../../../models/m/a/decode.html?layer=2">here</a><a>gone</a>' in found
    assert '<a href="https://example.org/x">out</a><a href="#main">skip</a><form></form>' in found
    assert '<a class="toggle" href="../../../../models/m/a/prefill.html" data-toggle="a" aria-label="Open A">' in found
    assert '<a class="toggle needs-script" data-toggle="c">' in found
    assert '<a title="Gone">on</a>' in found
    assert "script-src 'self';" in found


def test_a_page_given_at_any_depth_has_addresses_from_the_hosts_root() -> None:
    page = '<html lang="en">\n<head>\n<meta charset="utf-8"><a href="/search">search</a>'
    found = rewritten(page, Address("/404"), static=str, published=lambda _: True, runs=(), up="/below/")
    assert '<html lang="en" data-root="/below/"' in found
    assert '<a href="/below/search/index.html">' in found
