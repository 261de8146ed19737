"""The shapes of drawn nodes, with their sizes, and the cells that hold those that belong together.

A cell is what the layout moves as one: an operation or component with what it makes below it and the parameters
that only it uses above it. So a chain of steps reads as steps. Knows nothing of where cells go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from atlas.graph.axes import Extent, View
from atlas.graph.nodes import Cache, Component, Operation, Parameter, Tensor
from atlas.graph.resolve import Graph
from atlas.render.diagram import text
from atlas.render.diagram.belonging import Badge, badges, belonging
from atlas.render.diagram.levels import Item, Level

GlyphKind = Literal["component", "operation", "sum", "tensor", "parameter", "cache"]

NAME, SYMBOL, SHAPE, SMALL = 12.0, 13.5, 10.5, 9.5
"""Font sizes in px: of names, of symbols, of shapes, of a cache's rows."""
LINE = 13.5
STEM = 6.0
"""Length in px of the line between the glyphs of one cell."""
PILE_GAP = 3.0
IN_GAP = 12.0
"""Space in px between lines that enter a cell side by side."""
TENSOR_NAME = 10.5
TOGGLE = 20.0
"""Space in px for the sign that opens a component."""
DOT = 8.0
LID = 6.0
BADGE = 9.0
"""Font size and height in px of the mark of those layers that have or use a node."""
PILE = 3.0
"""How far the second card of a repeated component stands out, in px."""


@dataclass(frozen=True)
class Style:
    """How a diagram is drawn: with the names of tensors beside their symbols, in narrow columns, with signs that
    open components. `sketch` is a preview, without shapes and symbols.
    """

    named: bool = True
    narrow: bool = False
    toggles: bool = False
    sketch: bool = False

    @property
    def widest(self) -> float:
        """Where the name of an operation is broken, in px."""
        return 74 if self.narrow else 112


@dataclass(frozen=True)
class Glyph:
    """One drawn node at x, y (its top left corner) of its cell, in px."""

    item: Item
    kind: GlyphKind
    width: float
    height: float
    x: float = 0
    y: float = 0
    lines: tuple[str, ...] = ()
    symbol: str = ""
    shape: tuple[Extent, ...] = ()
    written: Extent | None = None
    read: Extent | None = None
    repeat: int = 0
    opens: bool = False
    badge: Badge | None = None

    @property
    def path(self) -> str:
        return self.item.path

    @property
    def centre(self) -> float:
        """The x of its middle."""
        return self.x + self.width / 2

    @property
    def words(self) -> float:
        """The x of the middle of its words, which stand beside its badge."""
        return self.centre + badge_room(self.badge) / 2


@dataclass(frozen=True)
class Cell:
    """Glyphs that keep together. `head` is the one that lines enter, `tail` the one that they leave."""

    glyphs: tuple[Glyph, ...]
    head: Glyph
    tail: Glyph
    width: float
    height: float

    @property
    def id(self) -> str:
        return self.head.path


def cells(graph: Graph, level: Level, style: Style) -> list[Cell]:
    """All cells of a level, in order of data flow."""
    glyphs = {item.path: _glyph(graph, level, item, style) for item in level.items.values() if not item.opened}
    tails = _tails(level, glyphs)
    params = _own_parameters(level, glyphs)
    piles = _side_inputs(level, glyphs)
    glued = {path for paths in (*tails.values(), *params.values(), *piles.values()) for path in paths}
    return [
        _piled([glyphs[path], *(glyphs[p] for p in piles[path])])
        if path in piles
        else _stacked(
            glyphs[path],
            [glyphs[p] for p in params.get(path, ())],
            [glyphs[p] for p in tails.get(path, ())],
            level,
        )
        for path in glyphs
        if path not in glued
    ]


def frame_title(graph: Graph, path: str) -> str:
    """What stands over an opened component: `Transformer block × 32`, `Routed experts, routed layers`."""
    some = belonging(graph)
    mine = some.get(path)
    tells = mine is not None and mine != some.get(graph[path].parent)
    return _title(graph, path) + (f", {mine.name} layers" if mine is not None and tells else "")


def badge_room(badge: Badge | None) -> float:
    """The width in px that a badge takes beside a node's words."""
    return text.width(badge.letters, BADGE, bold=True) + 10 if badge is not None else 0


