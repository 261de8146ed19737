"""A model's reference code run at true size in each view, once for the checks that look at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from atlas.catalog import Model
from atlas.graph.axes import VIEWS, Extent, View
from atlas.graph.resolve import Resolved
from atlas.inspection.checks import Subject
from atlas.inspection.frames import ATTENDED
from atlas.runtime.references.base import Trace, TrueSize

SHARED = "true size"
BATCH, POSITIONS, BEFORE = 2, 5, 12
SYMBOLS: Mapping[View, Mapping[str, int]] = {
    "full": {"B": BATCH, "T": POSITIONS},
    "prefill": {"B": BATCH, "P": POSITIONS},
    "decode": {"B": BATCH, "T_k": BEFORE + 1},
}
"""What the symbols of running axes stand for in each view: in a pass no two are the same number."""


@dataclass(frozen=True)
class Traced:
    """The passes of one model, by view, and its parameters' shapes by their names in the reference code. `assumed` says
    what was, where the code's way depends on numbers. `groups` are the blocks that are alike, by number, and `layers`
    those that were run.
    """

    model: Model
    passes: Mapping[View, Trace]
    parameters: Mapping[str, tuple[int, ...]]
    assumed: str
    groups: Sequence[Sequence[int]]
    layers: Sequence[int]

    @property
    def subject(self) -> str:
        """Whose shapes and edges they are."""
        return f"the reference code at {self.model.name}'s true size"

    @property
    def left_out(self) -> str:
        """Which blocks were not run, and why that shows the same: a sentence, or nothing."""
        short = [group for group in self.groups if not set(group) <= set(self.layers)]
        said = [
            f"layers {ranges(group)}, of which {ranges(sorted({*group} & {*self.layers}))} were run" for group in short
        ]
        return (
            f"Nothing but their number tells these apart, in code, sizes, settings or declaration: {'; '.join(said)}."
            if said
            else ""
        )

    def layers_of(self, node: Resolved) -> list[int | None]:
        """The layers that were run and in which a node exists; None outside the blocks."""
        if not node.in_blocks:
            return [None]
        return [layer for layer in self.layers if node.exists_in(layer)]


def traced(subject: Subject) -> Traced:
    """The passes of this model: made now, or kept from the check before. Raises as the reference's `TrueSizeRunner`."""
    kept = subject.shared.get(SHARED)
    if isinstance(kept, Traced) and kept.model is subject.model:
        return kept
    subject.shared.pop(SHARED, None)  # one model's are enough to keep
    model = subject.model
    subject.progress(f"{model.name}: building it at true size", None)
    runner: TrueSize = import_module(f"atlas.runtime.references.{model.architecture.reference.runner}").TrueSizeRunner(
        model
    )
    passes: dict[View, Trace] = {}
    for view in VIEWS:
        if view == "prefill" and runner.full_is_prefill:
            passes[view] = passes["full"]
            continue
        subject.progress(f"{model.name}: {view} at true size", None)
        computed, before = (1, BEFORE) if view == "decode" else (POSITIONS, 0)
        passes[view] = runner.trace(view, BATCH, computed, before)
    shapes = {name: tuple(tensor.shape) for name, tensor in runner.parameters.items()}
    made = Traced(model, passes, shapes, runner.assumed, runner.groups, runner.layers)
    subject.shared[SHARED] = made
    return made


def ranges(numbers: Sequence[int]) -> str:
    """`0, 3–60`"""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}" for a, b in found)


def layers_of(model: Model, node: Resolved) -> list[int | None]:
    """The layers in which a node exists; None outside the blocks."""
    if not node.in_blocks:
        return [None]
    return [layer for layer in range(model.architecture.sizes["layers"]) if node.exists_in(layer)]


def size_of(extent: Extent, view: View, window: int | None = None) -> int | None:
    """The size that a declared axis has in these passes, in a layer with this window; None for a symbol that they do
    not bind.
    """
    if extent.size is not None:
        return extent.size
    window = extent.window or window
    if (extent.axis == ATTENDED or extent.window is not None) and view == "decode":
        return 1 + (BEFORE if window is None else min(BEFORE, window - 1))
    if extent.factors:
        product = 1
        for factor in extent.factors:
            size = size_of(factor, view, window)
            if size is None:
                return None
            product *= size
        return product
    return SYMBOLS[view].get(extent.symbol)
