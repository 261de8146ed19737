"""What the expressions of the reference code gave in one part of a pass: each value at a glance.

Cheaper than a full summary, since there are a hundred of them: no histogram. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from pydantic import BaseModel, Field

from atlas.inspection.answers import SplitOver
from atlas.runtime.expressions import Expression


class Glance(BaseModel):
    """One value. Of a complex one the real and imaginary parts together; null where nothing is finite."""

    dtype: str
    shape: list[int]
    mean: float | None
    rms: float | None
    min: float | None
    max: float | None
    nan: int
    inf: int


class ExpressionValues(BaseModel):
    """One expression: where it stands, the nodes declared there, and its values in the order in which they came."""

    name: str = Field(description="Ask for its values as a node of this name, with /1, /2 ... for one of several.")
    function: str
    text: str
    span: tuple[int, int, int, int] = Field(description="First line, last line, first column, last column (bytes).")
    nodes: list[str]
    values: list[Glance]
    split: SplitOver | None = None


def glance(tensor: torch.Tensor) -> Glance:
    """Statistics over the finite entries, in float64."""
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    numbers = real.reshape(-1)
    nan = inf = 0
    if numbers.is_floating_point():
        finite = torch.isfinite(numbers)
        if not bool(finite.all()):
            nan = int(torch.isnan(numbers).sum())
            inf = int(torch.isinf(numbers).sum())
            numbers = numbers[finite]
    empty = numbers.numel() == 0
    wide = numbers.double()
    return Glance(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=list(tensor.shape),
        mean=None if empty else float(wide.mean()),
        rms=None if empty else float(wide.square().mean().sqrt()),
        min=None if empty else float(wide.min()),
        max=None if empty else float(wide.max()),
        nan=nan,
        inf=inf,
    )


def values_of(
    expressions: Mapping[str, Expression],
    seen: Mapping[str, Sequence[torch.Tensor]],
    split: Callable[[str], SplitOver | None] = lambda _: None,
) -> list[ExpressionValues]:
    """Everything that was seen, in the order of the file. `seen` is by full name, prefix included; `split` says of such
    a name how its values lie in the ranks.
    """
    by_place = {name.partition("code/")[2]: name for name in seen}
    return [
        ExpressionValues(
            name=by_place[place],
            function=expression.function,
            text=expression.text,
            span=expression.span,
            nodes=list(expression.nodes),
            values=[glance(value) for value in seen[by_place[place]]],
            split=split(by_place[place]),
        )
        for place, expression in expressions.items()
        if place in by_place
    ]
