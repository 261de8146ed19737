"""An assumed routing, where tensors have no numbers: what would depend on them is given a stated answer.

Code of experts asks which experts were chosen (`nonzero`) and by which tokens (`where`), and looks their weights up.
Without numbers nobody knows; assumed is that every token chooses the same `chosen` experts. So each of these experts
sees all tokens, and tokens and choices come to the right totals whatever the pass. That values flow from the choice to
what is looked up is seen all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Routing(TorchFunctionMode):
    """While entered, `nonzero` of a vector finds `chosen` numbers, `where` of one expert's table [choices, tokens] has
    every token once, a number taken out of a tensor picks the first entry, and no comparison holds. Everything else is
    torch's own.
    """

    def __init__(self, chosen: int) -> None:
        super().__init__()
        self._chosen = chosen

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self._chosen:
            if func is torch.Tensor.nonzero and args[0].ndim == 1:
                return torch.zeros(self._chosen, 1, dtype=torch.long)
            if func is torch.where and len(args) == 1:
                tokens = args[0].shape[1]
                return torch.zeros(tokens, dtype=torch.long), torch.zeros(tokens, dtype=torch.long)
            if func is torch.Tensor.__bool__:
                return False
            if func is torch.Tensor.__getitem__ and isinstance(args[1], torch.Tensor) and args[1].ndim == 0:
                return args[0][0]
        return func(*args, **(kwargs or {}))
