"""Measures of heads on patterns whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from atlas.inspection.attention import measure_heads, rank_of, strongest
from atlas.inspection.compare import first_parting


def one_hot(keys: list[int], width: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.eye(width, dtype=np.float32)[keys]


def test_heads_that_look_at_one_place() -> None:
    tokens = [7, 8, 9, 8, 9]
    back, first, uniform = one_hot([0, 0, 1, 2, 3], 5), one_hot([0] * 5, 5), np.full((5, 5), 0.2, np.float32)
    same, after = one_hot([0, 1, 2, 1, 2], 5), one_hot([0, 1, 2, 2, 3], 5)
    found = measure_heads(np.stack([back, first, uniform, same, after]), tokens, 0)
    assert [head.previous for head in found[:2]] == [1.0, 0.25]
    assert found[1].first == 1.0
    assert found[1].entropy == 0.0
    assert found[2].entropy == pytest.approx(np.log2(5))
    assert found[3].same_token == 1.0
    assert found[3].after_same_token == 0.0
    assert found[4].after_same_token == 1.0
    assert [head.head for head in found] == list(range(5))


def test_a_decode_step_has_one_query_and_all_keys() -> None:
    weights = np.array([[[0.1, 0.2, 0.7]]], np.float32)
    (head,) = measure_heads(weights, [5, 6, 5], 2)
    assert head.previous == pytest.approx(0.2)
    assert head.first == head.same_token == pytest.approx(0.1)
    assert head.after_same_token == pytest.approx(0.2)


def test_what_applies_to_no_query_is_unknown() -> None:
    (head,) = measure_heads(np.ones((1, 1, 1), np.float32), [5], 0)
    assert head.previous is head.first is head.entropy is head.same_token is None
    with pytest.raises(ValueError, match="3 keys"):
        measure_heads(np.ones((1, 1, 3), np.float32), [5], 0)


@settings(deadline=None)
@given(arrays(np.float32, st.integers(1, 40), elements=st.floats(width=32)), st.integers(1, 50))
def test_the_strongest_are_the_largest_in_order(row: np.ndarray[tuple[int], np.dtype[np.float32]], count: int) -> None:
    found = strongest(row, count)
    finite = [(-float(value), at) for at, value in enumerate(row) if np.isfinite(value)]
    infinite = int((row == np.inf).sum())
    expected = [(at, -value) for value, at in sorted(finite)][: max(0, count - infinite)]
    assert found == expected
    for at, value in found:
        assert rank_of(row, at) == int((row > value).sum()) + 1


def test_the_first_row_that_parts() -> None:
    assert first_parting([0.0, 1e-7, 1e-3, 0.5], 1e-4) == 2
    assert first_parting([0.0, None], 1e-4) == 1
    assert first_parting([0.0, 1e-7], 1e-4) is None
