"""Where everything goes, in px: glyphs, lines, frames, and what is drawn along the stream.

Owns the choice of style (with or without names, wide or narrow) and that the order from left to right is the
same in every view. ELK does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from atlas.graph.axes import VIEWS, View
from atlas.graph.nodes import Layers
from atlas.graph.resolve import Graph
from atlas.render.diagram import text
from atlas.render.diagram.cells import NAME, TOGGLE, Glyph, Style, cells, frame_title
from atlas.render.diagram.elk import FRAME_HEAD, LAYER_GAP, RETURN_LANE, STUB, Answer, Box, Point, solve
from atlas.render.diagram.levels import Link, level, sketch
from atlas.render.diagram.nest import Nest

ROOM_WIDTH, ROOM_HEIGHT = 320.0, 760.0
"""Size in px of the column in which a diagram stands on a laptop."""
GOOD_FIT = 0.88
"""The scale at which small text can still be read well."""
SMALL_STEP = 7.0
TITLE_CLEAR = 8.0
"""Space in px left and right of an opened component's title."""


@dataclass(frozen=True)
class Line:
    """One drawn link: where it bends, and its ends. `tip` is whether it ends in an arrow's tip.

    `layers` are those in which it flows, where that is not all and its ends do not both say it.
    """

    source: str
    target: str
    points: tuple[Point, ...]
    lends: bool = False
    stream: bool = False
    tip: bool = True
    layers: Layers | None = None


@dataclass(frozen=True)
class Frame:
    """The box around an opened component. `title` is the x at which its title starts, clear of lines."""

    path: str
    box: Box
    title: float


@dataclass(frozen=True)
class Layout:
    """A diagram with places, in px from its upper left corner.

    `returns` lead from the end of a repeated component's stream back to its start; `stubs` are pieces of stream
    that come from beyond the diagram or go on; `stream` are the items of the stream.
    """

    width: float
    height: float
    glyphs: Mapping[str, Glyph]
    frames: tuple[Frame, ...]
    lines: tuple[Line, ...]
    returns: tuple[Line, ...]
    stubs: tuple[Line, ...]
    stream: frozenset[str]


@lru_cache(maxsize=512)
def lay_out(graph: Graph, root: str, view: View, opened: frozenset[str], toggles: bool) -> Layout:
    """Place the diagram of a component. Raises NotFound where it is none, and JavaScriptError."""
    shown = level(graph, root, view, opened)
    style, order = _arrangement(graph, root, opened, toggles)
    nest = Nest(shown, cells(graph, shown, style))
    titles = _titles(graph, nest)
    return _placed(nest, titles, solve(nest, style, titles, order))


def lay_out_sketch(graph: Graph, root: str, view: View) -> Layout:
    """Place the sketch of a component, for a preview. Raises NotFound and JavaScriptError."""
    style = Style(sketch=True)
    shown = sketch(graph, root, view)
    nest = Nest(shown, cells(graph, shown, style))
    return _placed(nest, {}, solve(nest, style, {}))


@lru_cache(maxsize=256)
def _arrangement(graph: Graph, root: str, opened: frozenset[str], toggles: bool) -> tuple[Style, Mapping[str, float]]:
    """How to draw a component, and the order of things from left to right: the same in every view.

    They are found in the view that has most. The first style that fits a column is taken, or the one that has to
    be scaled down least. What cannot fit, by the height of its longest chain alone, is not even tried.
    """
    most = max((level(graph, root, view, opened) for view in VIEWS), key=lambda level: len(level.items))
    tried: list[tuple[float, Nest, Style]] = []
    for named, narrow in ((True, False), (True, True), (False, True), (False, False)):
        style = Style(named, narrow, toggles)
        nest = Nest(most, cells(graph, most, style))
        tried.append((_fit(0, nest.longest_chain(LAYER_GAP)), nest, style))
    best, chosen, boxes = 0.0, tried[0][2], dict[str, Box]()
    for bound, nest, style in sorted(tried, key=lambda one: -min(one[0], GOOD_FIT)):
        if bound > best and best < GOOD_FIT:
            found = solve(nest, style, _titles(graph, nest)).boxes
            fit = _fit(found[root].width, found[root].height)
            if fit > best:
                best, chosen, boxes = fit, style, {**found}
    return chosen, {path: box.x + box.width / 2 for path, box in boxes.items()}


def _fit(width: float, height: float) -> float:
    """How much a diagram of this size must be scaled down to be seen whole in a column; 1 if it need not."""
    return min(1, ROOM_WIDTH / max(width, 1), ROOM_HEIGHT / max(height, 1))


def _titles(graph: Graph, nest: Nest) -> dict[str, float]:
    return {path: text.width(frame_title(graph, path), NAME, bold=True) for path in nest.opened}


# --- from places of cells to places of glyphs


