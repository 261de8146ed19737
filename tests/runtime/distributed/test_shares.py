"""Arithmetic of shares: the parts of any slice, put together, are that slice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from hypothesis import given
from hypothesis import strategies as st

from atlas.runtime.distributed.shares import Index, pieces, sharded_axis, share_of, span, split_axes, whole_shape

if TYPE_CHECKING:
    from atlas.catalog import Catalog


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Index, ...], int | None, int]:
    """A shape, an index of it, the axis that is split, and over how many ranks."""
    world = draw(st.integers(1, 4))
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    axis = draw(st.none() | st.integers(0, len(shape) - 1))
    if axis is not None:
        shape[axis] *= world
    index: list[Index] = []
    for size in shape:
        first, stop = sorted((draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))))
        index.append(slice(first, stop + 1) if draw(st.booleans()) else first)
    return tuple(shape), tuple(index), axis, world


@given(cases())
def test_parts_of_a_slice_make_the_slice(case: tuple[tuple[int, ...], tuple[Index, ...], int | None, int]) -> None:
    shape, index, axis, world = case
    whole = torch.arange(torch.Size(shape).numel()).reshape(shape)
    wanted = whole[index]
    found = torch.full_like(wanted, -1)
    parts = pieces(shape, index, axis, world)
    for piece in parts:
        part = share_of(whole, axis, piece.rank, world)[piece.own]
        assert part.shape == piece.shape
        found[piece.place] = part
    assert torch.equal(found, wanted)
    assert sum(torch.Size(piece.shape).numel() for piece in parts) == wanted.numel()  # nothing twice, nothing besides
    assert len(parts) == len({piece.rank for piece in parts})


def test_shares_are_equal_and_in_order() -> None:
    assert [span(9, rank, 3) for rank in range(3)] == [(0, 3), (3, 6), (6, 9)]
    assert whole_shape((1, 5, 3, 64), 2, 3) == (1, 5, 9, 64)
    assert whole_shape((1, 5), None, 3) == (1, 5)


def test_which_axes_a_declaration_calls_sharded(catalog: Catalog) -> None:
    model = catalog["llama-3.1-70b"]
    assert set(split_axes(model)) == {"vocab", "q_width", "kv_width", "q_heads", "kv_heads", "d_mlp"}
    assert sharded_axis(model, "blocks/attention/output-weight") == 1
    assert sharded_axis(model, "unembedding/logits") is None
    assert sharded_axis(model, "blocks/attention/softmax") is None
