"""The place bar: breadcrumb, view switch, layer and step, neighbours. Built from the address alone."""

from __future__ import annotations

from atlas.catalog import Model
from atlas.graph.axes import VIEW_NAMES, VIEWS
from atlas.web.model_view import ModelView
from atlas.web.pieces import Link, PlaceBar, Stepper, ViewLink
from atlas.web.state import Number, State, node_href

KEYS: dict[Number, tuple[str, str]] = {"layer": ("[", "]"), "step": (",", ".")}


def place_bar(view: ModelView, path: str, state: State, live: Model | None) -> PlaceBar:
    """The bar of a model's page ('') or of a node's."""
    model, graph = view.model, view.graph
    here = f"/models/{model.id}{'/' if path else ''}{path}"
    views = tuple(
        ViewLink(
            view=name,
            text=VIEW_NAMES[name],
            href=here + state.with_(view=name, step=state.step if name == state.view else None).whole_query,
            current=name == state.view,
            key=str(number),
        )
        for number, name in enumerate(VIEWS, 1)
    )
    if not path:
        first = next(iter(graph.nodes))
        after = Link(graph[first].name, node_href(model.id, first))
        return PlaceBar((Link(model.name, node_href(model.id), True),), views, after=after)
    node = graph[path]
    around = graph.ancestors(path)
    crumbs = [Link(view.component_name(one), node_href(model.id, one.path)) for one in around]
    crumbs.append(Link(view.component_name(node) if node.kind == "component" else node.name, "", True))
    steppers = []
    if node.in_blocks and live is not None:
        steppers.append(_stepper("layer", state.layer or 0, live.architecture.sizes["layers"] - 1, here, state, 0))
    if state.view == "decode" and live is not None:
        steppers.append(_stepper("step", 1 if state.step is None else state.step, None, here, state, 1))
    before, after_path = view.neighbours(path)
    up = around[-1] if around else None
    return PlaceBar(
        crumbs=tuple(crumbs),
        views=views,
        steppers=tuple(steppers),
        up=Link(up.name, node_href(model.id, up.path)) if up is not None else Link(model.name, node_href(model.id)),
        before=Link(graph[before].name, node_href(model.id, before)) if before else None,
        after=Link(graph[after_path].name, node_href(model.id, after_path)) if after_path else None,
    )


def _stepper(name: Number, value: int, most: int | None, here: str, state: State, least: int) -> Stepper:
    down = here + state.with_(**{name: value - 1}).whole_query if value > least else ""
    up = here + state.with_(**{name: value + 1}).whole_query if most is None or value < most else ""
    return Stepper(name, value, most, down, up, KEYS[name])