def _title(graph: Graph, path: str) -> str:
    count = repeats(graph, path)
    return graph[path].name + (f" × {count}" if count else "")


def repeats(graph: Graph, path: str) -> int:
    """How often a component stands in a row; 0 if once."""
    node = graph[path].node if path else None
    return graph.architecture.sizes[node.repeat] if isinstance(node, Component) and node.repeat else 0


def short_shape(graph: Graph, path: str, view: View) -> tuple[Extent, ...]:
    """A shape without its batch axis, which every tensor of a pass has."""
    shape = graph[path].shape[view] or ()
    return tuple(extent for extent in shape if extent.axis != "batch") or shape


def _glyph(graph: Graph, level: Level, item: Item, style: Style) -> Glyph:
    resolved = graph[item.path]
    node = resolved.node
    if item.sum:
        return Glyph(item, "sum", 20, 20)
    badge = badges(graph)[item.layers.name] if item.layers is not None and not style.sketch else None
    beside = badge_room(badge)
    if isinstance(node, Operation):
        lines = text.broken(node.name, NAME, style.widest)
        wide = max(text.width(line, NAME) for line in lines)
        return Glyph(item, "operation", _even(wide + 18 + beside), 9 + LINE * len(lines), lines=lines, badge=badge)
    if isinstance(node, Component):
        return _component(graph, item, style, badge)
    if style.sketch:
        return Glyph(item, "tensor", DOT, DOT)
    if isinstance(node, Parameter):
        wide = text.symbol_width(resolved.symbol, SYMBOL) + 14 + beside
        return Glyph(item, "parameter", _even(wide), 18, symbol=resolved.symbol, badge=badge)
    shape = short_shape(graph, item.path, level.view)
    wide = text.symbol_width(resolved.symbol, SYMBOL) + (text.shape_width(shape, SHAPE) + 6 if shape else 0)
    high = 21.0
    lines = ()
    if style.named:
        lines, high = (resolved.name,), 33.0
        wide = max(wide, text.width(resolved.name, TENSOR_NAME))
    if isinstance(node, Cache):
        written, read = _rows(graph, level, item.path)
        if written is not None and read is not None:
            high += 24
            words = text.width("write , read ", SMALL) + text.shape_width((written, read), SMALL)
            wide = max(wide, words, 62)
        return Glyph(item, "cache", _even(wide + 14 + beside), high + LID, lines=lines, symbol=resolved.symbol,
                     shape=shape, written=written, read=read, badge=badge)  # fmt: skip
    wide += 14 + beside
    return Glyph(item, "tensor", _even(wide), high, lines=lines, symbol=resolved.symbol, shape=shape, badge=badge)


def _component(graph: Graph, item: Item, style: Style, badge: Badge | None) -> Glyph:
    count = repeats(graph, item.path)
    name = graph[item.path].name if style.sketch else _title(graph, item.path)
    lines = text.broken(name, NAME, style.widest, bold=True)
    opens = style.toggles and not item.outside
    wide = max(text.width(line, NAME, bold=True) for line in lines) + 18 + (TOGGLE if opens else 0)
    wide += badge_room(badge)
    pile = PILE if count else 0
    return Glyph(item, "component", _even(wide) + 2 * pile, 11 + LINE * len(lines) + pile,
                 lines=lines, repeat=count, opens=opens, badge=badge)  # fmt: skip


def _rows(graph: Graph, level: Level, path: str) -> tuple[Extent | None, Extent | None]:
    """How many rows of a cache this pass writes and reads: None if it has no axis that grows with the input."""
    axes, cache, maker = graph.axes, graph[path], graph.producer(path)
    growing = [e for e in cache.shape[level.view] or () if e.axis != "batch" and axes[e.axis].running is not None]
    if maker is None or not growing:
        return None, None
    own = {extent.axis for extent in cache.shape[level.view] or ()}
    for source in maker.inputs:
        if isinstance(graph[source].node, Tensor):
            for extent in graph[source].shape[level.view] or ():
                if extent.axis not in own and axes[extent.axis].running is not None:
                    return extent, growing[0]
    return None, None


