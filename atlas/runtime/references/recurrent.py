"""Layers that keep a running state instead of keys and values (state-space models, linear attention): their state,
taken from one cache of transformers and put into another.

What such a layer keeps after a pass says nothing of the passes before, so it is overwritten as the layer goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

STATES = ("conv_states", "recurrent_states")
FLAGS = ("is_conv_states_initialized", "is_recurrent_states_initialized", "has_previous_state", "conv_kernel_size")


@dataclass(frozen=True)
class State:
    """What one layer keeps, by the names of transformers: tensors by number, and what is known of them."""

    tensors: Mapping[str, Mapping[int, torch.Tensor | None]]
    flags: Mapping[str, Mapping[int, Any]]

    def __iter__(self) -> Iterator[torch.Tensor]:
        for tensors in self.tensors.values():
            yield from (tensor for tensor in tensors.values() if tensor is not None)

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in self)


def recurrent(layer: Any) -> bool:
    """Whether a layer of a cache keeps a running state."""
    return hasattr(layer, "recurrent_states")


def taken(layer: Any) -> State:
    """The state of a layer of a cache that nothing will write to any more."""
    return State(
        {name: dict(getattr(layer, name)) for name in STATES}, {name: dict(getattr(layer, name)) for name in FLAGS}
    )


def put(layer: Any, state: State) -> None:
    """Give a layer of a cache a copy of a state, which it may write to."""
    for name, tensors in state.tensors.items():
        setattr(layer, name, {n: None if tensor is None else tensor.clone() for n, tensor in tensors.items()})
    for name, flags in state.flags.items():
        setattr(layer, name, dict(flags))
    first = next(iter(state), None)
    if first is not None:
        layer.dtype, layer.device = first.dtype, first.device
