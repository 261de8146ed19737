"""Two captured tensors side by side: brought to the positions that both have, and their difference row by row.

A row is the last axis. Its difference is measured as the norm of the difference over the norm of the row, since
residual streams hold massive entries beside which an error relative to a tensor's maximum shows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atlas.errors import BadRequest
from atlas.inspection.arrays import Array
from atlas.inspection.frames import ATTENDED, COMPUTED, Pass

POSITIONAL = (*COMPUTED, ATTENDED)


@dataclass(frozen=True)
class Framed:
    """A tensor with its axes and the pass that made it."""

    array: Array
    axes: tuple[str, ...]
    made_in: Pass


@dataclass(frozen=True)
class Aligned:
    """Two arrays of one shape; `first` is the position of index 0 of each axis, None where it counts none."""

    one: Array
    other: Array
    axes: tuple[str, ...]
    first: tuple[int | None, ...]

    @property
    def positions_axis(self) -> int | None:
        """The axis that says which position a row belongs to."""
        for name in POSITIONAL:
            if name in self.axes:
                return self.axes.index(name)
        return None

    def difference(self) -> Array:
        """one - other. Where both are the same infinity it stays that infinity: masked in both."""
        with np.errstate(invalid="ignore"):
            found: Array = np.subtract(self.one, self.other)
        return np.where(np.isinf(self.one) & (self.one == self.other), self.one, found)


@dataclass(frozen=True)
class RowDifferences:
    """`by_position` is the worst row of each position; None where a row is not finite in one of the two only."""

    by_position: list[float | None]
    worst: float | None
    max_abs: float | None
    equal: bool


def align(one: Framed, other: Framed) -> Aligned:
    """The parts of two tensors that stand for the same positions.

    Raises `BadRequest` if their axes or fixed sizes differ, or they have no position in common.
    """
    if one.axes != other.axes:
        raise BadRequest(
            f"These tensors have other axes: {_shape(one)} and {_shape(other)}.", "Compare tensors of one node."
        )
    cuts: list[tuple[slice, slice]] = []
    first: list[int | None] = []
    for axis, size, other_size in zip(one.axes, one.array.shape, other.array.shape, strict=True):
        start, other_start = one.made_in.first(axis), other.made_in.first(axis)
        if start is None or other_start is None:
            if size != other_size:
                raise BadRequest(
                    f"The axis {axis!r} has size {size} in one and {other_size} in the other.",
                    "Compare runs of one model, or models of one size.",
                )
            cuts.append((slice(None), slice(None)))
            first.append(None)
            continue
        begin, end = max(start, other_start), min(start + size, other_start + other_size)
        if begin >= end:
            raise BadRequest(
                f"They have no position in common: {axis} {start} to {start + size - 1} in one, {other_start} to "
                f"{other_start + other_size - 1} in the other.",
                "Choose steps or views that compute the same position.",
            )
        cuts.append((slice(begin - start, end - start), slice(begin - other_start, end - other_start)))
        first.append(begin)
    return Aligned(
        one.array[tuple(cut for cut, _ in cuts)], other.array[tuple(cut for _, cut in cuts)], one.axes, tuple(first)
    )


def pair_up(one: Framed, other: Framed) -> Aligned:
    """As `align`, but two passes of one position each are laid side by side whatever their positions.

    Two decode steps have no position in common; their keys are cut to those of both.
    """
    if one.made_in.computed == 1 == other.made_in.computed and one.made_in.before != other.made_in.before:
        moved = Pass(other.made_in.view, 1, one.made_in.before)
        sizes = [min(a, b) for a, b in zip(one.array.shape, other.array.shape, strict=True)]
        if one.axes == other.axes:
            cut = tuple(
                slice(0, size) if axis == ATTENDED else slice(None) for axis, size in zip(one.axes, sizes, strict=True)
            )
            return align(Framed(one.array[cut], one.axes, one.made_in), Framed(other.array[cut], other.axes, moved))
    return align(one, other)


def row_differences(pair: Aligned) -> RowDifferences:
    """Norm of the difference over norm of the row, for each row, gathered by position.

    Elements that are the same infinity in both count as equal. A row of zeros in both has no difference.
    """
    one, other = (_numbers(array) for array in (pair.one, pair.other))
    same = one == other
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, one - other)
    size = np.where(np.isfinite(one), one, 0.0)
    gaps, sizes = np.linalg.norm(gap, axis=-1), np.linalg.norm(size, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(gaps == 0, 0.0, gaps / sizes)
    axis = pair.positions_axis
    if axis is None or axis >= relative.ndim:
        rows = relative.reshape(1, -1)
    else:
        rows = np.moveaxis(relative, axis, 0).reshape(relative.shape[axis], -1)
    by_position = [_known(value) for value in rows.max(axis=-1)]
    known = [value for value in by_position if value is not None]
    return RowDifferences(
        by_position,
        max(known) if len(known) == len(by_position) else None,
        _known(float(np.abs(gap).max())) if gap.size else 0.0,
        bool(same.all()),
    )


def first_parting(rows: Sequence[float | None], tolerance: float) -> int | None:
    """The index of the first row whose difference is above the tolerance, or unknown."""
    return next((at for at, value in enumerate(rows) if value is None or value > tolerance), None)


def _numbers(array: Array) -> Array:
    if np.iscomplexobj(array):
        return np.concatenate([array.real, array.imag], axis=-1).astype(np.float64)
    return np.atleast_1d(array).astype(np.float64)


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _shape(framed: Framed) -> str:
    return "[" + ", ".join(f"{s} {a}" for a, s in zip(framed.axes, framed.array.shape, strict=True)) + "]"
