"""Diagrams: one component of a resolved graph as an accessible SVG, laid out on the server.

`component_svg` is all that a page needs. `stream` finds the residual stream, `levels` decides what is drawn,
`cells` how large it is, `nest` what stands in what, `layout` where it goes (`elk` asks ELK), `svg` writes it down.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from atlas.graph.axes import View
from atlas.graph.nodes import Component
from atlas.graph.resolve import Graph
from atlas.render.diagram.layout import lay_out, lay_out_sketch
from atlas.render.diagram.svg import Picture, draw, draw_preview, picture

PREVIEW = (220.0, 160.0)
"""Width and height in px of a preview."""


def component_svg(
    graph: Graph,
    component: str,
    *,
    view: View,
    current: str | None = None,
    link: Callable[[str], str],
    preview: bool = False,
    expanded: frozenset[str] = frozenset(),
    toggle: Callable[[frozenset[str]], str] | None = None,
) -> str:
    """The diagram of one component ('' is the whole model) in one view, as inline SVG.

    `current` is the node whose page it stands on, `link` gives a node's address. The components in `expanded`
    are drawn open, in place; `toggle` gives the address of the same page with another such set. A `preview` is
    a small picture without links. The same input gives the same bytes. Raises NotFound for what is no component,
    and JavaScriptError.
    """
    if preview:
        return _preview(graph, component or repeated_part(graph), view)
    parts = opened(graph, component, expanded)
    drawn = _picture(graph, component, view, parts, toggle is not None)
    toggled = None if toggle is None else lambda path: toggle(parts ^ {path})
    return draw(graph, drawn, current=current, link=link, toggle=toggled)


def opened(graph: Graph, component: str, expanded: frozenset[str]) -> frozenset[str]:
    """Those of `expanded` that are components and are seen in this diagram."""
    found: set[str] = set()
    for path, node in graph.nodes.items():
        if node.kind == "component" and path in expanded and (node.parent == component or node.parent in found):
            found.add(path)
    return frozenset(found)


def repeated_part(graph: Graph) -> str:
    """The outermost component that stands in the model more than once, which tells models apart; or the model."""
    for node in graph.children(""):
        if isinstance(node.node, Component) and node.node.repeat:
            return node.path
    return ""


@lru_cache(maxsize=512)
def _picture(graph: Graph, component: str, view: View, open_parts: frozenset[str], toggles: bool) -> Picture:
    return picture(graph, lay_out(graph, component, view, open_parts, toggles), component, view)


@lru_cache(maxsize=512)
def _preview(graph: Graph, component: str, view: View) -> str:
    return draw_preview(picture(graph, lay_out_sketch(graph, component, view), component, view), *PREVIEW)
