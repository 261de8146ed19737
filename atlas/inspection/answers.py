"""What this room hands out, as data: statistics, defaults of a view, predictions, comparisons.

Pydantic only, so that the web can describe its answers before anything that computes is loaded.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from atlas.graph.axes import View

Part = Literal["real", "imaginary", "magnitude", "angle"]
Reduction = Literal["absmax", "mean", "min", "max"]
Measure = Literal["rms", "mean", "absmax", "min", "max"]
Scale = Literal["diverging", "sequential", "log"]
Meaning = Literal["attention", "logits", "stream", "cache", "rotations"]


class Answer(BaseModel):
    """Immutable; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- a tensor as a whole


class Histogram(Answer):
    """How many finite elements lie between neighbouring edges; the last bin includes its upper edge."""

    edges: list[float]
    counts: list[int]


class Stats(Answer):
    """Statistics over the finite elements, null where there are none."""

    count: int = Field(description="All elements; a complex one counts once.")
    mean: float | None = None
    std: float | None = Field(None, description="Of the population.")
    min: float | None = None
    max: float | None = None
    rms: float | None = None
    abs_max: float | None = None
    nan: int = 0
    inf: int = Field(0, description="Infinities of either sign.")
    minus_inf: int = Field(0, description="Those of `inf` that are negative, as masks leave them.")
    histogram: Histogram | None = None


class Ranges(Answer):
    """Robust bounds of magnitudes, and histograms within them: what a colour scale needs beside the statistics.

    From counts of every element, exact to bfloat16's resolution (under 1 %).
    """

    abs_high: float = Field(description="99.5 % of the magnitudes do not exceed it.")
    low_positive: float = Field(description="99.5 % of the non-zero magnitudes are not below it.")
    linear: Histogram = Field(description="From -abs_high, or 0 where nothing is negative, to abs_high.")
    magnitudes: Histogram = Field(description="Of non-zero magnitudes, by factors of one size.")


class Presentation(Answer):
    """How a tensor is best looked at first."""

    rows: str | None = Field(description="The axis down the plane; null for a tensor of one axis.")
    columns: str
    scale: Scale
    meaning: Meaning | None = Field(description="The panel that the tensor has, if any.")


class AxisOfTensor(Answer):
    """One axis as it was captured."""

    name: str
    size: int
    first: int | None = Field(None, description="The position in the run of index 0, on axes that count positions.")


class Check(BaseModel):
    """What was found. `ok` is null where the check does not apply or was not made; `why` says why, or what is wrong."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ok: bool | None = None
    why: str = ""


class ShapeCheck(Check):
    """The observed shape against the declared one, for this model and pass."""

    expected: list[int] | None = None


class EquationCheck(Check):
    """The equation that makes the node, executed in float64 on the captured inputs."""

    operation: str | None = None
    max_abs_error: float | None = None
    worst_row: float | None = Field(None, description="Norm of the difference over norm of the row.")
    worst_at: list[int] | None = None
    tolerance: float | None = None
    rows_checked: int = 0
    rows: int = 0


class SourceCheck(Check):
    """The file that ran against the lock."""

    file: str = ""
    sha256: str = ""


class Checks(Answer):
    """All checks of one captured tensor."""

    shape: ShapeCheck
    equation: EquationCheck
    source: SourceCheck


class SplitOver(Answer):
    """How a tensor lies in the processes over which its model is split."""

    ranks: int
    axis: str | None = Field(description="The axis that is split in equal shares; null where none is.")
    rank: int | None = Field(description="The rank whose share this is; null for the whole.")
    first: int = Field(description="The index on that axis, in the whole, at which this begins.")
    own: bool = Field(
        False,
        description="Whether nothing is declared of how this lies in the ranks: then these are the rank's own numbers. "
        "Else every rank has all of it where no axis is split.",
    )


class TensorSummary(Answer):
    """A tensor of a run, whole: where it comes from, its shape and statistics, and how to look at it."""

    node: str
    model: str = Field(description="The model that ran.")
    view: View | None = Field(description="Null for a parameter.")
    layer: int | None
    step: int | None
    dtype: str
    shape: list[int]
    axes: list[AxisOfTensor]
    stats: Stats
    ranges: Ranges | None = Field(description="Null where no element is finite and non-zero.")
    presentation: Presentation
    checks: Checks
    split: SplitOver | None = Field(None, description="Null where the model runs in one process.")


# --- parts of it


class Cell(Answer):
    """One element."""

    index: list[int]
    axes: list[str]
    value: float | None = Field(description="Null where it is no finite number; `text` then says what it is.")
    text: str = Field(description="The shortest decimal that reads back to the same number of the tensor's dtype.")
    rank: int | None = Field(description="1 is the largest of its row; null where it is no finite number.")
    of: int = Field(description="The size of that row.")
    along: str = Field(description="The axis of that row.")


class Entry(Answer):
    """One of the largest elements of a row. `token` and `position` are there where the axis has them."""

    index: int
    value: float
    probability: float | None = None
    token: str | None = None
    position: int | None = None


class Top(Answer):
    """The largest elements of one row of a tensor, largest first."""

    axis: str
    of: int
    entries: list[Entry]


class HeadMeasures(Answer):
    """Means over the queries to which a measure applies; null where it applies to none."""

    head: int
    entropy: float | None = Field(description="In bits.")
    previous: float | None = Field(description="Weight on the previous position.")
    first: float | None = Field(description="Weight on the first position.")
    same_token: float | None = Field(description="Weight on earlier places of the same token.")
    after_same_token: float | None = Field(description="Weight right after those, as induction heads look.")


class Candidate(Answer):
    """One token that might come next. `rank` 1 is the likeliest."""

    id: int
    label: str
    logit: float
    probability: float
    rank: int


class Prediction(Answer):
    """The likeliest tokens at one position, and the one that came next, if it is known."""

    position: int
    top: list[Candidate]
    next: Candidate | None


class Predictions(Answer):
    """What rows of logits say. `temperature` is the run's; a greedy run (0) shows probabilities at 1."""

    temperature: float
    positions: list[Prediction]


# --- two of them


class Difference(Answer):
    """Two tensors, brought to the positions that both have. A row is the last axis."""

    shape: list[int]
    axes: list[AxisOfTensor]
    by_position: list[float | None] = Field(
        description="Norm of the difference over norm of the row, the worst row of each position; null where one of "
        "the two is not finite."
    )
    positions: list[int] | None = Field(description="Null where the tensor has no axis of positions.")
    worst: float | None
    max_abs: float | None
    equal: bool = Field(description="Whether every element is the same, bit for bit (infinities included).")


class Agreement(Answer):
    """Decode against full sequence at the same positions: small differences show that the cache is right."""

    positions: list[int]
    relative: list[float | None] = Field(description="As in a difference: the worst row of each position.")
    worst: float | None


class Parting(Answer):
    """Where two runs part: the first node, in order of data flow, at the first position."""

    common: int = Field(description="How many leading tokens the two runs share.")
    position: int | None = Field(description="Null where nothing differs.")
    node: str | None
    layer: int | None
    relative: float | None
    sentence: str
