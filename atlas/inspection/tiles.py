"""A plane of a tensor at any zoom, in tiles: honest reductions, exact at the bottom.

A cell at levels (r, c) stands for 2**r rows by 2**c columns of elements, and each tile is reduced from the elements
themselves, all of them, never from a sample. Rows and columns zoom apart, so a plane of 1 x 128,256 is as well
served as a square one. Elements that are no finite numbers take no part in a reduction; each cell says in `flags`
which of them it holds. Knows nothing of colours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np

from atlas.errors import BadRequest
from atlas.inspection.answers import Reduction
from atlas.inspection.arrays import Array

REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
SIDE = 256
"""Cells along a side of a tile; the last ones of a plane are smaller."""

NAN, PLUS_INF, MINUS_INF, LOWEST, FINITE = 1, 2, 4, 8, 16
"""Flags of a cell: what it holds. LOWEST is the lowest number of the dtype, which some masks add."""


@dataclass(frozen=True)
class Tile:
    """`values` [..., rows, columns], float32 (float64 for integers and float64), and `flags` of that shape, uint8.

    At levels (0, 0) a value is the element itself; above, nan where a cell holds no finite element.
    """

    values: Array
    flags: Array

    def to_bytes(self) -> bytes:
        """Little-endian values in row order, then the flags."""
        kind = self.values.dtype.newbyteorder("<")
        return self.values.astype(kind, copy=False).tobytes() + self.flags.tobytes()


@dataclass(frozen=True)
class Pick:
    """One element: its row and column in the plane."""

    row: int
    column: int


def levels_of(size: int) -> int:
    """The highest level of an axis: there, one cell holds all of it."""
    return max(0, (size - 1).bit_length())


def tile(
    plane: Array, reduction: Reduction, levels: tuple[int, int], at: tuple[int, int], lowest: float | None = None
) -> Tile:
    """The tile at (row, column) `at` of a plane [rows, columns].

    Raises `BadRequest` for a level or a tile that the plane does not have.
    """
    window = []
    for axis, size, level, index in zip(("row", "column"), plane.shape, levels, at, strict=True):
        top = levels_of(size)
        if not 0 <= level <= top:
            raise BadRequest(
                f"There is no {axis} level {level}: {size:,} {axis}s have levels 0 to {top}.",
                "Level 0 is one element a cell.",
            )
        last = (size - 1) // (SIDE << level)
        if not 0 <= index <= last:
            raise BadRequest(
                f"There is no tile {index} along the {axis}s at level {level}: they end at tile {last}.",
                f"Ask for 0 to {last}.",
            )
        window.append(slice(index * SIDE << level, (index + 1) * SIDE << level))
    return reduce(plane[tuple(window)], reduction, levels, lowest)


def reduce(block: Array, reduction: Reduction, levels: tuple[int, int], lowest: float | None = None) -> Tile:
    """All of a block [..., rows, columns], reduced by 2**level along its last two axes."""
    if block.dtype in (np.float32, np.float16):
        values = block.astype(np.float32, copy=False)
    else:
        values = block.astype(np.float64 if block.dtype != np.bool_ else np.float32)
    masks = -np.inf if lowest is None else lowest
    finite = np.isfinite(values)
    if values.size and finite.all() and values.min() > masks:
        kept, odd = None, None
    else:
        kept = finite & (values > masks)
        odd = (
            NAN * np.isnan(values).astype(np.uint8)
            | PLUS_INF * np.isposinf(values).astype(np.uint8)
            | MINUS_INF * np.isneginf(values).astype(np.uint8)
            | LOWEST * (finite & ~kept).astype(np.uint8)
            | FINITE * kept.astype(np.uint8)
        )
    return Tile(_values(values, kept, reduction, levels), _flags(values, odd, levels))


def thumbnails(stack: Array, side: int, reduction: Reduction, lowest: float | None = None) -> Tile:
    """Each plane of [..., rows, columns] reduced until it is at most `side` cells along either axis."""
    rows, columns = stack.shape[-2:]
    levels = (_level_for(rows, side), _level_for(columns, side))
    return reduce(stack, reduction, levels, lowest)


def extreme(block: Array, reduction: Reduction, lowest: float | None = None) -> Pick | None:
    """The element of a block [rows, columns] that its reduction stands for; None for a mean or without finite ones."""
    values = block.astype(np.float64)
    kept = np.isfinite(values) & (values > (-np.inf if lowest is None else lowest))
    if reduction == "mean" or not kept.any():
        return None
    key = {"absmax": np.abs, "max": np.positive, "min": np.negative}[reduction]
    place = int(np.argmax(np.where(kept, key(np.where(kept, values, 0.0)), -np.inf)))
    return Pick(*divmod(place, values.shape[1]))


# --- reductions by halves: each level combines neighbours, so every element counts once

Combine = Callable[[Array, Array], Array]


def _larger_magnitude(one: Array, other: Array) -> Array:
    return np.where(np.abs(other) > np.abs(one), other, one)


COMBINE: Mapping[str, Combine] = {"absmax": _larger_magnitude, "max": np.maximum, "min": np.minimum}
NEUTRAL = {"absmax": 0.0, "max": -np.inf, "min": np.inf}


def _halved(values: Array, axis: int, combine: Combine) -> Array:
    """Neighbours along an axis combined; the last one of an odd number stays as it is."""
    pairs = values.shape[axis] // 2 * 2
    before: list[slice] = [slice(None)] * (values.ndim + axis)
    after: list[slice] = [slice(None)] * (-axis - 1)

    def picked(which: slice) -> Array:
        found: Array = values[(*before, which, *after)]
        return found

    joined = combine(picked(slice(0, pairs, 2)), picked(slice(1, pairs, 2)))
    if pairs == values.shape[axis]:
        return joined
    return np.concatenate([joined, picked(slice(pairs, None))], axis=axis)


def _reduced(values: Array, levels: tuple[int, int], combine: Combine) -> Array:
    for axis, level in zip((-2, -1), levels, strict=True):
        for _ in range(level):
            values = _halved(values, axis, combine)
    return values


def _values(values: Array, kept: Array | None, reduction: Reduction, levels: tuple[int, int]) -> Array:
    if levels == (0, 0):
        return values
    if reduction == "mean":
        wide = values.astype(np.float64)
        sums = _reduced(wide if kept is None else np.where(kept, wide, 0.0), levels, np.add)
        counts = _counts(values, levels) if kept is None else _reduced(kept.astype(np.float64), levels, np.add)
        with np.errstate(invalid="ignore"):
            means: Array = (sums / counts).astype(values.dtype)
        return means
    combine = COMBINE[reduction]
    if kept is None:
        return _reduced(values, levels, combine)
    found = _reduced(np.where(kept, values, values.dtype.type(NEUTRAL[reduction])), levels, combine)
    some = _reduced(kept, levels, np.logical_or)
    return np.where(some, found, values.dtype.type(np.nan))


def _flags(values: Array, odd: Array | None, levels: tuple[int, int]) -> Array:
    if odd is not None:
        return _reduced(odd, levels, np.bitwise_or)
    rows, columns = (_cells(size, level) for size, level in zip(values.shape[-2:], levels, strict=True))
    return np.full((*values.shape[:-2], rows, columns), FINITE, np.uint8)


def _counts(values: Array, levels: tuple[int, int]) -> Array:
    """How many elements each cell of a block [..., rows, columns] stands for."""
    rows, columns = (
        np.minimum(1 << level, size - (np.arange(_cells(size, level)) << level))
        for size, level in zip(values.shape[-2:], levels, strict=True)
    )
    counts: Array = np.multiply.outer(rows, columns)
    return counts


def _cells(size: int, level: int) -> int:
    return -(-size // (1 << level))


def _level_for(size: int, side: int) -> int:
    level = 0
    while _cells(size, level) > side:
        level += 1
    return level
