"""Declared text as HTML: marks, escaping, shapes."""

from __future__ import annotations

from atlas.catalog import Catalog
from atlas.web import prose


def test_marks_become_elements_and_all_else_is_escaped() -> None:
    assert prose.inline("*full sequence* of `a < b` & <b>") == (
        "<em>full sequence</em> of <code>a &lt; b</code> &amp; &lt;b&gt;"
    )
    assert prose.inline("2 * 3 * 4") == "2 * 3 * 4"
    assert 'data-axis="head_dim"' in prose.inline(r"each of $\htmlData{axis=head_dim}{128}$ products")
    assert "data-axis" not in prose.inline(r"\htmlData{axis=head_dim}{128}")


def test_paragraphs_and_plain_text() -> None:
    assert prose.paragraphs("One.\n\nTwo *2*.\n") == "<p>One.</p><p>Two <em>2</em>.</p>"
    assert prose.paragraphs("") == ""
    assert prose.plain("In *full sequence*, `x` is $y$.") == "In full sequence, x is y."


def test_a_shape_in_words_lights_its_axes(catalog: Catalog) -> None:
    shape = catalog["llama-3-8b"].graph["blocks/attention/similarities"].shape["decode"]
    assert shape is not None
    words = prose.shape_words(shape)
    assert words.striptags() == "[B batch, 32 q heads, 1 query, Tk keys]"
    assert '<span class="axis" data-axis="keys">T<sub>k</sub> keys</span>' in words


def test_an_equation_marks_the_pages_own_symbol_and_kinds(catalog: Catalog) -> None:
    graph = catalog["llama-3-8b"].graph
    node = graph["blocks/attention/attention-update"]
    html = prose.equation(node.equation, graph, node.path)
    assert html.count(' data-this=""') == 1
    assert 'data-node="blocks/attention/output-weight" data-kind="parameter"' in html
    assert 'data-this=""' not in prose.equation(node.equation, graph)
