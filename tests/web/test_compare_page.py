"""Two models side by side."""

from __future__ import annotations

import pytest

from atlas.catalog import Catalog
from atlas.web.compare_page import compared
from atlas.web.contexts import Comparison
from atlas.web.model_view import Views


@pytest.fixture(scope="module")
def compare(catalog: Catalog) -> dict[tuple[str, str], Comparison]:
    views = Views(catalog)
    names = tuple((entry.id, entry.name) for entry in catalog)
    pairs = [("llama-3-8b", "llama-3.1-8b"), ("llama-3-8b", "smollm2-135m"), ("llama-3-8b", "llama-3-8b")]
    return {(a, b): compared(views[a], views[b], names) for a, b in pairs}


def test_llama_3_and_3_1_differ_in_scaled_rope_and_nothing_else(compare: dict[tuple[str, str], Comparison]) -> None:
    found = compare["llama-3-8b", "llama-3.1-8b"]
    assert not found.only_a
    assert [ref.path for ref in found.only_b] == ["rotary/scale-frequencies", "rotary/scaled-frequencies"]
    assert {node.path for node in found.differing} == {
        "rotary/inverse-frequencies",
        "rotary/rotate",
        "rotary/rotations",
    }
    assert [(row.name, row.a, row.b) for row in found.configuration] == [("use_scaled_rope", "False", "True")]
    assert not found.sizes
    assert all(row.a == row.b for row in found.figures)
    equation = next(row for node in found.differing if node.path == "rotary/rotate" for row in node.rows)
    assert equation.name == "equation"
    assert 'data-node="rotary/inverse-frequencies" data-differs=""' in equation.a
    assert 'data-node="rotary/scaled-frequencies" data-differs=""' in equation.b
    assert 'data-node="rotary/rotations" data-differs' not in equation.a


def test_other_sizes_are_no_other_form(compare: dict[tuple[str, str], Comparison]) -> None:
    found = compare["llama-3-8b", "smollm2-135m"]
    assert [*found.only_a, *found.only_b, *found.differing] == []
    assert found.verdict == "The same graph: all 90 nodes have the same form; 8 settings differ."
    assert {row.name: (row.a, row.b) for row in found.sizes}["d_model"] == ("4096", "576")


def test_a_model_and_itself(compare: dict[tuple[str, str], Comparison]) -> None:
    assert compare["llama-3-8b", "llama-3-8b"].verdict == (
        "The same graph: all 90 nodes have the same form, with the same settings."
    )


def test_an_equation_that_only_one_of_them_has(catalog: Catalog) -> None:
    views = Views(catalog)
    found = compared(views["llama-3-8b"], views["mistral-7b"], ())
    node = next(node for node in found.differing if node.path == "rotary/inverse-frequencies")
    equation = next(row for row in node.rows if row.name == "equation")
    assert equation.a == "none"
    assert 'data-node="rotary/inverse-frequencies"' in equation.b
