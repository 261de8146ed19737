"""Where a tensor stands in its run: which positions its axes cover, and how large it should be there.

A pass computes some positions, with others before it in the cache; the axes `positions` and `queries` run over the
first, `keys` over both, or over as many as a sliding window leaves. Knows no numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from atlas.graph.axes import Extent, View

COMPUTED = ("positions", "queries")
ATTENDED = "keys"


@dataclass(frozen=True)
class Pass:
    """One pass of a run, as one layer sees it (None: outside the blocks): how many positions it computes, how many
    come before it, and the width of the sliding window, where the layer has one: its cache keeps one position less.
    """

    view: View
    computed: int
    before: int
    layer: int | None = None
    window: int | None = None

    @property
    def kept(self) -> int:
        """How many of the positions before this pass the cache still has."""
        return self.before if self.window is None else min(self.before, self.window - 1)

    @property
    def attended(self) -> int:
        return self.kept + self.computed

    def first(self, axis: str) -> int | None:
        """The position in the run that index 0 of an axis stands for; None if the axis counts no positions."""
        if axis in COMPUTED:
            return self.before
        return self.before - self.kept if axis == ATTENDED else None

    def expected(self, shape: Sequence[Extent]) -> list[int]:
        """The sizes that a declared shape has in this pass. A run is a batch of one."""
        return [self._size(extent) for extent in shape]

    def _size(self, extent: Extent) -> int:
        if extent.size is not None:
            return extent.size
        if extent.factors:
            return math.prod(self._size(factor) for factor in extent.factors)
        if extent.window is not None:
            return min(self.before, extent.window - 1) + self.computed
        return {ATTENDED: self.attended, **dict.fromkeys(COMPUTED, self.computed)}.get(extent.axis, 1)


def pass_of(
    view: View,
    step: int | None,
    prompt_length: int,
    tokens: int,
    layer: int | None = None,
    window: int | None = None,
) -> Pass:
    """The pass of a run of `tokens` tokens, the first `prompt_length` of them given, in a layer with this window.

    Full sequence: all tokens. Prefill: the prompt. Decode step k (k >= 1): one position, P + k - 1.
    """
    if view == "full":
        return Pass(view, tokens, 0, layer, window)
    if view == "prefill":
        return Pass(view, prompt_length, 0, layer, window)
    return Pass(view, 1, prompt_length + (step or 1) - 1, layer, window)
