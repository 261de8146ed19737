"""Formulas of single numbers: what was done to which numbers, down to elements of inputs. Data, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from atlas.inspection.arrays import Array

Index = tuple[int, ...]
How = Literal["sum", "mean", "max", "min", "product"]

SHOWN = (12, 3)
"""How many terms of a sum are given, outermost, and of sums inside of it."""


@dataclass(frozen=True)
class Formula:
    """One number, and how it was made."""

    value: complex


@dataclass(frozen=True)
class Constant(Formula):
    """A number that comes from no input: of the configuration, or of the pass."""


@dataclass(frozen=True)
class Leaf(Formula):
    """An element of an input."""

    name: str
    index: Index


@dataclass(frozen=True)
class Applied(Formula):
    """A function of a few numbers, by numpy's name for it. `pick`: the first part, chosen by the others."""

    function: str
    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Gathered(Formula):
    """Many numbers made into one. `shown` are those that count most; the others come to `rest`, of a sum or mean."""

    how: How
    count: int
    shown: tuple[Formula, ...]
    rest: complex


def gathered(how: How, value: complex, terms: Array, formula: Callable[[int], Formula], depth: int) -> Formula:
    """The formula of many terms made into one; `formula` gives that of one of them, `depth` counts the sums around."""
    if terms.size == 1 and how != "mean":
        return formula(0)
    if how in ("max", "min"):
        best = int(np.argmax(terms) if how == "max" else np.argmin(terms))
        return Gathered(value, how, terms.size, (formula(best),), 0.0)
    sizes = np.abs(terms)
    sizes = np.where(np.isfinite(sizes), sizes, np.inf)
    chosen = np.argsort(-sizes, kind="stable")[: SHOWN[min(depth, len(SHOWN) - 1)]]
    with np.errstate(all="ignore"):
        left = number(np.delete(terms, chosen).sum())
    return Gathered(value, how, terms.size, tuple(formula(int(at)) for at in chosen), left)


def number(value: Any) -> complex:
    """A number of numpy's as one of Python's, real where it is real."""
    if isinstance(value, complex | np.complexfloating):
        return complex(value)
    return float(value)


def finite(value: complex) -> bool:
    """Whether both parts are finite."""
    return math.isfinite(complex(value).real) and math.isfinite(complex(value).imag)