def _even(size: float) -> float:
    """A whole, even number of px: centres then fall on whole ones, and straight lines stay sharp."""
    return 2 * -(-size // 2)


def _tails(level: Level, glyphs: Mapping[str, Glyph]) -> dict[str, list[str]]:
    """For each operation or component, the one tensor that it makes, or all of them where they go the same ways."""
    found = {}
    for path, glyph in glyphs.items():
        if glyph.kind in ("operation", "sum", "component"):
            made = level.targets(path)
            ways = {tuple(sorted(_ways(level, tensor))) for tensor in made}
            if len(ways) == 1 and all(
                glyphs[tensor].kind in ("tensor", "cache")
                and glyphs[tensor].item.inside == glyph.item.inside
                and glyphs[tensor].item.outside == glyph.item.outside
                and level.sources(tensor) == [path]
                for tensor in made
            ):
                found[path] = made
    return found


def _ways(level: Level, path: str) -> list[tuple[str, bool]]:
    """Where an item goes, and whether it only lends itself there."""
    return [(link.target, link.lends) for link in level.links if link.source == path]


def _own_parameters(level: Level, glyphs: Mapping[str, Glyph]) -> dict[str, list[str]]:
    """For each operation, the parameters that it alone uses."""
    found: dict[str, list[str]] = {}
    for path, glyph in glyphs.items():
        users = level.targets(path)
        if glyph.kind == "parameter" and len(users) == 1 and not level.sources(path):
            user = glyphs[users[0]]
            if user.kind == "operation" and user.item.inside == glyph.item.inside and not glyph.item.outside:
                found.setdefault(users[0], []).append(path)
    return found


def _side_inputs(level: Level, glyphs: Mapping[str, Glyph]) -> dict[str, list[str]]:
    """Tensors from outside that flow into just the same items: for the first of each such set, the others."""
    sets: dict[tuple[tuple[str, bool], ...], list[str]] = {}
    for path, glyph in glyphs.items():
        if glyph.kind == "tensor" and glyph.item.outside and not level.sources(path) and path not in level.stream:
            sets.setdefault(tuple(sorted(_ways(level, path))), []).append(path)
    return {paths[0]: paths[1:] for paths in sets.values() if len(paths) > 1}


def _piled(glyphs: list[Glyph]) -> Cell:
    """One cell of tensors one below the other, from which lines leave together."""
    width = max(glyph.width for glyph in glyphs)
    placed, y = [], 0.0
    for glyph in glyphs:
        placed.append(replace(glyph, x=(width - glyph.width) / 2, y=y))
        y += glyph.height + PILE_GAP
    return Cell(tuple(placed), placed[0], placed[-1], width, y - PILE_GAP)


def _stacked(head: Glyph, params: list[Glyph], tails: list[Glyph], level: Level) -> Cell:
    """One cell: parameters to the right and left of the lines that come in, the head below, the tails under it."""
    own = {param.path for param in params}
    lines = sum(1 for source in level.sources(head.path) if source not in own)
    clear = max(0, lines - 1) * IN_GAP + 8 if lines else 0
    right, left = params[::2], params[1::2]
    # The line from each parameter is upright: the head reaches below the middle of the outermost.
    outermost = [(right, right[-1]), (left, left[0])] if left else [(right, right[-1])] if right else []
    reach = max((clear + _row(side) - param.width / 2 for side, param in outermost), default=0)
    head = replace(head, width=max(head.width, _even(2 * reach + STEM)))
    half = max(
        head.width / 2,
        max((tail.width / 2 for tail in tails), default=0),
        clear + _row(right) if right else 0,
        clear + _row(left) if left else 0,
    )
    top = max((param.height for param in params), default=-STEM) + STEM
    placed = [*_beside(right, half + clear), *_beside(left, half - clear - _row(left))]
    head = replace(head, x=half - head.width / 2, y=top)
    height = top + head.height
    stack, gap = [head], STEM
    for tail in tails:
        stack.append(replace(tail, x=half - tail.width / 2, y=height + gap))
        height += gap + tail.height
        gap = PILE_GAP
    return Cell((*placed, *stack), head, stack[-1], 2 * half, height)


def _row(params: Iterable[Glyph]) -> float:
    widths = [param.width for param in params]
    return sum(widths) + 4 * max(0, len(widths) - 1)


def _beside(params: Iterable[Glyph], x: float) -> Iterable[Glyph]:
    for param in params:
        yield replace(param, x=x)
        x += param.width + 4
