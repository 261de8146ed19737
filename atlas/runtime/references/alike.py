"""Which blocks of a model are alike, so that running some of them shows what all of them do.

Two blocks are alike if nothing tells them apart but their number: the same classes, the same settings, parameters of
the same shapes, the same entries in the configuration's lists by layer, and the same declaration. Whatever is not
understood tells two blocks apart. Knows nothing of what is looked at in a pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import nn

from atlas.graph.resolve import Graph

NUMBERS = ("layer_id", "layer_idx")
"""What code calls the number of a block: it is told to find its cache by it."""
PLUMBING = frozenset(nn.Module().__dict__)
"""What torch itself keeps in every module; its parameters, buffers and parts are looked at, not their dictionaries."""
HOOKS = tuple(sorted(name for name in PLUMBING if name.endswith("hooks")))


def alike(graph: Graph, blocks: Sequence[nn.Module], config: object = None) -> tuple[tuple[int, ...], ...]:
    """The numbers of blocks in groups of those that are alike, each in order. `config` is the reference code's own."""
    groups: dict[Hashable, list[int]] = {}
    lists = _by_layer(config, len(blocks))
    for layer, block in enumerate(blocks):
        entries = tuple((name, _told(values[layer], layer, "")) for name, values in lists.items())
        groups.setdefault((_block(block, layer), entries, _declared(graph, layer)), []).append(layer)
    return tuple(map(tuple, groups.values()))


def enough(groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Of each group the first two and the last: what comes first, in between and last may have other neighbours."""
    return tuple(sorted({layer for group in groups for layer in (*group[:2], group[-1])}))


class Same(nn.Module):
    """Stands for a block that is not run: hands on what it is given."""

    def forward(self, x: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return x


def _block(block: nn.Module, layer: int) -> Hashable:
    """Everything that a block is made of."""
    parts = []
    for name, module in block.named_modules():
        own = [(key, _told(value, layer, key)) for key, value in module.__dict__.items() if key not in PLUMBING]
        hooks = tuple(len(module.__dict__[kind]) for kind in HOOKS if module.__dict__[kind] is not None)
        parts.append((name, type(module), tuple(sorted(own, key=lambda pair: pair[0])), hooks))
    tensors = [*block.named_parameters(remove_duplicate=False), *block.named_buffers(remove_duplicate=False)]
    return tuple(parts), tuple((name, _told(tensor, layer, name)) for name, tensor in tensors)


def _told(value: Any, layer: int, name: str) -> Hashable:
    """What is compared of a value. Objects are the same only if they are one."""
    if name in NUMBERS and value == layer:
        return "its number"
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.requires_grad
    if value is None or isinstance(value, str | bool | int | float | torch.dtype | FunctionType | BuiltinFunctionType):
        return type(value), value
    if isinstance(value, partial):
        return partial, _told(value.func, layer, ""), _told(value.args, layer, ""), _told(value.keywords, layer, "")
    if isinstance(value, tuple | list):
        return type(value), tuple(_told(item, layer, "") for item in value)
    if isinstance(value, Mapping):
        return type(value), tuple((str(key), _told(item, layer, "")) for key, item in value.items())
    return type(value), id(value)


def _by_layer(config: object, count: int) -> dict[str, Sequence[Any]]:
    """The configuration's lists with one entry for each layer."""
    found = vars(config) if hasattr(config, "__dict__") else {}
    return {key: value for key, value in found.items() if isinstance(value, list | tuple) and len(value) == count}


def _declared(graph: Graph, layer: int) -> Hashable:
    """What is declared of a layer."""
    inside = [node for node in graph.nodes.values() if node.in_blocks]
    here = tuple(node.path for node in inside if node.exists_in(layer))
    edges = tuple(number for number, edge in enumerate(graph.edges) if edge.layers is None or layer in edge.layers)
    return here, edges, graph.window(layer)
