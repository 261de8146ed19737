"""The diagrams of a page, kept once drawn. Owns where a drawing comes from, and what a page shows without one."""

from __future__ import annotations

import logging
from functools import lru_cache

from markupsafe import Markup

from atlas.catalog import Model
from atlas.errors import RenderError
from atlas.graph.axes import View
from atlas.render.diagram import component_svg, opened
from atlas.web.state import node_href, open_href

log = logging.getLogger(__name__)


def diagram(model: Model, component: str, view: View, page: str, parts: tuple[str, ...]) -> Markup:
    """A component as SVG ('' is the model) on the page of the node `page`, its links with slots for the state.

    Those of `parts` that are components in it are drawn open. Empty where it cannot be drawn, which is logged: the
    page has the same graph as a list.
    """
    return _drawn(model, component, view, page, opened(model.graph, component, frozenset(parts)))


@lru_cache(maxsize=512)
def _drawn(model: Model, component: str, view: View, page: str, parts: frozenset[str]) -> Markup:
    try:
        return Markup(
            component_svg(
                model.graph,
                component,
                view=view,
                current=page if page != component else None,
                link=lambda path: node_href(model.id, path),
                expanded=parts,
                toggle=lambda other: open_href(model.id, page, other),
            )
        )
    except RenderError as error:
        log.error("%s: %s cannot be drawn: %s", model.id, component or "the model", error)
        return Markup("")


@lru_cache(maxsize=256)
def preview(model: Model) -> Markup:
    """The model's small drawing for the front page, without links."""
    try:
        return Markup(component_svg(model.graph, "", view="full", link=lambda _: "", preview=True))
    except RenderError as error:
        log.error("%s: the preview cannot be drawn: %s", model.id, error)
        return Markup("")
