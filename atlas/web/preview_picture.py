"""The diagram of a page as a picture that stands by itself: an SVG with its own style sheet."""

from __future__ import annotations

import re
from functools import lru_cache

from atlas.errors import NotFound
from atlas.render.assets import static_dir
from atlas.render.diagram import component_svg
from atlas.web.model_view import ModelView

_ROOT = re.compile(r"<svg [^>]*>")


@lru_cache(maxsize=256)
def preview_picture(view: ModelView, path: str) -> str:
    """The component that a node is, or stands in, with the node marked; '' is the model. Raises `NotFound`."""
    node = view.graph.nodes.get(path)
    if path and node is None:
        raise NotFound(f"{view.model.name} has no node {path[:200]!r}.", "See /api/models for those that it has.")
    component = path if node is None or node.kind == "component" else node.parent
    current = None if component == path else path
    drawn = component_svg(view.graph, component, view="full", current=current, link=lambda _: "#")
    style = (static_dir() / "diagram.css").read_text("utf-8")
    ground = "svg { background: light-dark(#fbfaf7, #141519); color-scheme: light dark; }"
    root = _ROOT.match(drawn)
    at = root.end() if root else 0
    return f"{drawn[:at]}<style>{ground}\n{style}</style>{drawn[at:]}"
