"""A nest of cells as a question to ELK's layered layout, and its answer.

Owns what makes the trunk one straight line. Its things are joined from the middle of one's lower side to the
middle of the next one's upper side, with a priority over all other lines; whatever else leaves or joins them does
so on the right. Where a branch makes it long, the trunk has a filler in each layer, so that it has something in
all of them; and its parts come first in the order that ELK keeps. So ELK can only put the trunk on the left, and
has no reason to bend it. Knows nothing of what nodes mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from atlas.render.assets import vendor_file
from atlas.render.diagram.cells import IN_GAP, Cell, Style
from atlas.render.diagram.levels import Item, Link
from atlas.render.diagram.nest import Nest
from atlas.render.javascript import shared

Point = tuple[float, float]

MARGIN = 6.0
RETURN_LANE = 30.0
"""Width in px left of a repeated component's stream, for the line that leads back."""
LAYER_GAP = 14.0
STUB = 12.0
"""Length in px of the piece of stream drawn where it comes from beyond the diagram, and goes on."""
FRAME_HEAD = 26.0
"""Height in px of the title of an opened component."""

_LAY_OUT = "graph => (globalThis.elk ??= new ELK()).layout(graph)"
_OPTIONS = {
    "elk.algorithm": "layered",
    "elk.direction": "DOWN",
    "elk.edgeRouting": "ORTHOGONAL",
    "elk.randomSeed": "1",
    "elk.separateConnectedComponents": "false",
    "elk.spacing.nodeNode": "10",
    "elk.spacing.edgeNode": "8",
    "elk.spacing.edgeEdge": "7",
    "elk.spacing.portPort": str(IN_GAP),
    "elk.layered.spacing.nodeNodeBetweenLayers": str(LAYER_GAP),
    "elk.layered.spacing.edgeNodeBetweenLayers": "7",
    "elk.layered.spacing.edgeEdgeBetweenLayers": "6",
    "elk.layered.nodePlacement.strategy": "NETWORK_SIMPLEX",
    "elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",
    "elk.layered.considerModelOrder.longEdgeStrategy": "EQUAL",
    # The order is a strong wish and no command: forced, it lets a line that turns into a thing's side start on the
    # thing's other side, and run through it.
    "elk.layered.considerModelOrder.crossingCounterNodeInfluence": "0.5",
}
_FROM_CORNER = {"elk.json.shapeCoords": "ROOT", "elk.json.edgeCoords": "ROOT"}
_SKETCH = {
    "elk.spacing.nodeNode": "8",
    "elk.layered.spacing.nodeNodeBetweenLayers": "9",
    "elk.layered.spacing.edgeNodeBetweenLayers": "4",
}
_TRUNK = {
    "elk.layered.priority.straightness": "100",
    "elk.layered.priority.shortness": "10",
    "elk.layered.priority.direction": "10",
}
_MAIN = {"elk.layered.priority.straightness": "8"}


