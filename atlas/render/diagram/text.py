"""Text of a diagram: how wide it is, where a long name is broken, and its markup.

Layout needs widths before any browser has drawn a letter. The table holds those of Helvetica, which are Arial's
and Liberation Sans's too; the style sheet asks for these fonts. A symbol is set in the equations' italics, for
which an upper bound is enough.
"""

from __future__ import annotations

from html import escape

from atlas.graph.axes import Extent
from atlas.render import equations

_UNKNOWN = 667
_WIDTHS = {
    letter: width
    for letters, width in (
        ("'", 191),
        ("ijl", 222),
        ("|", 260),
        (" !,./:;I[\\]ft", 278),
        ('"', 355),
        ("()-`r{}·", 333),
        ("*", 389),
        ("^", 469),
        ("Jcksvxyz", 500),
        ("#$0123456789?L_abdeghnopqu", 556),
        ("+<=>~×−", 584),
        ("FTZ", 611),
        ("&ABEKPSVXY", 667),
        ("CDHNRUw", 722),
        ("GOQ", 778),
        ("Mm", 833),
        ("%", 889),
        ("W", 944),
        ("@…", 1015),
    )
    for letter in letters
}
_SYMBOL_WIDTHS = dict.fromkeys("ijlIrtfscez()[],.;:'′|", 400) | dict.fromkeys("MWmwΔΣ", 920)
_SCRIPT = 0.72


def width(text: str, size: float, *, bold: bool = False) -> float:
    """The width in px of interface text at a font size in px."""
    units = sum(_WIDTHS.get(letter, _UNKNOWN) for letter in text)
    return units * size * (1.08 if bold else 1.02) / 1000


def symbol_width(tex: str, size: float) -> float:
    """The width in px of a symbol, at most. Raises EquationError."""
    return (
        sum(
            sum(_SYMBOL_WIDTHS.get(letter, 660) for letter in run) * size * (1 if level == "base" else _SCRIPT)
            for run, level in equations.tspans(tex)
        )
        / 1000
    )


def broken(text: str, size: float, most: float, *, bold: bool = False) -> tuple[str, ...]:
    """A name on as few lines as keep it within `most` px if words allow, the widest as narrow as can be."""
    words = text.split()
    for count in range(1, len(words) + 1):
        best = min(_splits(words, count), key=lambda lines: max(width(line, size, bold=bold) for line in lines))
        if max(width(line, size, bold=bold) for line in best) <= most:
            return best
    return best if words else ("",)


def _splits(words: list[str], count: int) -> list[tuple[str, ...]]:
    if count == 1:
        return [(" ".join(words),)]
    return [
        (" ".join(words[:first]), *rest)
        for first in range(1, len(words) - count + 2)
        for rest in _splits(words[first:], count - 1)
    ]


def shape_width(shape: tuple[Extent, ...], size: float) -> float:
    """The width in px of a printed shape."""
    sizes = sum(_extent_width(extent, size) for extent in shape)
    return sizes + max(0, len(shape) - 1) * width("×", size)


def shape_markup(shape: tuple[Extent, ...]) -> str:
    """`T×32×128` as <tspan> elements, each with its axis, to stand inside a <text>."""
    return "×".join(f'<tspan data-axis="{escape(extent.axis)}">{_extent(extent)}</tspan>' for extent in shape)


def _extent(extent: Extent) -> str:
    return str(extent.size) if extent.size is not None else equations.svg_label(extent.symbol)


def _extent_width(extent: Extent, size: float) -> float:
    if extent.size is not None:
        return width(str(extent.size), size)
    return sum(width(run, size * (1 if level == "base" else _SCRIPT)) for run, level in equations.tspans(extent.symbol))
