"""The residual stream of a graph, found by its structure: no path and no name is known here.

The stream is what blocks hand to each other. It is followed backwards from where a block ends to where its
stream began: through a sum, along the summand from which all the others were computed; from the first tensor
of a block, to what enters it. Knows nothing of drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from atlas.graph.axes import View
from atlas.graph.nodes import Tensor
from atlas.graph.resolve import Graph


@dataclass(frozen=True)
class Stream:
    """`links` join each node of the stream to the next; `sums` are the operations where a branch comes back."""

    links: frozenset[tuple[str, str]]
    sums: frozenset[str]

    @property
    def nodes(self) -> frozenset[str]:
        """All tensors and operations of the stream."""
        return frozenset(path for link in self.links for path in link)


@lru_cache(maxsize=256)
def residual_stream(graph: Graph, view: View) -> Stream:
    """The stream in a view. Empty where no tensor is handed from one layer to the next."""
    flow = [edge for edge in graph.edges if view in edge.views and not edge.lends]
    joins = [(edge.source, edge.target) for edge in flow if edge.next_layer or edge.first_layer]
    made_from: dict[str, list[str]] = {}
    for edge in flow:
        if not (edge.next_layer or edge.first_layer):
            made_from.setdefault(edge.target, []).append(edge.source)
    ancestors = _ancestors(made_from)

    links: set[tuple[str, str]] = set()
    sums: set[str] = set()
    seen: set[str] = set()
    ends = [source for source, _ in graph.architecture.loops]
    shapes = {_shape(graph, end) for end in ends}
    while ends:
        tensor = ends.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        for source, target in joins:
            if target == tensor:
                links.add((source, tensor))
                ends.append(source)
        for operation in made_from.get(tensor, ()):
            wide = [path for path in made_from.get(operation, ()) if _shape(graph, path) in shapes]
            carried = _origin(wide, ancestors)
            if carried is not None:
                links |= {(carried, operation), (operation, tensor)}
                ends.append(carried)
                if len(wide) > 1:
                    sums.add(operation)
    return Stream(frozenset(links), frozenset(sums))


def _shape(graph: Graph, path: str) -> tuple[str, ...] | None:
    node = graph[path].node
    return node.shape if isinstance(node, Tensor) else None


def _origin(tensors: Sequence[str], ancestors: Mapping[str, frozenset[str]]) -> str | None:
    """The one of `tensors` from which all others were computed, if there is one."""
    for tensor in tensors:
        if all(other == tensor or tensor in ancestors[other] for other in tensors):
            return tensor
    return None


def _ancestors(made_from: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    """For each node, all that it was computed from. Edges within a pass make no circles."""
    found: dict[str, frozenset[str]] = {}

    def of(path: str) -> frozenset[str]:
        if path not in found:
            sources = made_from.get(path, ())
            found[path] = frozenset(sources).union(*(of(source) for source in sources))
        return found[path]

    for path in {*made_from, *(source for sources in made_from.values() for source in sources)}:
        of(path)
    return found
