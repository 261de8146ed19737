"""TeX to markup: whole equations as HTML with MathML (KaTeX), short symbols as plain Unicode.

Owns KaTeX's settings and the plain reading of a symbol. The TeX is that of the declarations: what a reader
typed never comes here. Of the commands with effects on the page only `\\htmlData` is trusted: it carries the
light, the path of the node that a symbol stands for. Knows nothing of nodes: a path may lead nowhere.
"""

from __future__ import annotations

import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import escape
from itertools import groupby
from typing import Literal

from atlas.errors import EquationError, JavaScriptError
from atlas.render.assets import vendor_file
from atlas.render.javascript import shared

Level = Literal["base", "sub", "sup"]

# A letter with its accents, no part of a word. Greek capitals stand upright, as in TeX.
_LETTER = re.compile(r"(?<![^\W\d_])((?![Α-Ω])[^\W\d_][\u0300-\u036f\u20d7]*)(?![^\W\d_])")

# KaTeX draws a command that it does not trust in red; here it is an error, like all that is not LaTeX.
# \htmlData is not LaTeX either, but wanted.
_DRAW = r"""
(tex, displayMode, output) => katex.renderToString(tex, {
  displayMode, output, throwOnError: true,
  trust: ({ command }) => {
    if (command !== "\\htmlData") throw new Error(`${command} is not allowed`);
    return true;
  },
  strict: code => code === "htmlExtension" ? "ignore" : "error",
})
"""

_MATHML = "{http://www.w3.org/1998/Math/MathML}"

# What KaTeX writes over a letter (in MathML), and the combining mark that does the same in text.
_ACCENTS = {
    "^": "\u0302",
    "~": "\u0303",
    "ˉ": "\u0304",
    "‾": "\u0304",
    "˙": "\u0307",
    "¨": "\u0308",
    "ˇ": "\u030c",
    "→": "\u20d7",
    "⃗": "\u20d7",
}
_PRIMES = set("′″‴")
_SIGNS: dict[Level, str] = {"base": "", "sub": "_", "sup": "^"}
# Size of a level's letters, and how far below the line they stand, both in em of the line.
_SCRIPTS: dict[Level, tuple[float, float]] = {"base": (1, 0), "sub": (0.72, 0.25), "sup": (0.72, -0.4)}


@lru_cache(maxsize=4096)
def render(tex: str, *, display: bool = False, keep: bool = True) -> str:
    """`tex` as HTML to look at and MathML to be read aloud; safe to put in a page as it is.

    `\\htmlData{node=PATH}{...}` becomes `data-node="PATH"` on the symbol. It needs KaTeX's style sheet, and a
    page that allows inline style attributes. Without `keep` (an equation with the numbers of one element, say) it is
    not kept for later processes. Raises EquationError, which names the TeX.
    """
    return _katex(tex, display, "htmlAndMathml", keep)


@lru_cache(maxsize=4096)
def tspans(tex: str) -> tuple[tuple[str, Level], ...]:
    """A short symbol as runs of plain text with their level, for labels of SVG text.

    `x_{n+1}` is ("x", "base"), ("n+1", "sub"). What hangs on a script is written out in it: `x_{d_1}` has the
    subscript "d_1". Raises EquationError.
    """
    markup = _katex(tex, False, "mathml")
    # The first child of <semantics> is the formula, the second the TeX that it came from.
    formula = next(ET.fromstring(markup).iter(f"{_MATHML}semantics"))[0]
    runs = groupby(_runs(formula), key=lambda run: run[1])
    joined = [(_tidy("".join(piece for piece, _ in run)), level) for level, run in runs]
    return tuple((piece, level) for piece, level in joined if piece.strip())


def text(tex: str) -> str:
    """A short symbol as one line of plain text, for titles: `\\Delta_{\\mathrm{attn}}` is "Δ_attn".

    Raises EquationError.
    """
    return _written(tspans(tex))


