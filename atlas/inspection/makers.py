"""What made the numbers of an array: for each kind of making, the formula of any of its elements.

Arrays that know their makers are `atlas.inspection.tracked`'s; a maker asks of its operands what `Elements` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from atlas.inspection.arrays import Array
from atlas.inspection.formulas import Applied, Constant, Formula, How, Index, Leaf, gathered, number


class Elements(Protocol):
    """An array whose elements know how they were made."""

    value: Array

    @property
    def shape(self) -> Index: ...
    @property
    def ndim(self) -> int: ...
    def formula(self, index: Index, depth: int = 0) -> Formula: ...
    def __getitem__(self, index: Any) -> Elements: ...


class Maker(ABC):
    """Made an array: knows the formula of each of its elements, by place in row order."""

    @abstractmethod
    def formula(self, flat: int, depth: int) -> Formula:
        """`depth` counts the sums around it."""


@dataclass(frozen=True)
class Given(Maker):
    name: str
    value: Array

    def formula(self, flat: int, depth: int) -> Formula:  # noqa: ARG002
        index = unravel(flat, self.value.shape)
        return Leaf(number(self.value[index]), self.name, index)


@dataclass(frozen=True)
class Fixed(Maker):
    value: Array

    def formula(self, flat: int, depth: int) -> Formula:  # noqa: ARG002
        return Constant(number(self.value.reshape(-1)[flat]))


@dataclass(frozen=True)
class Element(Maker):
    """A function of numbers at the same place, with broadcasting."""

    function: str
    value: Array
    operands: tuple[Elements, ...]

    def formula(self, flat: int, depth: int) -> Formula:
        index = unravel(flat, self.value.shape)
        parts = tuple(operand.formula(_broadcast(index, operand.shape), depth) for operand in self.operands)
        return Applied(number(self.value[index]), self.function, parts)


@dataclass(frozen=True)
class Picked(Maker):
    """Elements chosen by indices that are themselves values."""

    source: Elements
    choosers: tuple[Elements, ...]

    def formula(self, flat: int, depth: int) -> Formula:
        index = unravel(flat, self.source.shape)
        chosen = self.source.formula(index, depth)
        by = tuple(chooser.formula(index[: chooser.ndim], depth) for chooser in self.choosers)
        return Applied(chosen.value, "pick", (chosen, *by))


@dataclass(frozen=True)
class Ranked(Maker):
    """Places of elements along an axis, in the order of their numbers."""

    value: Array
    operand: Elements
    axis: int

    def formula(self, flat: int, depth: int) -> Formula:
        index = list(unravel(flat, self.value.shape))
        place = int(self.value[tuple(index)])
        index[self.axis] = place
        return Applied(float(place), "place of", (self.operand.formula(tuple(index), depth),))


@dataclass(frozen=True)
class Reduced(Maker):
    """Elements along some axes, made into one."""

    how: How
    value: Array
    operand: Elements
    axes: tuple[int, ...]
    kept: bool

    def formula(self, flat: int, depth: int) -> Formula:
        index = iter(unravel(flat, self.value.shape))
        place: list[slice | int] = []
        for axis in range(self.operand.ndim):
            reduced = axis in self.axes
            place.append(slice(None) if reduced else next(index))
            if reduced and self.kept:
                next(index)
        along = self.operand[tuple(place)]
        terms = along.value.reshape(-1)
        return gathered(
            self.how,
            number(self.value.reshape(-1)[flat]),
            terms,
            lambda at: along.formula(unravel(at, along.shape), depth + 1),
            depth,
        )


@dataclass(frozen=True)
class Contracted(Maker):
    """Products, summed over the letters that the result does not name (Einstein's convention)."""

    value: Array
    operands: tuple[Elements, ...]
    letters: tuple[str, ...]
    output: str

    def formula(self, flat: int, depth: int) -> Formula:
        fixed = dict(zip(self.output, unravel(flat, self.value.shape), strict=True))
        sizes = {
            letter: size
            for word, operand in zip(self.letters, self.operands, strict=True)
            for letter, size in zip(word, operand.shape, strict=True)
        }
        summed = [letter for letter in sizes if letter not in fixed]
        shape = tuple(sizes[letter] for letter in summed)
        products: Array = np.ones(shape)
        for word, operand in zip(self.letters, self.operands, strict=True):
            part = operand.value[tuple(fixed.get(letter, slice(None)) for letter in word)]
            free = [letter for letter in word if letter in summed]
            order = sorted(range(len(free)), key=lambda axis: summed.index(free[axis]))
            part = np.transpose(part, order)
            products = products * part[tuple(slice(None) if letter in free else None for letter in summed)]

        def term(at: int) -> Formula:
            place = fixed | dict(zip(summed, unravel(at, shape), strict=True))
            factors = tuple(
                operand.formula(tuple(place[letter] for letter in word), depth + 1)
                for word, operand in zip(self.letters, self.operands, strict=True)
            )
            return Applied(number(products.reshape(-1)[at]), "multiply", factors)

        return gathered("sum", number(self.value.reshape(-1)[flat]), products.reshape(-1), term, depth)


def _broadcast(index: Index, shape: Index) -> Index:
    """Where an operand of this shape is read for an element of the result."""
    return tuple(0 if size == 1 else at for at, size in zip(index[len(index) - len(shape) :], shape, strict=True))


def unravel(flat: int, shape: Index) -> Index:
    """The indices of a place in row order."""
    return tuple(int(at) for at in np.unravel_index(flat, shape)) if shape else ()
