"""Which positions a pass covers, and the sizes that follow from it."""

from __future__ import annotations

import pytest

from atlas.catalog import Catalog
from atlas.graph.axes import View
from atlas.inspection.frames import pass_of


@pytest.mark.parametrize(
    ("view", "step", "positions", "first"),
    [("full", None, 9, 0), ("prefill", None, 5, 0), ("decode", 1, 1, 5), ("decode", 4, 1, 8), ("decode", None, 1, 5)],
)
def test_a_pass_covers_its_positions(view: View, step: int | None, positions: int, first: int) -> None:
    made = pass_of(view, step, 5, 9)
    assert (made.computed, made.before, made.attended) == (positions, first, first + positions)
    assert [made.first(axis) for axis in ("positions", "queries", "keys", "d_model")] == [first, first, 0, None]


def test_expected_sizes_are_the_declared_ones_in_that_pass(catalog: Catalog) -> None:
    graph = catalog["smollm2-135m"].graph
    made = pass_of("decode", 3, 5, 9)
    weights = graph["blocks/attention/attention-weights"].shape["decode"]
    cache = graph["blocks/attention/key-cache"].shape["decode"]
    assert weights is not None
    assert cache is not None
    assert made.expected(weights) == [1, 9, 1, 8]
    assert made.expected(cache) == [1, 8, 3, 64]
