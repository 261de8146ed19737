"""The answer to "how did this number come to be?", as data, and with its numbers drawn."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from atlas.graph.axes import View
from atlas.inspection.answers import Answer
from atlas.render import equations


class Figure(Answer):
    """A number: real, or complex where `imaginary` is given. Null where it is not finite; `text` says what it is."""

    value: float | None
    imaginary: float | None = None
    text: str


class Source(Answer):
    """An element of an input: which, its value, and where to look at it and ask the same of it again."""

    node: str
    name: str
    symbol: str = Field(description="TeX.")
    cell: list[int] = Field(description="Its indices in the tensor of that pass and layer.")
    axes: list[str]
    positions: list[int | None] = Field(description="The positions in the run that indices stand for, where they do.")
    figure: Figure
    view: View | None = Field(description="Null for a parameter.")
    layer: int | None
    step: int | None
    learned: bool = Field(description="A parameter: nothing made it here.")


class Term(Answer):
    """One term of a sum, with the elements in it."""

    figure: Figure
    sources: list[Source]


class Total(Answer):
    """Many terms made into one number: those that count most, and what the others come to."""

    how: Literal["sum", "mean", "max", "min", "product"]
    count: int
    figure: Figure
    terms: list[Term]
    rest: Figure | None = Field(description="What the terms that are not shown add; null for a largest or smallest.")
    rest_count: int


class Explanation(Answer):
    """How one element of a tensor was made."""

    node: str
    name: str
    cell: list[int]
    axes: list[str]
    view: View | None
    layer: int | None
    step: int | None
    operation: str | None = Field(description="Null where no operation makes it.")
    operation_name: str
    sentence: str
    equation: str = Field(description="TeX of the whole tensor's equation.")
    numbers: str = Field(description="TeX of this element, with numbers; those of inputs carry their node.")
    captured: Figure
    recomputed: Figure | None = Field(description="In float64, by the operation's reference; null where none does.")
    difference: Figure | None
    sources: list[Source] = Field(description="The elements outside sums.")
    totals: list[Total]


class Explained(Explanation):
    """As HTML too: `numbers` is TeX, and pages have no script that draws it."""

    html: str = Field(description="`numbers`, drawn; empty where there are none.")


def drawn(found: Explanation) -> Explained:
    """An explanation with its numbers drawn. Raises `EquationError`."""
    html = equations.render(found.numbers, display=True, keep=False) if found.numbers else ""
    return Explained(**found.model_dump(), html=html)
