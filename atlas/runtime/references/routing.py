"""An assumed routing, where tensors have no numbers: what would depend on them is given a stated answer.

Code of experts asks which experts were chosen (`nonzero`) and by which tokens (`where`). Without numbers nobody knows;
assumed is that every token chooses the same `chosen` experts, the first ones, each in a place of its own. So each of
these experts sees all tokens, and tokens and choices come to the right totals whatever the pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Routing(TorchFunctionMode):
    """While entered, `nonzero` of a vector says that the first `chosen` are, and `where` of one expert's table
    [choices, tokens] says that every token chose it. Everything else is torch's own.
    """

    def __init__(self, chosen: int) -> None:
        super().__init__()
        self._chosen = chosen

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self._chosen and func is torch.Tensor.nonzero and args[0].ndim == 1:
            return [[expert] for expert in range(self._chosen)]  # numbers, so that code may compare them
        if self._chosen and func is torch.where and len(args) == 1:
            tokens = args[0].shape[1]
            return torch.zeros(tokens, dtype=torch.long), torch.zeros(tokens, dtype=torch.long)
        return func(*args, **(kwargs or {}))