def svg_label(tex: str) -> str:
    """A short symbol as <tspan> elements, to stand inside a <text> of an SVG.

    Scripts are moved with dy, relative to the font size, since not every browser knows baseline-shift. What TeX
    sets in italics, letters that stand alone, has the class "letter". Raises EquationError.
    """
    label, at = "", 0.0
    for piece, level in tspans(tex):
        size, height = _SCRIPTS[level]
        # A dy in em counts the element's own, smaller em.
        shift = f' dy="{(height - at) / size:.3g}em"' if height != at else ""
        small = f' font-size="{size:.0%}"' if size != 1 else ""
        for part in filter(None, _LETTER.split(piece)):
            letter = ' class="letter"' if _LETTER.fullmatch(part) else ""
            label += f"<tspan{letter}{shift}{small}>{escape(part)}</tspan>"
            shift = ""
        at = height
    # An empty span would not move what follows; one zero-width space does.
    return label if at == 0 else f'{label}<tspan dy="{-at:.3g}em">\u200b</tspan>'


def _katex(tex: str, display: bool, output: str, keep: bool = True) -> str:
    if not tex.strip():
        raise EquationError("An equation is empty.", "Give it TeX where it is declared, or leave it out.")
    try:
        return str(shared().ask(vendor_file("katex/katex.min.js"), _DRAW, tex, display, output, keep=keep))
    except JavaScriptError as error:
        raise EquationError(
            f"The equation {tex!r} cannot be drawn: {error.detail.rstrip('.')}.",
            "Correct its TeX where it is declared; KaTeX's list of supported functions says what it may use.",
        ) from error


# --- MathML as plain text


def _runs(element: ET.Element) -> Iterator[tuple[str, Level]]:
    """The text under one MathML element, each piece with its level."""
    parts = list(element)
    match element.tag.removeprefix(_MATHML):
        case "mi" | "mo" | "mn" | "mtext":
            yield element.text or "", "base"
        case "mspace":
            yield " ", "base"
        case "msub" | "munder":
            yield from _runs(parts[0])
            yield _line(parts[1]), "sub"
        case "mover" if (mark := _line(parts[1])) in _ACCENTS and element.get("accent") == "true":
            yield unicodedata.normalize("NFC", _line(parts[0]) + _ACCENTS[mark]), "base"
        case "msup" | "mover":
            yield from _runs(parts[0])
            yield _raised(parts[1])
        case "msubsup" | "munderover":
            yield from _runs(parts[0])
            # A prime belongs to the letter: it goes before the subscript.
            yield from sorted([(_line(parts[1]), "sub"), _raised(parts[2])], key=lambda run: run[1] != "base")
        case "mfrac":
            yield f"{_grouped(parts[0])}/{_grouped(parts[1])}", "base"
        case "msqrt":
            inner = "".join(_line(part) for part in parts)
            yield f"√{inner}" if len(inner) == 1 else f"√({inner})", "base"
        case _:  # mrow, mstyle, mpadded, mphantom and other boxes
            for part in parts:
                yield from _runs(part)


def _raised(element: ET.Element) -> tuple[str, Level]:
    line = _line(element)
    return line, "base" if set(line) <= _PRIMES else "sup"


def _line(element: ET.Element) -> str:
    """An element on one line: scripts are written out with _ and ^."""
    return _written(_runs(element)).strip()


def _written(runs: Iterable[tuple[str, Level]]) -> str:
    return _tidy("".join(_SIGNS[level] + piece for piece, level in runs))


def _grouped(element: ET.Element) -> str:
    line = _line(element)
    return line if len(line) == 1 or line.isalnum() else f"({line})"


def _tidy(run: str) -> str:
    """Without TeX's invisible operators, and with plain single spaces."""
    visible = "".join(letter for letter in run if unicodedata.category(letter) != "Cf")
    return re.sub(r"\s+", " ", visible)
