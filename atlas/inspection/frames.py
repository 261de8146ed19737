"""Where a tensor stands in its run: which positions its axes cover, and how large it should be there.

A pass computes some positions, with others before it in the cache; the axes `positions` and `queries` run over the
first, `keys` over both. Knows no numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atlas.graph.axes import Extent, View

COMPUTED = ("positions", "queries")
ATTENDED = "keys"


@dataclass(frozen=True)
class Pass:
    """One pass of a run: how many positions it computes, and how many come before it."""

    view: View
    computed: int
    before: int

    @property
    def attended(self) -> int:
        return self.before + self.computed

    def first(self, axis: str) -> int | None:
        """The position in the run that index 0 of an axis stands for; None if the axis counts no positions."""
        if axis in COMPUTED:
            return self.before
        return 0 if axis == ATTENDED else None

    def expected(self, shape: Sequence[Extent]) -> list[int]:
        """The sizes that a declared shape has in this pass. A run is a batch of one."""
        sizes = {"batch": 1, ATTENDED: self.attended, **dict.fromkeys(COMPUTED, self.computed)}
        return [sizes.get(extent.axis, 1) if extent.size is None else extent.size for extent in shape]


def pass_of(view: View, step: int | None, prompt_length: int, tokens: int) -> Pass:
    """The pass of a run of `tokens` tokens, the first `prompt_length` of them given.

    Full sequence: all tokens. Prefill: the prompt. Decode step k (k >= 1): one position, P + k - 1.
    """
    if view == "full":
        return Pass(view, tokens, 0)
    if view == "prefill":
        return Pass(view, prompt_length, 0)
    return Pass(view, 1, prompt_length + (step or 1) - 1)
