"""To which layers a node belongs, where layers of one model differ; and the badge that says so.

A node of the blocks says it itself, or the component around it does. What is computed once for all layers (a mask,
a table of angles) belongs to those that use it, if they are of one kind. Knows nothing of drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from atlas.graph.nodes import Layers
from atlas.graph.resolve import Edge, Graph


@dataclass(frozen=True)
class Badge:
    """The mark of one kind of layers: a letter or more, as few as tell kinds apart, and the number of its pattern."""

    letters: str
    pattern: int
    layers: Layers


@lru_cache(maxsize=64)
def belonging(graph: Graph) -> Mapping[str, Layers]:
    """The nodes that only some layers have or use, with those layers."""
    users: dict[str, list[Edge]] = {}
    for edge in graph.edges:
        if not (edge.lends or edge.next_layer or edge.first_layer):
            users.setdefault(edge.source, []).append(edge)
    found: dict[str, Layers | None] = {}

    def of(path: str) -> Layers | None:
        if path not in found:
            node = graph[path]
            found[path] = node.layers
            if node.layers is None and not node.in_blocks:
                if node.kind == "component":
                    found[path] = _common([of(child.path) for child in graph.children(path)])
                else:
                    found[path] = _common([edge.layers or of(edge.target) for edge in users.get(path, ())])
        return found[path]

    return {path: layers for path in graph.nodes if (layers := of(path)) is not None}


@lru_cache(maxsize=64)
def badges(graph: Graph) -> Mapping[str, Badge]:
    """The badge of each kind of layers by its name, in order of their first layers; empty where all are of one kind."""
    kinds = {layers.name: layers for layers in belonging(graph).values()}
    kinds |= {edge.layers.name: edge.layers for edge in graph.edges if edge.layers is not None}
    ordered = sorted(kinds.values(), key=lambda layers: (layers.numbers, layers.name))
    return {
        layers.name: Badge(_letters(layers.name, list(kinds)), number, layers) for number, layers in enumerate(ordered)
    }


def _common(layers: Sequence[Layers | None]) -> Layers | None:
    return layers[0] if layers and all(one == layers[0] for one in layers) else None


def _letters(name: str, names: Sequence[str]) -> str:
    for length in range(1, len(name)):
        if sum(other.startswith(name[:length]) for other in names) == 1:
            return name[:length].upper()
    return name.upper()