def _placed(nest: Nest, titles: Mapping[str, float], answer: Answer) -> Layout:
    shown = nest.level
    found: dict[str, Glyph] = {}
    for cell in nest.cells.values():
        box = answer.boxes[cell.id]
        for glyph in cell.glyphs:
            found[glyph.path] = replace(glyph, x=_round(box.x + glyph.x), y=_round(box.y + glyph.y))
    glyphs = {path: found[path] for path in shown.items if path in found}
    lines = tuple(_line(link, nest, glyphs, answer.routes.get((link.source, link.target))) for link in shown.links)
    whole = answer.boxes[shown.root]
    return Layout(
        width=_round(whole.width),
        height=_round(whole.height),
        glyphs=glyphs,
        frames=tuple(_frame(path, answer.boxes[path], titles[path], lines) for path in nest.opened),
        lines=lines,
        returns=tuple(_return(glyphs[last], glyphs[first]) for last, first in shown.returns),
        stubs=(
            *(_stub(glyphs[path], up=True) for path in shown.comes if path in glyphs),
            *(_stub(glyphs[path], up=False) for path in shown.goes if path in glyphs),
        ),
        stream=shown.stream,
    )


def _line(link: Link, nest: Nest, glyphs: Mapping[str, Glyph], route: Sequence[Point] | None) -> Line:
    """A line between cells, from glyph to glyph; or the short one between two glyphs of one cell."""
    source, target = glyphs[link.source], glyphs[link.target]
    layers = None if source.item.layers == target.item.layers == link.layers else link.layers
    if route is None:
        x, start = source.centre, source.y + source.height
        if source.kind != "parameter":  # of several tails one below the other, each hangs from the one above it
            x = target.centre
            cell = (glyphs[glyph.path] for glyph in nest.cell_of[link.source].glyphs)
            start = max(glyph.y + glyph.height for glyph in cell if glyph.y < target.y)
        points = ((x, start), (x, target.y))
        return Line(link.source, link.target, points, link.lends, link.stream, tip=False, layers=layers)
    bends = _straight([(_round(x), _round(y)) for x, y in route])
    _smooth(bends, [glyph for path, glyph in glyphs.items() if path not in (link.source, link.target)])
    tail = glyphs[nest.cell_of[link.source].tail.path]
    ends = (_end(bends[1], bends[0], tail), *bends[1:-1], _end(bends[-2], bends[-1], target))
    return Line(link.source, link.target, ends, link.lends, link.stream, tip=not link.stream, layers=layers)


def _end(inner: Point, end: Point, glyph: Glyph) -> Point:
    """The end of a line, carried on from its cell's border to the glyph itself."""
    if inner[0] == end[0]:
        return (end[0], glyph.y if end[1] > inner[1] else glyph.y + glyph.height)
    return (glyph.x + glyph.width, end[1])


def _straight(points: Sequence[Point]) -> list[Point]:
    """Without repeated points, and without those in the middle of a straight piece."""
    kept: list[Point] = []
    for point in points:
        if len(kept) > 1 and any(kept[-2][axis] == kept[-1][axis] == point[axis] for axis in (0, 1)):
            kept.pop()
        if not kept or kept[-1] != point:
            kept.append(point)
    return kept


def _smooth(points: list[Point], others: Sequence[Glyph]) -> None:
    """Take out a small step in a level piece of a line, such as ELK leaves where the line enters a frame."""
    for at in range(1, len(points) - 3):
        (left, y), (right, _), (x, after), (_, end) = points[at : at + 4]
        if points[at + 1][1] == y and right == x and after == end and 0 < abs(after - y) <= SMALL_STEP:
            low, high = sorted((left, right))
            free = not any(
                glyph.x - SMALL_STEP < high
                and low < glyph.x + glyph.width + SMALL_STEP
                and glyph.y - SMALL_STEP < after < glyph.y + glyph.height + SMALL_STEP
                for glyph in others
            )
            if free:
                points[at : at + 3] = [(left, after)]
                return


def _stub(glyph: Glyph, *, up: bool) -> Line:
    """A short piece of the stream above or below an item."""
    start = glyph.y if up else glyph.y + glyph.height
    end = start - STUB if up else start + STUB
    return Line(glyph.path, glyph.path, ((glyph.centre, start), (glyph.centre, end)), stream=True, tip=False)


def _return(last: Glyph, first: Glyph) -> Line:
    x = min(last.x, first.x) - RETURN_LANE + 8
    low, high = last.y + last.height / 2, first.y + first.height / 2
    return Line(last.path, first.path, ((last.x, low), (x, low), (x, high), (first.x, high)))


def _frame(path: str, box: Box, title: float, lines: Sequence[Line]) -> Frame:
    """A frame whose title stands in the first gap between lines that is wide enough, or in the widest."""
    box = Box(*(_round(value) for value in (box.x, box.y, box.width, box.height)))
    right = box.x + box.width
    crossing = {
        start[0]
        for line in lines
        for start, end in pairwise(line.points)
        if start[0] == end[0] and min(start[1], end[1]) < box.y + FRAME_HEAD and max(start[1], end[1]) > box.y
    }
    walls = sorted([box.x + 2, *(x for x in crossing if box.x < x < right), right - TOGGLE - 6])
    gaps = list(pairwise(walls))
    wide = title + 2 * TITLE_CLEAR
    left, _ = next((gap for gap in gaps if gap[1] - gap[0] >= wide), max(gaps, key=lambda gap: gap[1] - gap[0]))
    return Frame(path, box, left + TITLE_CLEAR)


def _round(value: float) -> float:
    """To half px: lines stay sharp, and the same everywhere."""
    return round(value * 2) / 2
