"""Numbers with named axes: planes, stacks, profiles and single cells against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from atlas.errors import BadRequest
from atlas.inspection.numbers import Numbers, named_axes

LOWEST = float(np.finfo(np.float32).min)
ARRAY = np.random.default_rng(0).standard_normal((1, 3, 4, 5)).astype(np.float32)
NUMBERS = Numbers(ARRAY, named_axes(["batch", "q_heads", "queries", "keys"], ARRAY.shape, (None, None, 7, 0)), LOWEST)


def test_a_plane_is_a_slice_with_two_axes() -> None:
    assert np.array_equal(NUMBERS.plane("0,1,:,:", False), ARRAY[0, 1])
    assert np.array_equal(NUMBERS.plane("0,:,2,:", True), ARRAY[0, :, 2].T)
    assert np.array_equal(NUMBERS.plane("0,1,2,:", False), ARRAY[0, 1, 2][None])
    for text in ("0,:,:,:", "0,1,2,3"):
        with pytest.raises(BadRequest, match="a plane has two"):
            NUMBERS.plane(text, False)


def test_a_picture_for_each_index() -> None:
    made = NUMBERS.thumbnails("0,:,:,:", "q_heads", True, 8, "mean")
    assert np.array_equal(made.values, ARRAY[0].swapaxes(1, 2))
    lines = NUMBERS.thumbnails("0,:,2,:", "q_heads", False, 8, "mean")
    assert np.array_equal(lines.values, ARRAY[0, :, 2][:, None])
    by_query = NUMBERS.thumbnails("0,1,:,:", "queries", False, 8, "mean")
    assert np.array_equal(by_query.values, ARRAY[0, 1][:, None])
    with pytest.raises(BadRequest, match="does not keep 'q_heads'"):
        NUMBERS.thumbnails("0,1,:,:", "q_heads", False, 8, "mean")
    with pytest.raises(BadRequest, match="no axis 'heads'"):
        NUMBERS.thumbnails("0,:,:,:", "heads", False, 8, "mean")


@pytest.mark.parametrize("measure", ["rms", "mean", "absmax", "min", "max"])
def test_a_profile_leaves_out_what_is_no_number(measure: str) -> None:
    array = np.array([[1.0, -3.0, np.nan, LOWEST], [np.inf, -np.inf, np.nan, LOWEST]], np.float32)
    numbers = Numbers(array, named_axes(("positions", "d_model"), array.shape, (0, None)), LOWEST)
    expected = {"rms": 5**0.5, "mean": -1.0, "absmax": 3.0, "min": -3.0, "max": 1.0}[measure]
    found = numbers.profile("positions", measure)  # type: ignore[arg-type]
    assert found[0] == pytest.approx(expected)
    assert np.isnan(found[1])


def test_a_cell_of_a_block_is_the_one_that_its_reduction_stands_for() -> None:
    cell = NUMBERS.cell("0,1,1:3,2:5", "absmax", None)
    block = ARRAY[0, 1, 1:3, 2:5]
    assert cell.value == block.flat[np.abs(block).argmax()]
    assert ARRAY[tuple(cell.index)] == cell.value
    assert (cell.of, cell.along) == (5, "keys")
    assert NUMBERS.cell("0,1,2,3", None, "q_heads").of == 3
    for pick in (None, "mean"):
        with pytest.raises(BadRequest, match="6 elements, not one"):
            NUMBERS.cell("0,1,1:3,2:5", pick, None)


def test_a_single_number_and_what_is_no_number() -> None:
    alone = Numbers(np.array(2.5, np.float32), (), None).cell("", None, None)
    assert (alone.value, alone.index, alone.rank) == (2.5, [], None)
    odd = Numbers(np.array([np.nan, -np.inf], np.float32), named_axes(("pairs",), (2,), (None,)), None)
    assert (odd.cell("0", None, None).text, odd.cell("1", None, None).text) == ("nan", "-inf")
    assert odd.cell("0:2", "max", None).index == [0]
    row, axis = NUMBERS.row("0,1,2,:")
    assert np.array_equal(row, ARRAY[0, 1, 2])
    assert axis.name == "keys"
