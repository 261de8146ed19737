"""Declared text as HTML: paragraphs with TeX, emphasis and code, and TeX with its lights.

Owns the small markup of declarations (`$tex$`, `*emphasis*`, `` `code` ``, blank lines between paragraphs). All
else is escaped. Knows nothing of pages.
"""

from __future__ import annotations

import re
from functools import lru_cache

from markupsafe import Markup, escape

from atlas.graph.axes import Extent
from atlas.graph.resolve import Graph
from atlas.render import equations

_MARKS = re.compile(r"\$(?P<tex>[^$]+)\$|`(?P<code>[^`]+)`|\*(?P<stress>\S(?:[^*]*\S)?)\*")
_LIT = re.compile(r'data-node="([^"]+)"')


def inline(text: str) -> Markup:
    """One paragraph's markup, without the paragraph."""
    done: list[Markup] = []
    last = 0
    for match in _MARKS.finditer(text):
        done.append(escape(text[last : match.start()]))
        if match["tex"] is not None:
            done.append(Markup(equations.render(match["tex"])))
        elif match["code"] is not None:
            done.append(Markup("<code>{}</code>").format(match["code"]))
        else:
            done.append(Markup("<em>{}</em>").format(match["stress"]))
        last = match.end()
    done.append(escape(text[last:]))
    return Markup("").join(done)


def plain(text: str) -> str:
    """One line without markup, for titles and descriptions."""
    return _MARKS.sub(lambda match: match["tex"] or match["code"] or match["stress"], text)


def paragraphs(text: str) -> Markup:
    """Each paragraph in a `<p>`."""
    parts = [part.strip() for part in text.split("\n\n") if part.strip()]
    return Markup("").join(Markup("<p>{}</p>").format(inline(part)) for part in parts)


def symbol(tex: str) -> Markup:
    """A symbol, set by KaTeX; nothing where there is none."""
    return Markup(equations.render(tex)) if tex else Markup("")


@lru_cache(maxsize=1024)
def light_symbol(tex: str) -> Markup:
    """A short symbol in text, its scripts as `<sub>` and `<sup>`: for shapes, where KaTeX would be heavy."""
    tags = {"base": "{}", "sub": "<sub>{}</sub>", "sup": "<sup>{}</sup>"}
    runs = equations.tspans(tex)
    return Markup("").join(Markup(tags[level]).format(piece) for piece, level in runs)


def equation(tex: str, graph: Graph, current: str = "", *, display: bool = True) -> Markup:
    """An equation with its lights. Each says what kind of node it stands for, and whether it is the page's own."""

    def role(match: re.Match[str]) -> str:
        node = graph.nodes[match[1]]
        this = ' data-this=""' if node.path == current else ""
        return f'{match[0]} data-kind="{node.kind}"{this}'

    return Markup(_LIT.sub(role, equations.render(tex, display=display)))


def shape_words(shape: tuple[Extent, ...]) -> Markup:
    """A shape in words, `[B batch, 32 q heads, T queries, T keys]`, each axis with its light."""
    axes = []
    for extent in shape:
        size = escape(f"{extent.size}") if extent.size is not None else light_symbol(extent.symbol)
        axes.append(Markup('<span class="axis" data-axis="{}">{} {}</span>').format(extent.axis, size, extent.words))
    return Markup("[{}]").format(Markup(", ").join(axes))
