"""Tiles against numpy, element by element, with everything that is no number in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from atlas.errors import BadRequest
from atlas.inspection import tiles
from atlas.inspection.answers import Reduction
from atlas.inspection.arrays import as_array, lowest
from atlas.inspection.tiles import REDUCTIONS, SIDE, extreme, levels_of, reduce, thumbnails, tile

Array = npt.NDArray[Any]
LOWEST = float(np.finfo(np.float32).min)
NUMBERS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6),
    st.sampled_from([np.nan, np.inf, -np.inf, LOWEST, 0.0, -0.0]),
)
PLANES = st.tuples(st.integers(1, 40), st.integers(1, 40)).flatmap(lambda s: arrays(np.float32, s, elements=NUMBERS))


def expected_cell(block: Array, reduction: Reduction, bottom: bool) -> tuple[float, int]:
    """What a cell over `block` must say, written out."""
    kept = block[np.isfinite(block) & (block > LOWEST)]
    flags = (
        (tiles.NAN if np.isnan(block).any() else 0)
        | (tiles.PLUS_INF if np.isposinf(block).any() else 0)
        | (tiles.MINUS_INF if np.isneginf(block).any() else 0)
        | (tiles.LOWEST if (block == LOWEST).any() else 0)
        | (tiles.FINITE if kept.size else 0)
    )
    if bottom:
        return float(block.flat[0]), flags
    if not kept.size:
        return np.nan, flags
    found = {
        "absmax": kept[np.argmax(np.abs(kept))],
        "mean": kept.astype(np.float64).mean(),
        "min": kept.min(),
        "max": kept.max(),
    }
    return float(found[reduction]), flags


@settings(max_examples=60, deadline=None)
@given(PLANES, st.sampled_from(REDUCTIONS), st.integers(0, 6), st.integers(0, 6))
def test_every_cell_is_a_reduction_of_all_its_elements(
    plane: Array, reduction: Reduction, row_level: int, column_level: int
) -> None:
    levels = (min(row_level, levels_of(plane.shape[0])), min(column_level, levels_of(plane.shape[1])))
    made = tile(plane, reduction, levels, (0, 0), LOWEST)
    rows, columns = (1 << level for level in levels)
    assert made.values.shape == (-(-plane.shape[0] // rows), -(-plane.shape[1] // columns))
    for r, c in np.ndindex(made.values.shape):
        block = plane[r * rows : (r + 1) * rows, c * columns : (c + 1) * columns]
        value, flags = expected_cell(block, reduction, levels == (0, 0))
        assert made.flags[r, c] == flags
        got = float(made.values[r, c])
        if reduction == "absmax":
            assert abs(got) == abs(value) or (np.isnan(got) and np.isnan(value))
        else:
            assert got == pytest.approx(value, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("shape", [(1, 128_256), (128_256, 1), (1, 1), (3, 700), (700, 3), (513, 257)])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_extreme_shapes_are_covered_without_gap_or_overlap(shape: tuple[int, int], reduction: Reduction) -> None:
    plane = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for level in (0, 1, 5):
        levels = (min(level, levels_of(shape[0])), min(level, levels_of(shape[1])))
        across = [-(-size // (SIDE << at)) for size, at in zip(shape, levels, strict=True)]
        whole = np.block(
            [[tile(plane, reduction, levels, (r, c)).values for c in range(across[1])] for r in range(across[0])]
        )
        assert np.array_equal(whole, reduce(plane, reduction, levels).values)
    top = tile(plane, "max", (levels_of(shape[0]), levels_of(shape[1])), (0, 0))
    assert top.values.shape == (1, 1)
    assert top.values[0, 0] == plane.max()


def test_the_bottom_is_the_elements_themselves() -> None:
    plane = np.array([[1.5, np.nan], [-np.inf, np.inf]], np.float32)
    made = tile(plane, "mean", (0, 0), (0, 0))
    assert np.array_equal(made.values, plane, equal_nan=True)
    assert made.flags.tolist() == [[tiles.FINITE, tiles.NAN], [tiles.MINUS_INF, tiles.PLUS_INF]]


def test_integers_keep_their_exact_values() -> None:
    plane = np.array([[2**31 + 1, 2**40 + 1]], np.int64)
    made = tile(plane, "max", (0, 0), (0, 0))
    assert made.values.dtype == np.float64
    assert made.values.tolist() == plane.tolist()


def test_bytes_are_values_then_flags() -> None:
    plane = np.arange(6, dtype=np.float32).reshape(2, 3)
    content = tile(plane, "max", (0, 0), (0, 0)).to_bytes()
    assert np.array_equal(np.frombuffer(content[:24], "<f4").reshape(2, 3), plane)
    assert content[24:] == bytes([tiles.FINITE] * 6)


def test_a_masks_lowest_number_is_no_value() -> None:
    scores = torch.tensor([[0.5, torch.finfo(torch.bfloat16).min], [0.25, 0.125]], dtype=torch.bfloat16)
    made = reduce(as_array(scores), "min", (1, 1), lowest(scores))
    assert made.values.tolist() == [[0.125]]
    assert made.flags.tolist() == [[tiles.FINITE | tiles.LOWEST]]


def test_thumbnails_are_reduced_until_they_fit() -> None:
    stack = np.random.default_rng(2).standard_normal((3, 9, 100, 7)).astype(np.float32)
    made = thumbnails(stack, 16, "absmax")
    assert made.values.shape == (3, 9, 13, 7)
    assert np.array_equal(made.values[2, 8], reduce(stack[2, 8], "absmax", (3, 0)).values)


@pytest.mark.parametrize(("reduction", "value"), [("absmax", -9.0), ("max", 4.0), ("min", -9.0)])
def test_the_extreme_element_of_a_cell_is_found(reduction: Reduction, value: float) -> None:
    block = np.array([[1, -9, np.nan], [4, np.inf, LOWEST]], np.float32)
    pick = extreme(block, reduction, LOWEST)
    assert pick is not None
    assert block[pick.row, pick.column] == value
    assert extreme(block, "mean") is None
    assert extreme(np.full((2, 2), np.nan), reduction) is None


@pytest.mark.parametrize(
    ("levels", "at"), [((-1, 0), (0, 0)), ((9, 0), (0, 0)), ((0, 11), (0, 0)), ((0, 0), (1, 0)), ((0, 0), (0, 3))]
)
def test_a_tile_that_is_not_there_is_refused(levels: tuple[int, int], at: tuple[int, int]) -> None:
    with pytest.raises(BadRequest, match="There is no") as caught:
        tile(np.zeros((256, 513), np.float32), "max", levels, at)
    assert caught.value.hint
