"""Numbers that follow from a graph's shapes: parameters, KV cache. Knows no page; counts nothing by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from atlas.catalog import Model
from atlas.graph.nodes import Cache, Parameter, Quantity
from atlas.graph.resolve import Resolved

BYTES = 2
"""A number in bfloat16, in which all of these models were released."""


def fixed_axes(model: Model, node: Resolved) -> tuple[str, ...]:
    """The axes of a node whose sizes the configuration fixes."""
    shape = node.node.shape if isinstance(node.node, Quantity) else ()
    return tuple(axis for axis in shape if axis in model.architecture.sizes)


def numbers_in(model: Model, node: Resolved) -> int:
    """How many numbers one copy of a parameter holds, or one position of a cache."""
    return prod(model.architecture.sizes[axis] for axis in fixed_axes(model, node))


def copies(model: Model, node: Resolved) -> int:
    """How often a node stands in the model: once in each layer of the blocks that has it."""
    if node.layers is not None:
        return len(node.layers.numbers)
    return model.architecture.sizes["layers"] if node.in_blocks else 1


def parameters(model: Model, within: str = "") -> int:
    """Distinct parameters of a model, or of one of its components in all layers.

    Where embedding and unembedding are tied the one matrix counts once, as the embedding.
    """
    return sum(numbers_in(model, node) * copies(model, node) for node in _weights(model, within))


def active_parameters(model: Model) -> int:
    """Distinct parameters that one token's pass reads: of stacked experts only those that it is sent to."""
    sizes = model.architecture.sizes
    total = 0
    for node in _weights(model, ""):
        assert isinstance(node.node, Quantity)
        count = numbers_in(model, node) * copies(model, node)
        stacked = node.node.shape[0] == "experts" and node.path.startswith("blocks/feed-forward/experts/")
        total += count * sizes["experts_per_token"] // sizes["experts"] if stacked else count
    return total


def parameters_of_one(model: Model, within: str) -> dict[str, int]:
    """As `parameters`, for one copy of a component, by the kinds of layers in which it differs; '' if all are alike."""
    alike, found = 0, dict[str, int]()
    for node in _weights(model, within):
        count = numbers_in(model, node)
        if node.layers is None:
            alike += count
        else:
            found[node.layers.name] = found.get(node.layers.name, 0) + count
    return {kind: alike + count for kind, count in found.items()} or {"": alike}


def _weights(model: Model, within: str) -> Iterator[Resolved]:
    for node in model.graph.nodes.values():
        if not isinstance(node.node, Parameter) or (within and not node.path.startswith(f"{within}/")):
            continue
        if not (model.entry.tied_embeddings and node.path == "unembedding/weight"):
            yield node


def caches(model: Model) -> tuple[Resolved, ...]:
    """The caches of one layer."""
    return tuple(node for node in model.graph.nodes.values() if isinstance(node.node, Cache))


def cache_bytes_a_token(model: Model) -> int:
    """Bytes that all caches of all layers keep for one position, in bfloat16."""
    return sum(numbers_in(model, node) * copies(model, node) * BYTES for node in caches(model))


@dataclass(frozen=True)
class Figure:
    """A number with what it counts and how it comes about, as a page prints it."""

    label: str
    value: str
    unit: str
    how: str


def figures(model: Model) -> tuple[Figure, ...]:
    """What a model's page says of its size."""
    total, kept = parameters(model), cache_bytes_a_token(model)
    layers = model.architecture.sizes["layers"]
    tied = "; embedding and unembedding are one matrix, counted once" if model.entry.tied_embeddings else ""
    found = [
        Figure("Parameters", f"{total:,}", "", f"every weight's shape, times {layers} layers in the blocks{tied}"),
    ]
    active = active_parameters(model)
    if active != total:
        chosen, experts = model.architecture.sizes["experts_per_token"], model.architecture.sizes["experts"]
        how = f"all that every token goes through, and {chosen} of {experts} experts in each layer that has some"
        found.append(Figure("Active", f"{active:,}", "parameters a token", how))
    read = "all" if active == total else "the active ones"
    how = f"two bytes a parameter; a decode step reads {read}"
    found.append(Figure("Weights", binary_bytes(total * BYTES), "in bfloat16", how))
    if kept:
        found.append(Figure("KV cache", f"{kept:,}", "bytes a token in bfloat16", _how_kept(model)))
    return tuple(found)


def _how_kept(model: Model) -> str:
    """What is multiplied, and added where a layer's caches are unlike."""
    sizes, found = model.architecture.sizes, dict[str, list[Resolved]]()
    for one in caches(model):
        axes = [axis for axis in fixed_axes(model, one) if axis != "one"]
        words = " × ".join(f"{sizes[axis]} {model.graph.axes[axis].words}" for axis in axes)
        found.setdefault(words, []).append(one)
    if len(found) == 1:
        ((words, alike),) = found.items()
        return f"{copies(model, alike[0])} layers × {len(alike)} caches × {words} × {BYTES} bytes"
    parts = " + ".join(words for words, alike in found.items() for _ in alike)
    return f"{copies(model, caches(model)[0])} layers × ({parts}) × {BYTES} bytes"


def binary_bytes(count: float) -> str:
    """`14.96 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.4g} {unit}"
        count /= 1024
    return f"{count:,.4g} TiB"
