"""Which tensors of a run are recorded, and in which order: the order in which a budget is spent.

First what stands outside the blocks, then layer by layer the full sequence, prefill and the first decode step; then
the other decode steps; parameters last, the small ones first. So a small budget has something of everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from atlas.errors import BadRequest
from atlas.graph.axes import View
from atlas.graph.nodes import Parameter, Quantity, Tensor
from atlas.graph.resolve import Graph, Resolved
from atlas.inspection.recorded.layout import Shelf


@dataclass(frozen=True)
class Batch:
    """Tensors of one pass and layer, which one replay makes. `layer` is None outside the blocks."""

    shelf: Shelf
    view: View
    layer: int | None
    step: int | None
    nodes: tuple[str, ...]


def chosen_nodes(graph: Graph, wanted: Sequence[str]) -> tuple[str, ...]:
    """The tensors, caches and parameters that are meant, in order of data flow; a component means all that is in it.

    Without any it is every one of them. Raises `NotFound` for an unknown node, and `BadRequest` for one without values.
    """
    holding = [path for path, node in graph.nodes.items() if isinstance(node.node, Tensor | Parameter)]
    if not wanted:
        return tuple(holding)
    meant: set[str] = set()
    for path in wanted:
        node = graph[path]
        inside = {path} if isinstance(node.node, Quantity) else {one for one in holding if one.startswith(f"{path}/")}
        if not inside:
            near = f"Name {node.outputs[0]!r}." if node.outputs else "Name a tensor, a cache or a parameter."
            raise BadRequest(f"{path!r} is a {node.kind}, which has no values of its own.", near)
        meant |= inside
    return tuple(path for path in holding if path in meant)


def batches(graph: Graph, nodes: Sequence[str], layers: int, steps: int) -> Iterator[Batch]:
    """All that is to be recorded of a run with so many decode steps, in order."""
    tensors = [path for path in nodes if isinstance(graph[path].node, Tensor)]
    places: list[int | None] = [None, *range(layers)]
    first: list[tuple[View, int | None]] = [("full", None), ("prefill", None)]
    if steps:
        first.append(("decode", 1))
    for layer in places:
        for view, step in first:
            yield from _batch(graph, tensors, view, layer, step)
    for layer in places:
        for step in range(2, steps + 1):
            yield from _batch(graph, tensors, "decode", layer, step)
    parameters = [path for path in nodes if path not in tensors]
    for path in sorted(parameters, key=lambda path: (_numbers(graph[path]), list(graph.nodes).index(path))):
        for layer in _layers(graph[path], layers):
            yield Batch("parameter", "prefill", layer, None, (path,))


def _batch(graph: Graph, tensors: Sequence[str], view: View, layer: int | None, step: int | None) -> Iterator[Batch]:
    here = []
    for path in tensors:
        node = graph[path].node
        assert isinstance(node, Tensor)
        if view in node.views and layer in _layers(graph[path], (layer or 0) + 1):
            here.append(path)
    if here:
        yield Batch(view, view, layer, step, tuple(here))


def _layers(node: Resolved, layers: int) -> Sequence[int | None]:
    """The layers, up to a number, in which a node exists."""
    if not node.in_blocks:
        return [None]
    return [layer for layer in range(layers) if node.layers is None or layer in node.layers]


def _numbers(node: Resolved) -> int:
    shape = node.shape["full"] or ()
    found = 1
    for extent in shape:
        found *= extent.size or 1
    return found