@dataclass(frozen=True)
class Box:
    """A place that ELK found, in px from the diagram's upper left corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Answer:
    """Where things are, and along which points each line between two items runs ('' is the whole diagram)."""

    boxes: Mapping[str, Box]
    routes: Mapping[tuple[str, str], tuple[Point, ...]]


def solve(nest: Nest, style: Style, titles: Mapping[str, float], order: Mapping[str, float] | None = None) -> Answer:
    """Ask ELK. `titles` are the widths in px of the titles of opened components.

    With `order` (for each thing, where it stood from left to right) that order is kept, and the main line of each
    cell runs straight with the others beside it. Without, ELK finds an order. Raises JavaScriptError.
    """
    question = _Question(nest, style, titles, order)
    return question.read(shared().ask(vendor_file("elk/elk.bundled.js"), _LAY_OUT, question.to_json()))


class _Question:
    """The nest in ELK's JSON."""

    def __init__(
        self, nest: Nest, style: Style, titles: Mapping[str, float], order: Mapping[str, float] | None
    ) -> None:
        self.nest = nest
        self.level = nest.level
        self.style = style
        self.titles = titles
        self.order = order
        self.ports: dict[str, dict[str, dict[str, Any]]] = {}
        self.edges: dict[str, list[dict[str, Any]]] = {frame: [] for frame in nest.frames}
        self.fillers: dict[str, list[dict[str, Any]]] = {frame: [] for frame in nest.frames}
        self.pieces: dict[tuple[str, str], list[str]] = {}
        self.drawn: dict[tuple[str, str], list[str]] = {}
        for number, link in enumerate(self.level.links):
            if nest.cell_of[link.source] is not nest.cell_of[link.target]:
                self._route(number, link)
        if order is not None:
            for cell in nest.cells.values():
                self._fix_ports(cell)

    # --- lines

    def _route(self, number: int, link: Link) -> None:
        """Cut a link at the frames that it crosses; in each frame a piece of it is an edge.

        Links that leave one cell together and enter the same are one edge.
        """
        ends = (self.nest.cell_of[link.source].id, link.target)
        if ends in self.drawn:
            self.pieces[link.source, link.target] = self.drawn[ends]
            return
        outward, inward = self.nest.frames_around(link.source), self.nest.frames_around(link.target)
        common = next(frame for frame in outward if frame in inward)
        up = outward[: outward.index(common)]
        down = inward[: inward.index(common)]
        # Each stop is a thing that the line leaves or enters.
        stops = [self.nest.cell_of[link.source].id, *up, *reversed(down), self.nest.cell_of[link.target].id]
        pieces = []
        for index, (start, end) in enumerate(pairwise(stops)):
            out_of_end, out_of_start = index < len(up), index <= len(up)
            frame = end if out_of_end else (common if out_of_start else start)
            ports = [self._port(start, link, out=out_of_start), self._port(end, link, out=out_of_end)]
            options = {"elk.layered.priority.shortness": self._shortness(link)}
            # A piece that crosses a frame is judged by its end inside.
            inside, out = (end, False) if frame == start else (start, True)
            if self.nest.along_trunk(inside, link, out=out):
                options |= _TRUNK
                if frame not in (start, end):
                    ports[1:1] = self._fill(frame, start, end)
            elif end in self.nest.cells and link.source == self.nest.main_source(end):
                options |= _MAIN
            for part in range(0, len(ports), 2):
                name = f"e{number}.{index}.{part}"
                edge = {"id": name, "sources": [ports[part]], "targets": [ports[part + 1]]}
                self.edges[frame].append(edge | {"layoutOptions": options})
                pieces.append(name)
        self.pieces[link.source, link.target] = self.drawn[ends] = pieces

    def _shortness(self, link: Link) -> str:
        """How much a line wants to be short: side inputs stand by their users, steps with one source side by side."""
        if self.level.items[link.source].outside and not self.level.sources(link.source):
            return "3"
        return "1" if len(self.level.targets(link.source)) == 1 else "2"

    def _fill(self, frame: str, start: str, end: str) -> list[str]:
        """Fillers for the trunk between two things, and the ports at which it enters and leaves each."""
        ports = []
        for number in range(self.nest.layers_between(frame, start, end)):
            name = f"{start}>{end}#{number}"
            through = [
                {"id": f"{name} {side}", "x": 1, "y": y, "layoutOptions": {"elk.port.side": side}}
                for side, y in (("NORTH", 0), ("SOUTH", 2))
            ]
            self.fillers[frame].append(
                {
                    "id": name,
                    "width": 2,
                    "height": 2,
                    "ports": through,
                    "layoutOptions": {"elk.portConstraints": "FIXED_POS"},
                }
            )
            ports += [str(port["id"]) for port in through]
        return ports

    def _port(self, thing: str, link: Link, *, out: bool) -> str:
        """The port where a link leaves or enters a thing: on the right of the trunk, else above or below."""
        trunk = self.nest.in_trunk(thing)
        along = self.nest.along_trunk(thing, link, out=out)
        side = "EAST" if trunk and not along else "SOUTH" if out else "NORTH"
        cell = self.nest.cells.get(thing)
        # Lines that leave share one port; those that enter have one each, but for the right side of a trunk.
        shared_port = along if cell is None else out or trunk
        name = f"{thing}{'>' if out else '<'}{side if shared_port else self.nest.cell_of[link.source].id}"
        port: dict[str, Any] = {"id": name, "layoutOptions": {"elk.port.side": side}}
        if cell is not None and trunk:
            port |= {"x": cell.width, "y": _middle(cell, out)} if side == "EAST" else _centre(cell, out)
        self.ports.setdefault(thing, {})[name] = port
        return name

    def _fix_ports(self, cell: Cell) -> None:
        """Where lines enter and leave a cell that is not of the trunk: the main line in the middle."""
        if self.nest.in_trunk(cell.id):
            return
        entering = {self.nest.cell_of[source].id for source in self.level.sources(cell.id)} - {cell.id}
        sources = sorted(entering, key=lambda source: (self._x(source), source))
        main = self.nest.main_source(cell.id)
        main = self.nest.cell_of[main].id if main else ""
        middle = sources.index(main) if main in sources else 0
        for port in self.ports.get(cell.id, {}).values():
            port |= _centre(cell, out=True)
        # All of them reach the head, however many there are: then they stand closer, on whole halves of a px.
        beside = max(middle, len(sources) - 1 - middle, 1)
        gap = min(IN_GAP, (cell.head.width - IN_GAP) // beside / 2)
        for number, source in enumerate(sources):
            self.ports[cell.id][f"{cell.id}<{source}"] |= {"x": cell.width / 2 + (number - middle) * gap, "y": 0}

    # --- things

    def _x(self, path: str) -> float:
        """Where an item stood from left to right, or what flows into it, if it is new."""
        order = self.order or {}
        ahead, seen = [self.nest.cell_of[path].id], set()
        while ahead:
            cell = ahead.pop(0)
            if cell in order:
                return order[cell]
            seen.add(cell)
            ahead += [source for s in self.level.sources(cell) if (source := self.nest.cell_of[s].id) not in seen]
        return 0

    def _rank(self, item: Item) -> tuple[int, float]:
        """The order from left to right that ELK is asked to keep: the trunk first; at first, side inputs last."""
        if self.nest.in_trunk(item.path):
            return (0, 0)
        if self.order is None:
            aside = item.outside and not self.level.sources(item.path)
            return (2 if aside else 1, 0)
        return (1, self.order.get(item.path, 0) if item.opened else self._x(item.path))

    def to_json(self) -> dict[str, Any]:
        """The whole diagram."""
        root = self._frame(self.level.root)
        root["layoutOptions"] |= _FROM_CORNER
        return root | {"id": "the whole diagram"}

    def _frame(self, frame: str) -> dict[str, Any]:
        things = [
            item
            for item in sorted(self.level.items.values(), key=self._rank)
            if item.inside == frame and (item.opened or item.path in self.nest.cells)
        ]
        children = [
            self._frame(item.path) if item.opened else self._cell(self.nest.cells[item.path]) for item in things
        ]
        whole = frame == self.level.root
        side = MARGIN if whole else 2 * MARGIN
        left = side + (RETURN_LANE if any(self.nest.frame_of(end) == frame for end, _ in self.level.returns) else 0)
        top = (MARGIN + (STUB if self.level.comes else 0)) if whole else FRAME_HEAD
        bottom = side + (STUB if whole and self.level.goes else 0)
        options = _OPTIONS | {"elk.padding": f"[top={top},left={left},bottom={bottom},right={side}]"}
        if self.style.sketch:
            options |= _SKETCH
        if not whole:
            options |= {
                "elk.portConstraints": "FIXED_SIDE",
                "elk.nodeSize.constraints": "MINIMUM_SIZE PORTS",
                "elk.nodeSize.minimum": f"({self._least_width(frame, left)}, 40)",
            }
        return {
            "id": frame,
            "children": [*self.fillers[frame], *children],
            "edges": self.edges[frame],
            "ports": list(self.ports.get(frame, {}).values()),
            "layoutOptions": options,
        }

    def _least_width(self, frame: str, left: float) -> float:
        """So wide that an opened component's title has room beside a line that enters: the trunk, or any other."""
        title = self.titles[frame]
        return left + title + 80 if self.nest.trunks[frame] else 2 * title + 66

    def _cell(self, cell: Cell) -> dict[str, Any]:
        fixed = self.order is not None or self.nest.in_trunk(cell.id)
        options = {"elk.portConstraints": "FIXED_POS"}
        if not fixed:
            options = {"elk.portConstraints": "FIXED_SIDE", "elk.portAlignment.default": "CENTER"}
        return {
            "id": cell.id,
            "width": cell.width,
            "height": cell.height,
            "ports": list(self.ports.get(cell.id, {}).values()),
            "layoutOptions": options,
        }

    # --- the answer

    def read(self, root: Mapping[str, Any]) -> Answer:
        """ELK's answer, with its own marks left out."""
        boxes: dict[str, Box] = {}
        sections: dict[str, list[Point]] = {}
        ahead = [(self.level.root, root)]
        while ahead:
            path, node = ahead.pop()
            boxes[path] = Box(*(float(node.get(key, 0)) for key in ("x", "y", "width", "height")))
            ahead += [(child["id"], child) for child in node.get("children", ())]
            for edge in node.get("edges", ()):
                sections[edge["id"]] = [
                    (point["x"], point["y"])
                    for section in edge["sections"]
                    for point in (section["startPoint"], *section.get("bendPoints", ()), section["endPoint"])
                ]
        routes = {
            link: tuple(point for piece in pieces for point in sections[piece]) for link, pieces in self.pieces.items()
        }
        return Answer(boxes, routes)


def _centre(cell: Cell, out: bool) -> dict[str, float]:
    return {"x": cell.width / 2, "y": cell.height if out else 0}


def _middle(cell: Cell, out: bool) -> float:
    """Where a line leaves or enters a cell of the trunk on the right: not both in one place."""
    glyph = cell.tail if out else cell.head
    middle = glyph.y + glyph.height / 2
    if cell.head is cell.tail and glyph.kind != "sum":
        middle += glyph.height / 5 if out else -glyph.height / 5
    return middle
