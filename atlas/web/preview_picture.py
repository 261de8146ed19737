"""The diagram of a page as a picture that stands by itself: an SVG with its own style sheet, or a PNG with a title."""

from __future__ import annotations

import re
from functools import lru_cache

from atlas.errors import NotFound
from atlas.graph.axes import in_words
from atlas.render.assets import static_dir
from atlas.render.diagram import component_svg, repeated_part
from atlas.render.picture import card
from atlas.web.model_view import ModelView

KINDS = {"component": "Component", "operation": "Operation", "tensor": "Tensor", "parameter": "Parameter",
         "cache": "Cache"}  # fmt: skip
_ROOT = re.compile(r"<svg [^>]*>")


@lru_cache(maxsize=256)
def preview_picture(view: ModelView, path: str) -> str:
    """The component that a node is, or stands in, with the node marked; '' is the model. Raises `NotFound`."""
    drawn = _drawn(view, path)
    style = (static_dir() / "diagram.css").read_text("utf-8")
    ground = "svg { background: light-dark(#fbfaf7, #141519); color-scheme: light dark; }"
    root = _ROOT.match(drawn)
    at = root.end() if root else 0
    return f"{drawn[:at]}<style>{ground}\n{style}</style>{drawn[at:]}"


@lru_cache(maxsize=64)
def preview_card(view: ModelView, path: str) -> bytes:
    """The same as a PNG, with what it is in words beside it. Raises `NotFound`."""
    drawn = _drawn(view, path)
    if not path:
        return card(drawn, view.model.name, (view.model.architecture.kind, view.model.architecture.attention))
    node = view.graph[path]
    shape = node.shape["full"]
    said = (f"{KINDS[node.kind]} of {view.model.name}", node.node.description)
    return card(drawn, node.name, (*said, in_words(shape)) if shape else said)


@lru_cache(maxsize=4)
def site_card(view: ModelView, models: int) -> bytes:
    """What is shown beside links to pages that are of no model: a model's drawing, and what the atlas is."""
    said = "Each tensor with its shape, its equation, the lines of code that compute it, and live values"
    return card(_drawn(view, ""), "Look inside a language model", (f"{models} models", said))


def _drawn(view: ModelView, path: str) -> str:
    node = view.graph.nodes.get(path)
    if path and node is None:
        raise NotFound(f"{view.model.name} has no node {path[:200]!r}.", "See /api/models for those that it has.")
    component = path if node is None or node.kind == "component" else node.parent
    current = None if component == path else path
    return component_svg(view.graph, component or repeated_part(view.graph), view="full", current=current, link=str)
