"""Edges: what flowed between captured values while the reference code ran, against the declared graph.

Every declared edge must have been travelled, in each of its views and layers, and nothing may flow between declared
nodes that is not declared. An input that is declared to lend its shape only must lend no value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from atlas.graph.axes import VIEWS, View
from atlas.graph.nodes import Tensor
from atlas.graph.resolve import Edge, Graph, Resolved
from atlas.inspection.checks import Subject
from atlas.inspection.checks._true_size import Traced, traced
from atlas.inspection.checks.result import Kind, Result
from atlas.runtime.flow import Name

KIND: Kind = "edges"
ORDER = 30
SHOWN = 3


@dataclass
class Travelled:
    """Which declared edges were travelled how often, and what went wrong, by node."""

    edges: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def blame(self, fault: str, *nodes: str) -> None:
        """Note a fault at nodes, once each."""
        for node in nodes:
            if fault not in self.faults[node]:
                self.faults[node].append(fault)


def check(subject: Subject) -> Iterator[Result]:
    """One result for each node that has edges."""
    yield from results(traced(subject))


def results(found: Traced) -> Iterator[Result]:
    """Compare the flow of all passes with the graph."""
    graph = found.model.graph
    travelled = Travelled()
    into: dict[str, list[Edge]] = defaultdict(list)
    for edge in graph.edges:
        into[edge.target].append(edge)
    for view in VIEWS:
        for node in graph.nodes.values():
            if isinstance(node.node, Tensor) and node.shape[view] is not None:
                for layer in found.layers_of(node):
                    _compare(found, into, view, node, layer, travelled)
    for node in graph.nodes.values():
        edges = [edge for edge in graph.edges if node.path in (edge.source, edge.target)]
        if not edges:
            continue
        for edge in edges:
            if not edge.lends and not travelled.edges[edge.source, edge.target]:
                travelled.blame(f"{edge.source} → {edge.target} is declared, but nothing took it.", node.path)
        wrong = travelled.faults[node.path]
        yield Result(
            kind=KIND,
            status="failed" if wrong else "passed",
            what="its edges are those that values take",
            subject=found.subject,
            node=node.path,
            detail=" ".join(wrong[:SHOWN]) + (f" And {len(wrong) - SHOWN} more." if len(wrong) > SHOWN else ""),
            hint="Mend the inputs and outputs of the operations." if wrong else "",
            numbers={
                "edges": len(edges),
                "times_travelled": sum(travelled.edges[edge.source, edge.target] for edge in edges),
                "only_lends": sum(edge.lends for edge in edges),
            },
        )


def expected_flow(
    graph: Graph, into: Mapping[str, Sequence[Edge]], view: View, node: Resolved, layer: int | None, run: Sequence[int]
) -> dict[Name, list[Edge]]:
    """The captured values that a tensor should be made of in this layer, each with the declared edges that lead on.

    `into` are the graph's edges by target, `run` the layers that were run: one takes what the last before it gave.
    """
    wanted: dict[Name, list[Edge]] = {}
    last = graph.architecture.sizes["layers"] - 1
    for out in into[node.path]:
        if out.next_layer or out.first_layer:
            if out.next_layer and layer:
                wanted[out.source, max(other for other in run if other < layer)] = [out]
            elif out.first_layer and layer == 0:
                wanted[out.source, None] = [out]
            continue
        if not graph[out.source].exists_in(layer):
            continue
        for edge in into[out.source]:
            if not edge.lends and view in edge.views and (edge.layers is None or layer is None or layer in edge.layers):
                inner = graph[edge.source].in_blocks
                wanted[edge.source, (layer if node.in_blocks else last) if inner else None] = [edge, out]
    return wanted


def _compare(
    found: Traced,
    into: Mapping[str, Sequence[Edge]],
    view: View,
    node: Resolved,
    layer: int | None,
    travelled: Travelled,
) -> None:
    graph = found.model.graph
    wanted = expected_flow(graph, into, view, node, layer, found.layers)
    maker = graph.producer(node.path, layer)
    through = [node.path] if maker is None else [node.path, maker.path]
    turns = found.passes[view].flow.made_of(node.path, layer)
    where = view if layer is None else f"{view}, layer {layer}"
    if not turns:
        travelled.blame(f"{node.path} never comes to be ({where}).", *through)
        return
    reached: set[Name] = set()
    for names in {names for turn in turns for names in turn}:
        matched = names & wanted.keys()
        reached |= matched
        if not matched:
            source, at = sorted(names, key=str)[0]
            lends = maker is not None and any(edge.lends and edge.source == source for edge in into[maker.path])
            said = "is declared to lend only its shape" if lends else "is not declared"
            of = "" if at is None or at == layer else f" of layer {at}"
            travelled.blame(f"{source}{of} → {node.path} {said}, but a value flows ({where}).", source, *through)
    for name in wanted.keys() - reached:
        travelled.blame(f"{name[0]} → {through[-1]} is declared, but nothing flows ({where}).", name[0], *through)
    for name in reached:
        for edge in wanted[name]:
            travelled.edges[edge.source, edge.target] += 1
    if maker is not None and not wanted:
        travelled.edges[maker.path, node.path] += 1
