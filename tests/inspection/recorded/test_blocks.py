"""Tiles of tensors: cut, packed and put together again bit for bit, whatever the shape and dtype."""

from __future__ import annotations

import math
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas.errors import BadRequest
from atlas.inspection.recorded.blocks import CELLS, WIDTHS, assembled, inflate, overview_of, raw, tiles_of, tiling
from atlas.inspection.tiles import reduce

SHAPES = st.lists(st.sampled_from((0, 1, 2, 3, 5, 64, 257)), max_size=4).filter(
    lambda shape: math.prod(shape) < 1 << 18
)


@settings(max_examples=40)
@given(SHAPES, st.sampled_from(sorted(WIDTHS)))
def test_tiles_give_the_tensor_again_bit_for_bit(shape: list[int], dtype: str) -> None:
    size = math.prod(shape) * WIDTHS[dtype]
    content = np.random.default_rng(size).integers(0, 2 if dtype == "bool" else 256, size, np.uint8)
    kind: torch.dtype = getattr(torch, dtype)
    tensor = (torch.from_numpy(content).view(kind) if size else torch.empty(0, dtype=kind)).reshape(shape)
    tiles = tiles_of(tensor)
    again = assembled(dtype, shape, (inflate(tile.content, tile.full) for tile in tiles))
    assert (again.dtype, list(again.shape)) == (kind, shape)
    assert raw(again).tobytes() == content.tobytes()


@pytest.mark.parametrize("shape", [(13, 49152), (1, 9, 1000, 1000), (3, 70_000, 2), (49152, 576), (2, 3, 4, 5)])
def test_no_tile_has_more_cells_than_it_may(shape: tuple[int, ...]) -> None:
    cut = tiling(shape)
    sizes = [math.prod(part.stop - part.start for part in box) for box in cut.boxes()]
    assert max(sizes) <= CELLS
    assert sum(sizes) == math.prod(shape)


def test_a_large_plane_has_an_overview_of_all_its_elements() -> None:
    tensor = torch.randn(2, 700, 1100, generator=torch.Generator().manual_seed(0))
    found = overview_of(tensor)
    assert found is not None
    levels, packed = found
    expected = reduce(tensor.numpy(), "absmax", levels, float(torch.finfo(torch.float32).min))
    assert expected.values[0].size <= CELLS
    assert inflate(packed.content, packed.full) == expected.to_bytes()
    assert overview_of(torch.zeros(9, 100, 100)) is None


@pytest.mark.parametrize("size", [0, 9, 11, 1 << 40])
def test_what_inflates_to_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="inflate"):
        inflate(zlib.compress(b"0123456789"), size)
    with pytest.raises(ValueError, match="inflate"):
        inflate(b"no deflated bytes", size)


def test_a_dtype_that_cannot_be_kept_is_named() -> None:
    with pytest.raises(BadRequest, match="complex128"):
        tiles_of(torch.zeros(2, dtype=torch.complex128))
