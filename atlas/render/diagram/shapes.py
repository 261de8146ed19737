"""One drawn node as SVG: its shape by its kind, its words inside. Knows nothing of links, states or lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape

from atlas.render import equations
from atlas.render.diagram.cells import (
    BADGE,
    LID,
    LINE,
    NAME,
    PILE,
    SHAPE,
    SMALL,
    SYMBOL,
    TENSOR_NAME,
    TOGGLE,
    Glyph,
    badge_room,
)
from atlas.render.diagram.text import shape_markup

_ROWS = 9
"""How many rows of a cache are drawn, whatever there are."""


def number(value: float) -> str:
    """A length as SVG writes it: `12`, `12.5`."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def shape(glyph: Glyph) -> str:
    """A node's shape and words, and the badge of its layers."""
    return _SHAPES[glyph.kind](glyph) + _badge(glyph)


def node(glyph: Glyph, state: Iterable[str], inside: str) -> str:
    """The group that stands for a node, with its kind and state as classes, around its shape."""
    return f'<g class="{" ".join(["node", glyph.kind, *state])}" data-node="{escape(glyph.path)}">{inside}</g>'


def rectangle(x: float, y: float, width: float, height: float, radius: float, name: str = "shape") -> str:
    """A <rect> with a class, its corners rounded."""
    round_ = f' rx="{number(radius)}"' if radius else ""
    return (
        f'<rect class="{name}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
        f'height="{number(height)}"{round_}/>'
    )


def line_of_text(name: str, x: float, middle: float, size: float, content: str, anchor: str = "middle") -> str:
    """A <text> with a class, its letters centred on the height `middle`. `content` is markup."""
    return (
        f'<text class="{name}" x="{number(x)}" y="{number(middle + 0.35 * size)}" font-size="{number(size)}" '
        f'text-anchor="{anchor}">{content}</text>'
    )


def _badge(glyph: Glyph) -> str:
    """Letters in a small box at the left, filled for every second kind of layers."""
    if glyph.badge is None:
        return ""
    wide, high = badge_room(glyph.badge) - 4, BADGE + 3
    top = LID if glyph.kind == "cache" else 0
    middle = glyph.y + top + (glyph.height - top - (PILE if glyph.repeat else 0)) / 2
    x = glyph.x + 6
    box = rectangle(x, middle - high / 2, wide, high, 2.5, "badge-box")
    words = line_of_text("badge-text", x + wide / 2, middle, BADGE, escape(glyph.badge.letters))
    return f'<g class="badge pattern-{glyph.badge.pattern % 2}">{box}{words}</g>'


def _lines(glyph: Glyph, x: float, height: float) -> str:
    first = glyph.y + height / 2 - LINE * (len(glyph.lines) - 1) / 2
    return "".join(
        line_of_text("name", x, first + LINE * number, NAME, escape(line)) for number, line in enumerate(glyph.lines)
    )


def _operation(glyph: Glyph) -> str:
    radius = min(glyph.height / 2, 13)
    return rectangle(glyph.x, glyph.y, glyph.width, glyph.height, radius) + _lines(glyph, glyph.words, glyph.height)


def _component(glyph: Glyph) -> str:
    pile = PILE if glyph.repeat else 0
    x = glyph.x + pile
    width, height = glyph.width - 2 * pile, glyph.height - pile
    behind = rectangle(x + pile, glyph.y + pile, width, height, 5, "shape behind") if pile else ""
    middle = glyph.words - (TOGGLE / 2 - 2 if glyph.opens else 0)
    return behind + rectangle(x, glyph.y, width, height, 5) + _lines(glyph, middle, height)


def _sum(glyph: Glyph) -> str:
    x, y, radius = glyph.centre, glyph.y + glyph.height / 2, glyph.width / 2
    return (
        f'<circle class="shape" cx="{number(x)}" cy="{number(y)}" r="{number(radius - 1)}"/>'
        f'<path class="plus" d="M{number(x - 5)} {number(y)}h10M{number(x)} {number(y - 5)}v10"/>'
    )


def _words(glyph: Glyph, top: float) -> str:
    """A tensor's name, if it is drawn, over its symbol and shape, from `top` down."""
    label = f'<tspan class="symbol">{equations.svg_label(glyph.symbol)}</tspan>'
    if glyph.shape:
        label += f'<tspan class="shape-text" dx="6" font-size="{number(SHAPE)}">{shape_markup(glyph.shape)}</tspan>'
    if not glyph.lines:
        return line_of_text("label", glyph.words, top + 10.5, SYMBOL, label)
    name = line_of_text("name", glyph.words, top + 9.5, TENSOR_NAME, escape(glyph.lines[0]))
    return name + line_of_text("label", glyph.words, top + 23, SYMBOL, label)


def _tensor(glyph: Glyph) -> str:
    if not glyph.symbol:
        return rectangle(glyph.x, glyph.y, glyph.width, glyph.height, glyph.height / 2)
    return rectangle(glyph.x, glyph.y, glyph.width, glyph.height, 5) + _words(glyph, glyph.y)


def _parameter(glyph: Glyph) -> str:
    return rectangle(glyph.x, glyph.y, glyph.width, glyph.height, 0) + _words(glyph, glyph.y - 1.5)


def _cache(glyph: Glyph) -> str:
    """A box with a lid, and in it the rows that this pass writes among those that it reads."""
    body = rectangle(glyph.x + 2, glyph.y + LID, glyph.width - 4, glyph.height - LID, 2)
    body += rectangle(glyph.x, glyph.y, glyph.width, LID, 2, "shape lid") + _words(glyph, glyph.y + LID)
    if glyph.written is None or glyph.read is None:
        return body
    all_new = glyph.written.symbol == glyph.read.symbol
    first, low = glyph.centre - (_ROWS * 7 - 2) / 2, glyph.y + glyph.height
    rows = "".join(
        rectangle(first + 7 * n, low - 24, 5, 7, 0, "row new" if all_new or n == _ROWS - 1 else "row")
        for n in range(_ROWS)
    )
    words = f"write {shape_markup((glyph.written,))}, read {shape_markup((glyph.read,))}"
    return body + rows + line_of_text("rows", glyph.centre, low - 8.5, SMALL, words)


_SHAPES: dict[str, Callable[[Glyph], str]] = {
    "operation": _operation,
    "component": _component,
    "sum": _sum,
    "tensor": _tensor,
    "parameter": _parameter,
    "cache": _cache,
}
