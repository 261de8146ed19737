"""Two tensors side by side: brought to the same positions, and measured row by row."""

from __future__ import annotations

import numpy as np
import pytest

from atlas.errors import BadRequest
from atlas.inspection.compare import Framed, align, pair_up, row_differences
from atlas.inspection.frames import Pass, pass_of

STREAM, SCORES = ("batch", "positions", "d_model"), ("batch", "q_heads", "queries", "keys")
RANDOM = np.random.default_rng(0)


def framed(shape: tuple[int, ...], axes: tuple[str, ...], made_in: Pass) -> Framed:
    return Framed(RANDOM.standard_normal(shape).astype(np.float32), axes, made_in)


def test_a_decode_step_lies_beside_its_row_of_the_full_sequence() -> None:
    full = framed((1, 9, 6), STREAM, pass_of("full", None, 5, 9))
    step = Framed(full.array[:, 6:7].copy(), STREAM, pass_of("decode", 2, 5, 9))
    pair = align(step, full)
    assert pair.first == (None, 6, None)
    rows = row_differences(pair)
    assert rows.equal
    assert rows.by_position == [0.0]
    scores = framed((1, 2, 9, 9), SCORES, pass_of("full", None, 5, 9))
    one = Framed(scores.array[:, :, 6:7, :7].copy(), SCORES, pass_of("decode", 2, 5, 9))
    assert np.array_equal(align(one, scores).other, one.array)


def test_the_measure_is_the_norm_of_the_difference_over_the_norm_of_the_row() -> None:
    one = np.array([[[3.0, 4.0], [22_500.0, 1.0]]], np.float32)
    other = one + np.array([[[0.0, 0.5], [0.0, 0.5]]], np.float32)
    made = pass_of("prefill", None, 2, 2)
    rows = row_differences(align(Framed(one, STREAM, made), Framed(other, STREAM, made)))
    assert rows.by_position == pytest.approx([0.1, 0.5 / 22_500])
    assert rows.worst == pytest.approx(0.1)
    assert rows.max_abs == 0.5
    assert not rows.equal


def test_the_worst_row_of_a_position_counts() -> None:
    made = pass_of("prefill", None, 2, 2)
    one = np.ones((1, 3, 2, 2), np.float32)
    other = one.copy()
    other[0, 1, 1, 0] = 2
    rows = row_differences(align(Framed(one, SCORES, made), Framed(other, SCORES, made)))
    assert rows.by_position == pytest.approx([0.0, 1 / np.sqrt(2)])


def test_the_same_infinities_are_no_difference_and_others_are_unknown() -> None:
    made = pass_of("prefill", None, 2, 2)
    one = np.array([[[[1.0, -np.inf], [1.0, 2.0]]]], np.float32)
    other = one.copy()
    assert row_differences(align(Framed(one, SCORES, made), Framed(other, SCORES, made))).worst == 0.0
    other[0, 0, 1, 0] = np.nan
    rows = row_differences(align(Framed(one, SCORES, made), Framed(other, SCORES, made)))
    assert rows.by_position == [0.0, None]
    assert rows.worst is None
    gap = align(Framed(one, SCORES, made), Framed(one, SCORES, made)).difference()
    assert gap[0, 0, 0].tolist() == [0.0, -np.inf]


def test_complex_rows_and_rows_without_positions() -> None:
    made = pass_of("prefill", None, 1, 1)
    one = np.array([1 + 0j, 0 + 1j], np.complex64)
    rows = row_differences(align(Framed(one, ("pairs",), made), Framed(one * 2, ("pairs",), made)))
    assert rows.by_position == pytest.approx([1.0])


def test_steps_without_a_common_position_are_laid_side_by_side() -> None:
    early = framed((1, 1, 6), STREAM, pass_of("decode", 1, 5, 9))
    late = framed((1, 1, 6), STREAM, pass_of("decode", 3, 5, 9))
    with pytest.raises(BadRequest, match="no position in common"):
        align(early, late)
    assert np.array_equal(pair_up(early, late).other, late.array)
    one = framed((1, 2, 1, 6), SCORES, pass_of("decode", 1, 5, 9))
    other = framed((1, 2, 1, 8), SCORES, pass_of("decode", 3, 5, 9))
    pair = pair_up(one, other)
    assert pair.one.shape == pair.other.shape == (1, 2, 1, 6)


def test_what_cannot_be_compared_is_refused() -> None:
    made = pass_of("prefill", None, 2, 2)
    with pytest.raises(BadRequest, match="other axes"):
        align(framed((1, 2, 6), STREAM, made), framed((1, 2, 2, 2), SCORES, made))
    with pytest.raises(BadRequest, match="'d_model' has size 6 in one and 8"):
        align(framed((1, 2, 6), STREAM, made), framed((1, 2, 8), STREAM, made))
