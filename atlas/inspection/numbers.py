"""Numbers with named axes, and everything that is read off them: planes, tiles, rows, single cells.

Works on one array, be it a captured tensor, a part of a complex one, or the difference of two. Knows no runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atlas.errors import BadRequest
from atlas.inspection import tiles
from atlas.inspection.answers import AxisOfTensor, Cell, Measure, Reduction
from atlas.inspection.arrays import Array
from atlas.inspection.attention import rank_of
from atlas.inspection.export import shortest
from atlas.inspection.slices import Index, parse_slice

LARGEST_PICK = 1 << 22
LARGEST_STACK = 1 << 22


@dataclass(frozen=True)
class Numbers:
    """A real array with its axes. `lowest` is the number that some masks add instead of minus infinity."""

    array: Array
    axes: tuple[AxisOfTensor, ...]
    lowest: float | None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    def axis(self, name: str) -> int:
        """Where an axis stands. Raises `BadRequest` that lists those there are."""
        if name not in self.names:
            raise BadRequest(f"There is no axis {name!r}.", f"The axes are {', '.join(self.names)}.")
        return self.names.index(name)

    def cut(self, text: str) -> tuple[Array, tuple[int, ...], tuple[Index, ...]]:
        """A slice: the array, which axes it keeps, and the index."""
        index = parse_slice(text, self.names, self.array.shape)
        return self.array[index], tuple(at for at, entry in enumerate(index) if isinstance(entry, slice)), index

    def plane(self, text: str, transpose: bool) -> Array:
        """A slice that keeps one or two axes, as [rows, columns]; one axis is a single row.

        Raises `BadRequest` if it keeps another number of axes.
        """
        array, kept, _ = self.cut(text)
        if len(kept) not in (1, 2):
            raise BadRequest(
                f"The slice {text!r} keeps {len(kept)} axes, but a plane has two.",
                "Give `:` for rows and columns, and a number for every other axis.",
            )
        plane = array.reshape(1, -1) if len(kept) == 1 else array
        return plane.T if transpose else plane

    def tile(
        self, text: str, transpose: bool, reduction: Reduction, levels: tuple[int, int], at: tuple[int, int]
    ) -> tiles.Tile:
        """One tile of a plane. Raises `BadRequest` for a tile or level that it does not have."""
        return tiles.tile(self.plane(text, transpose), reduction, levels, at, self.lowest)

    def thumbnails(self, text: str, over: str, transpose: bool, side: int, reduction: Reduction) -> tiles.Tile:
        """A small picture for each index along the axis `over`: [over, rows, columns].

        The slice keeps `over` and one or two more axes.
        """
        axis = self.axis(over)
        array, kept, _ = self.cut(text)
        if axis not in kept or len(kept) not in (2, 3):
            raise BadRequest(
                f"The slice {text!r} does not keep {over!r} and one or two axes more.",
                f"Give `:` for {over}, rows and columns, and a number for every other axis.",
            )
        stack = np.moveaxis(array, kept.index(axis), 0)
        if stack.ndim == 2:
            stack = stack[:, None, :]
        if transpose:
            stack = stack.swapaxes(1, 2)
        if len(stack) * side * side > LARGEST_STACK:
            raise BadRequest(
                f"{len(stack):,} pictures of {side} cells a side are too many.", "Ask for smaller ones, or for tiles."
            )
        return tiles.thumbnails(stack, side, reduction, self.lowest)

    def profile(self, along: str, measure: Measure) -> Array:
        """One number for each index along an axis, over all other axes and finite elements; nan where there is none."""
        axis = self.axis(along)
        rows = np.moveaxis(self.array, axis, 0).reshape(self.array.shape[axis], -1).astype(np.float64)
        kept = np.isfinite(rows) & (rows > (-np.inf if self.lowest is None else self.lowest))
        count = kept.sum(axis=1)
        values = np.where(kept, rows, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            match measure:
                case "rms":
                    found = np.sqrt((values**2).sum(axis=1) / count)
                case "mean":
                    found = values.sum(axis=1) / count
                case "absmax":
                    found = np.abs(values).max(axis=1, initial=0.0)
                case "min":
                    found = np.where(kept, rows, np.inf).min(axis=1, initial=np.inf)
                case "max":
                    found = np.where(kept, rows, -np.inf).max(axis=1, initial=-np.inf)
        result: Array = np.where(count > 0, found, np.nan)
        return result

    def cell(self, text: str, pick: Reduction | None, along: str | None) -> Cell:
        """One element with its rank in its row along an axis (the last one, unless named).

        A slice of several elements needs `pick`: which of them it stands for, as its reduction did.
        Raises `BadRequest` otherwise.
        """
        block, kept, index = self.cut(text)
        if block.size != 1:
            if pick is None or pick == "mean":
                raise BadRequest(
                    f"The slice {text!r} holds {block.size:,} elements, not one.",
                    "Give a number for every axis, or pick=absmax, min or max.",
                )
            if block.size > LARGEST_PICK:
                raise BadRequest(f"{block.size:,} elements are too many to pick from.", "Give a smaller slice.")
        inside: list[int] = [0] * block.ndim
        found = tiles.extreme(block.reshape(1, -1), pick, self.lowest) if pick is not None else None
        if found is not None:
            inside = [int(at) for at in np.unravel_index(found.column, block.shape)]
        starts = [entry.start if isinstance(entry, slice) else entry for entry in index]
        for axis, at in zip(kept, inside, strict=True):
            starts[axis] += at
        return self._cell(tuple(starts), along)

    def row(self, text: str) -> tuple[Array, AxisOfTensor]:
        """A slice that keeps one axis. Raises `BadRequest` otherwise."""
        array, kept, _ = self.cut(text)
        if len(kept) != 1:
            raise BadRequest(f"The slice {text!r} keeps {len(kept)} axes, not one.", "Give `:` for one axis.")
        return array, self.axes[kept[0]]

    def _cell(self, index: tuple[int, ...], along: str | None) -> Cell:
        if not self.axes:
            value = self.array[()]
            return Cell(index=[], axes=[], value=_finite(value), text=shortest(value), rank=None, of=1, along="")
        axis = len(self.axes) - 1 if along is None else self.axis(along)
        around: tuple[Index, ...] = (*index[:axis], slice(None), *index[axis + 1 :])
        row = self.array[around]
        value = self.array[index]
        return Cell(
            index=list(index),
            axes=list(self.names),
            value=_finite(value),
            text=shortest(value),
            rank=rank_of(row, index[axis]),
            of=len(row),
            along=self.axes[axis].name,
        )


def named_axes(names: Sequence[str], shape: Sequence[int], first: Sequence[int | None]) -> tuple[AxisOfTensor, ...]:
    """Axes as answers give them."""
    return tuple(
        AxisOfTensor(name=name, size=size, first=start) for name, size, start in zip(names, shape, first, strict=True)
    )


def _finite(value: Array) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
