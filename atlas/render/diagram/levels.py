"""What one diagram shows: which nodes of the graph are drawn, what flows between them, and which lie outside.

A component is drawn as one box, unless it is the diagram's own or was opened in place. What leaves a closed
component is drawn after it, as a tensor of its own, so that a reader sees what flows. Around a component stand
its neighbours and, if it lies on a branch, the piece of the residual stream that the branch leaves and rejoins.
Knows nothing of sizes, places or markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from atlas.errors import NotFound
from atlas.graph.axes import VIEWS, View
from atlas.graph.nodes import Cache, Component, Layers, Operation, Tensor
from atlas.graph.resolve import Graph
from atlas.render.diagram.belonging import belonging
from atlas.render.diagram.stream import Stream, residual_stream

MOST_AROUND = 8
"""How many items of a branch are drawn around one of its components to lead to the stream; else none are."""


@dataclass(frozen=True)
class Item:
    """One drawn node. `inside` is the component whose frame it stands in; `outside` marks a neighbour.

    `layers` are those that have or use it, None if all.
    """

    path: str
    inside: str
    outside: bool = False
    opened: bool = False
    sum: bool = False
    layers: Layers | None = None


@dataclass(frozen=True)
class Link:
    """Something flows from one drawn node to another. `lends`: its shape or position only; `layers`: only there."""

    source: str
    target: str
    lends: bool = False
    stream: bool = False
    layers: Layers | None = None


@dataclass(frozen=True)
class Level:
    """The diagram of `root` ('' is the model) as a graph. `items` are in order of data flow.

    `places` says for every node that has one which item stands for it. `returns` are the pairs of items
    (last, first) of the stream that a repeated component's layers hand on. `comes` and `goes` are the items to
    which the stream comes from beyond the diagram, and from which it goes on.
    """

    root: str
    view: View
    items: Mapping[str, Item]
    links: tuple[Link, ...]
    places: Mapping[str, str] = field(repr=False)
    returns: tuple[tuple[str, str], ...] = ()
    comes: tuple[str, ...] = ()
    goes: tuple[str, ...] = ()

    def sources(self, path: str) -> list[str]:
        """The items that flow into an item."""
        return [link.source for link in self.links if link.target == path]

    def targets(self, path: str) -> list[str]:
        """The items that an item flows into."""
        return [link.target for link in self.links if link.source == path]

    @property
    def stream(self) -> frozenset[str]:
        """The items of the residual stream."""
        return frozenset(path for link in self.links if link.stream for path in (link.source, link.target))


@lru_cache(maxsize=512)
def level(graph: Graph, root: str, view: View, opened: frozenset[str] = frozenset()) -> Level:
    """The diagram of a component, some of its inner components opened. Raises NotFound."""
    if root and not isinstance(graph[root].node, Component):
        raise NotFound(f"{root!r} is no component, so it has no diagram.", f"Its parent is {graph[root].parent!r}.")
    flow = _Flow(graph, view)
    inner = {item.path: item for item in _inside(flow, root, root, opened)}
    places = {path: place for path in flow.present if within(path, root) and (place := _place(path, root, opened))}
    for path in _leaving(flow, places):
        frame = graph[places[path]].parent
        inner[path] = Item(path, inside=frame, sum=path in flow.stream.sums)
        places[path] = path
    items: dict[str, Item] = inner
    if root:
        outer = level(graph, graph[root].parent, view)
        around = _around(outer, root, flow.stream)
        items = {**inner, **{path: Item(path, root, outside=True, sum=outer.items[path].sum) for path in around}}
        for path, place in outer.places.items():
            if place in around and not within(path, root):
                places[path] = place
    some = belonging(graph)
    items = {path: replace(item, layers=some.get(path)) for path, item in items.items()}
    ordered = sorted(items.values(), key=lambda item: flow.order[item.path])
    links = _links(flow, places, {item.path for item in ordered if not item.opened})
    returns = tuple(
        (places[source], places[target])
        for source, target in graph.architecture.loops
        if places.get(source) == source and places.get(target) == target and within(source, root)
    )
    comes, goes = _ends(flow, links, places)
    return Level(root, view, {item.path: item for item in ordered}, links, places, returns, comes, goes)


def sketch(graph: Graph, root: str, view: View) -> Level:
    """The bare bones of a component: its parts and operations, and the stream; no other tensor, nothing outside."""
    whole = level(graph, root, view)
    stream = whole.stream
    kept = {
        path: item
        for path, item in whole.items.items()
        if not item.outside and (graph[path].kind in ("component", "operation") or path in stream)
    }
    targets: dict[str, set[str]] = {}
    for link in whole.links:
        if not link.lends:
            targets.setdefault(link.source, set()).add(link.target)

    def kept_after(path: str) -> set[str]:
        after = targets.get(path, set())
        return (after & kept.keys()).union(*(kept_after(other) for other in after - kept.keys()))

    links = tuple(
        Link(
            source,
            target,
            stream=any(link.stream for link in whole.links if (link.source, link.target) == (source, target)),
        )
        for source in kept
        for target in kept
        if target in kept_after(source)
    )
    ends = [path for path in kept if path in stream]
    return replace(whole, items=kept, links=links, comes=tuple(ends[:1]), goes=tuple(ends[-1:]))


def within(path: str, root: str) -> bool:
    """Whether a node is somewhere inside a component."""
    return not root or path.startswith(f"{root}/")


class _Flow:
    """The graph in one view: the nodes that are present, their order, and the edges."""

    def __init__(self, graph: Graph, view: View) -> None:
        self.graph = graph
        self.stream: Stream = residual_stream(graph, view)
        self.order = {path: number for number, path in enumerate(graph.nodes)}
        self.edges: list[tuple[str, str, bool]] = []
        self.layers: dict[tuple[str, str], Layers | None] = {}
        for edge in graph.edges:
            # What goes back to a node before it is the next layer's, not another step of this pass.
            back = edge.next_layer and self.order[edge.target] < self.order[edge.source]
            if view in edge.views and not back:
                self.edges.append((edge.source, edge.target, edge.lends))
                self.layers[edge.source, edge.target] = edge.layers
        used = {source for source, _, _ in self.edges}
        self.present: set[str] = set()
        for node in graph.nodes.values():
            views = node.node.views if isinstance(node.node, Tensor | Operation) else VIEWS
            if node.kind != "component" and view in views and (node.kind != "parameter" or node.path in used):
                self.present.add(node.path)
                self.present |= {component.path for component in graph.ancestors(node.path)}


def _inside(flow: _Flow, component: str, root: str, opened: frozenset[str]) -> Iterable[Item]:
    for node in flow.graph.children(component):
        if node.path in flow.present:
            is_open = node.kind == "component" and node.path in opened
            yield Item(node.path, component, opened=is_open, sum=node.path in flow.stream.sums)
            if is_open:
                yield from _inside(flow, node.path, root, opened)


def _place(path: str, root: str, opened: frozenset[str]) -> str | None:
    """The item that stands for a node: itself, or the outermost closed component around it."""
    parts = path.split("/")
    for length in range(len(root.split("/")) + 1 if root else 1, len(parts)):
        component = "/".join(parts[:length])
        if component not in opened:
            return component
    return path


def _leaving(flow: _Flow, places: Mapping[str, str]) -> list[str]:
    """The tensors inside closed components that something outside of them uses, or nothing at all."""
    users: dict[str, list[str]] = {}
    for source, target, _ in flow.edges:
        users.setdefault(source, []).append(target)
    ends = {source for source, _ in flow.graph.architecture.loops}
    found = []
    for path, place in places.items():
        if path == place or not within(path, place) or not isinstance(flow.graph[path].node, Tensor):
            continue
        used = users.get(path, ())
        result = not used and not isinstance(flow.graph[path].node, Cache)
        if result or path in ends or any(not within(user, place) for user in used):
            found.append(path)
    return found


def _around(outer: Level, root: str, stream: Stream) -> set[str]:
    """Which items of the level above are drawn around a component."""
    own = {path for path in outer.items if path == root or within(path, root)}
    around = {link.source for link in outer.links if link.target in own}
    around |= {link.target for link in outer.links if link.source in own}
    on_stream = outer.stream
    if not any(within(path, root) for path in stream.nodes):
        before = _reach(own, outer.sources, on_stream)
        after = _reach(own, outer.targets, on_stream)
        left, joined = before & on_stream, after & on_stream
        branch = _reach(left, outer.targets, own) & before | _reach(joined, outer.sources, own) & after
        if left and joined and len(branch - around) <= MOST_AROUND:
            # The stream goes on: what the sum makes, and what lies between where it was left and rejoined.
            onward = {link.target for link in outer.links if link.stream and link.source in joined - left}
            between = _reach(left, outer.targets, joined) & _reach(joined, outer.sources, left) & on_stream
            around |= branch | left | joined | onward | between
    return around - own


def _reach(starts: set[str], step: Callable[[str], list[str]], stop: Iterable[str]) -> set[str]:
    """All items reached from `starts`, without going on from those in `stop`."""
    halt = set(stop)
    found: set[str] = set()
    ahead = list(starts)
    while ahead:
        for path in step(ahead.pop()):
            if path not in found and path not in starts:
                found.add(path)
                if path not in halt:
                    ahead.append(path)
    return found


def _links(flow: _Flow, places: Mapping[str, str], drawn: set[str]) -> tuple[Link, ...]:
    found: dict[tuple[str, str], bool] = {}
    layers: dict[tuple[str, str], set[Layers | None]] = {}
    for source, target, lends in flow.edges:
        ends = places.get(source), places.get(target)
        if ends[0] is not None and ends[1] is not None and ends[0] != ends[1] and drawn.issuperset(ends):
            pair = (ends[0], ends[1])
            found[pair] = found.get(pair, True) and lends
            layers.setdefault(pair, set()).add(flow.layers[source, target])
    # A line for several edges is of some layers if all of them are, and of the same.
    some = {pair: next(iter(kinds)) if len(kinds) == 1 else None for pair, kinds in layers.items()}
    stream = {(places.get(source), places.get(target)) for source, target in flow.stream.links}
    return tuple(Link(*pair, lends=lends, stream=pair in stream, layers=some[pair]) for pair, lends in found.items())


def _ends(flow: _Flow, links: Iterable[Link], places: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The items into which the stream comes from beyond what is drawn, and from which it goes on."""
    entered = {link.target for link in links if link.stream}
    left = {link.source for link in links if link.stream}
    on_stream = entered | left | flow.stream.nodes
    comes, goes = set(), set()
    for source, target in flow.stream.links:
        begin, end = places.get(source), places.get(target)
        if begin is None and end in on_stream and end not in entered:
            comes.add(end)
        if end is None and begin in on_stream and begin not in left:
            goes.add(begin)
    return tuple(sorted(comes)), tuple(sorted(goes))
