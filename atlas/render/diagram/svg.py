"""A laid-out diagram as SVG: shapes, lines and words, with classes for the style sheet and no style of its own.

Each node is a group with `data-node` inside a link to its page; each line says with `data-from` and `data-to`
what it joins. The order of the markup is that of data flow, so a keyboard walks the way data does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape

from atlas.graph.axes import VIEW_NAMES, Extent, View, in_words
from atlas.graph.resolve import Graph
from atlas.render import equations
from atlas.render.diagram.belonging import badges
from atlas.render.diagram.cells import NAME, PILE, Glyph, frame_title, repeats
from atlas.render.diagram.elk import FRAME_HEAD, Point
from atlas.render.diagram.layout import Frame, Layout, Line
from atlas.render.diagram.shapes import line_of_text, node, number, rectangle, shape

Href = Callable[[str], str]
Toggle = Callable[[str], str]

_CORNER = 5.0
_TIP = 4.5


@dataclass(frozen=True)
class Picture:
    """A layout with all markup that does not depend on the page it stands on: shapes, lines and words by their own."""

    layout: Layout
    label: str
    shapes: Mapping[str, str]
    words: Mapping[str, str]
    lines: tuple[tuple[Line, str], ...]
    patterns: Mapping[str, int]
    marks: str


def picture(graph: Graph, layout: Layout, root: str, view: View) -> Picture:
    """Prepare the drawing of a layout."""
    return Picture(
        layout=layout,
        label=escape(_label(graph, root, view)),
        shapes={path: shape(glyph) for path, glyph in layout.glyphs.items()},
        words={path: escape(_title(graph, glyph, view)) for path, glyph in layout.glyphs.items()},
        lines=tuple((line, _drawn(line)) for line in sorted(layout.lines, key=lambda line: line.stream)),
        patterns={name: badge.pattern % 2 for name, badge in badges(graph).items()},
        marks="".join([*map(_stub, layout.stubs), *(_return(graph, line) for line in layout.returns)]),
    )


def draw(graph: Graph, drawn: Picture, *, current: str | None, link: Href, toggle: Toggle | None) -> str:
    """The whole diagram with its links. `toggle` gives the address at which a component is opened or closed."""
    layout = drawn.layout
    near = {
        other for line in layout.lines for other in (line.source, line.target) if current in (line.source, line.target)
    }
    near.discard(current or "")
    wide, high = number(layout.width), number(layout.height)
    parts = [
        f'<svg class="diagram-svg" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
        f'height="{high}" role="group" aria-roledescription="diagram" aria-label="{drawn.label}">'
    ]
    parts += [f'<g class="frame">{_around(frame)}</g>' for frame in layout.frames]
    parts += _lines(drawn, current)
    parts += [_heading(graph, frame, link, toggle) for frame in layout.frames]
    for path, glyph in layout.glyphs.items():
        state = [name for name, holds in (
            ("stream", path in layout.stream), ("outside", glyph.item.outside),
            ("current", path == current), ("near", path in near),
        ) if holds]  # fmt: skip
        here = ' aria-current="page"' if path == current else ""
        words = drawn.words[path]
        parts.append(
            f'<a class="node-link" href="{escape(link(path))}" aria-label="{words}"{here}>'
            f"<title>{words}</title>{node(glyph, state, drawn.shapes[path])}</a>"
        )
        if glyph.opens and toggle is not None:
            right, middle = glyph.x + glyph.width, glyph.y + glyph.height / 2
            if glyph.repeat:
                right, middle = right - PILE, middle - PILE / 2
            parts.append(_toggle(toggle(path), path, f"Open {graph[path].name} here", right, middle, "+"))
    return "".join([*parts, "</svg>"])


def draw_preview(drawn: Picture, width: float, height: float) -> str:
    """A small picture of a diagram, without links: one image to a screen reader."""
    layout = drawn.layout
    scale = max(1.0, layout.width / width, layout.height / height)
    wide, high = width * scale, height * scale
    box = f"{number((layout.width - wide) / 2)} {number((layout.height - high) / 2)} {number(wide)} {number(high)}"
    parts = [
        f'<svg class="diagram-svg preview" xmlns="http://www.w3.org/2000/svg" viewBox="{box}" '
        f'width="{number(width)}" height="{number(height)}" role="img" aria-label="{drawn.label}">'
    ]
    parts += _lines(drawn, None)
    for path, glyph in layout.glyphs.items():
        parts.append(node(glyph, ["stream"] if path in layout.stream else [], drawn.shapes[path]))
    return "".join([*parts, "</svg>"])


def _label(graph: Graph, root: str, view: View) -> str:
    name = graph[root].name if root else graph.architecture.name
    return f"{name}: what flows where, {VIEW_NAMES[view].lower()}"


def _title(graph: Graph, glyph: Glyph, view: View) -> str:
    """What a pointer that rests, or a screen reader, is told: `Queries Q, tensor [B batch, T positions, ...]`."""
    resolved = graph[glyph.path]
    words = resolved.name
    if resolved.symbol:
        words += f" {equations.text(resolved.symbol)}"
    words += f", {'sum' if glyph.kind == 'sum' else glyph.kind}"
    extents = resolved.shape[view]
    if extents:
        words += f" {in_words(extents)}"
    if glyph.written is not None and glyph.read is not None:
        words += f"; this pass writes {_plain(glyph.written)} and reads {_plain(glyph.read)}"
    if glyph.repeat:
        words += f", {glyph.repeat} times"
    if glyph.badge is not None:
        words += f"; only in {glyph.badge.layers.words}"
    return words


def _plain(extent: Extent) -> str:
    return f"{extent.size if extent.size is not None else equations.text(extent.symbol)} {extent.words}"


# --- lines


def _lines(drawn: Picture, current: str | None) -> list[str]:
    """All lines: the stream over the others, and last those of the current node."""
    parts: list[str] = []
    last: list[str] = []
    for line, path in drawn.lines:
        near = current in (line.source, line.target)
        classes = " ".join(
            name
            for name, holds in (("flow", True), ("stream", line.stream), ("lends", line.lends), ("near", near))
            if holds
        )
        if line.layers is not None:
            classes += f" some pattern-{drawn.patterns[line.layers.name]}"
        ends = f'data-from="{escape(line.source)}" data-to="{escape(line.target)}"'
        (last if near else parts).append(f'<g class="{classes}" {ends}>{path}</g>')
    return [*parts, *last, drawn.marks]


def _drawn(line: Line) -> str:
    points = _shortened(line.points) if line.tip else line.points
    tip = f'<path class="tip" d="{_tip(line.points)}"/>' if line.tip else ""
    some = f"<title>Only in {escape(line.layers.words)}</title>" if line.layers is not None else ""
    return f'{some}<path class="line" d="{_way(points)}"/>{tip}'


def _stub(line: Line) -> str:
    return f'<path class="line beyond" d="{_way(line.points)}"/>'


def _return(graph: Graph, line: Line) -> str:
    """The line from the end of a repeated component back to its start, and how often it is gone."""
    count = repeats(graph, graph[line.source].parent)
    (x, low), (_, high) = line.points[1:3]
    words = line_of_text("count", x, (low + high) / 2, NAME, f"×{count}") if count else ""
    return (
        f'<g class="return" data-from="{escape(line.source)}" data-to="{escape(line.target)}">'
        f"<title>The next layer starts from what this one hands on</title>"
        f'<path class="line" d="{_way(_shortened(line.points))}"/><path class="tip" d="{_tip(line.points)}"/>'
        f"{words}</g>"
    )


def _way(points: tuple[Point, ...]) -> str:
    """A path along points, its corners rounded."""
    way = [f"M{_at(points[0])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(_CORNER, _distance(before, corner) / 2, _distance(corner, after) / 2)
        way.append(f"L{_at(_toward(corner, before, radius))}Q{_at(corner)} {_at(_toward(corner, after, radius))}")
    return "".join([*way, f"L{_at(points[-1])}"])


def _tip(points: tuple[Point, ...]) -> str:
    (x0, y0), (x, y) = points[-2], points[-1]
    along = _distance((x0, y0), (x, y)) or 1
    dx, dy = (x - x0) / along, (y - y0) / along
    back = (x - dx * 1.6 * _TIP, y - dy * 1.6 * _TIP)
    side = _TIP * 0.72
    left, right = (back[0] - dy * side, back[1] + dx * side), (back[0] + dy * side, back[1] - dx * side)
    return f"M{_at((x, y))}L{_at(left)}L{_at(right)}Z"


def _shortened(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Without the last few px, which the tip covers."""
    reach = min(_TIP, _distance(points[-2], points[-1]))
    return (*points[:-1], _toward(points[-1], points[-2], reach))


def _distance(a: Point, b: Point) -> float:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])  # lines run along the axes


def _toward(start: Point, end: Point, way: float) -> Point:
    length = _distance(start, end) or 1
    return (start[0] + (end[0] - start[0]) * way / length, start[1] + (end[1] - start[1]) * way / length)


def _at(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"


# --- opened components


def _around(frame: Frame) -> str:
    box = frame.box
    return rectangle(box.x, box.y, box.width, box.height, 7)


def _heading(graph: Graph, frame: Frame, link: Href, toggle: Toggle | None) -> str:
    """The title of an opened component, which leads to its page, and the sign that closes it."""
    right, middle = frame.box.x + frame.box.width, frame.box.y + FRAME_HEAD / 2
    words = line_of_text("name", frame.title, middle, NAME, escape(frame_title(graph, frame.path)), "start")
    close = ""
    if toggle is not None:
        close = _toggle(toggle(frame.path), frame.path, f"Close {graph[frame.path].name}", right, middle, "−")
    return (
        f'<a class="node-link" href="{escape(link(frame.path))}">'
        f'<g class="node component opened" data-node="{escape(frame.path)}">{words}</g></a>{close}'
    )


def _toggle(href: str, path: str, name: str, right: float, y: float, sign: str) -> str:
    """A sign at the right end of a component, with a target large enough for a finger."""
    x = right - 12
    upright = f"M{number(x)} {number(y - 4)}v8" if sign == "+" else ""
    return (
        f'<a class="toggle" href="{escape(href)}" data-toggle="{escape(path)}" aria-label="{escape(name)}">'
        f"<title>{escape(name)}</title>"
        f"{rectangle(x - 11, y - 12, 24, 24, 4, 'target')}"
        f'<path class="sign" d="M{number(x - 4)} {number(y)}h8{upright}"/></a>'
    )
