"""The pages that explain: how to read a page, and the API as a page."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from markupsafe import Markup, escape
from starlette.requests import Request

from atlas.graph.axes import STANDARD_AXES, VIEWS, Axis
from atlas.web import prose, walk
from atlas.web.contexts import ApiContext, AxisRow, Endpoint, GlossaryContext, HowToReadContext, WalkContext
from atlas.web.glossary import glossary
from atlas.web.readable import readable
from atlas.web.site import Site
from atlas.web.state import node_href

EXAMPLE = "blocks/attention/scale-similarities"


def how_to_read_context(site: Site, request: Request) -> HowToReadContext:
    """The views, the axes, the marks, and what is checked."""
    first = next(readable(site.catalog))
    view = site.views[first.id]
    node = view.graph.nodes.get(EXAMPLE) or next(iter(view.graph.operations))
    live = site.catalog[site.backend.live_model].name if site.backend is not None else ""
    return HowToReadContext(
        frame=site.frame(
            request,
            "How to read a page",
            "The views, the axes, the marks of evidence, and what is checked and what is not: in two minutes.",
        ),
        axes=tuple(AxisRow(axis.name, _symbols(axis), axis.meaning) for axis in STANDARD_AXES),
        example_name=f"{node.name} in {first.name}",
        example_href=node_href(first.id, node.path),
        example=view.equation(node, "full"),
        example_flow=view.flow(node, "full"),
        live_name=live,
    )


def _symbols(axis: Axis) -> tuple[Markup, ...]:
    if axis.running is None:
        return (prose.light_symbol(axis.symbol),) * len(VIEWS)
    shown = (axis.running[view] for view in VIEWS)
    return tuple(escape(str(one)) if isinstance(one, int) else prose.light_symbol(one) for one in shown)


def walk_context(site: Site, request: Request) -> WalkContext:
    """All stops of the guided walk, through the model whose weights are here."""
    model = site.catalog[site.backend.live_model if site.backend is not None else site.catalog.default.id]
    return WalkContext(
        frame=site.frame(
            request,
            "A walk from prompt to token",
            "From a prompt to the next token, then one decode step, page by page, with live numbers.",
        ),
        model_name=model.name,
        stops=walk.stops(model),
    )


def glossary_context(site: Site, request: Request) -> GlossaryContext:
    """The words of the atlas."""
    model = next(readable(site.catalog))
    return GlossaryContext(
        frame=site.frame(
            request, "Glossary", "The words of language models, each with the tensor or step where it can be seen."
        ),
        model_name=model.name,
        entries=glossary(model),
    )


def api_context(site: Site, request: Request, app: FastAPI) -> ApiContext:
    """Every call that `/openapi.json` describes, grouped by its first tag."""
    groups: dict[str, list[Endpoint]] = {}
    for path, methods in app.openapi()["paths"].items():
        for method, call in methods.items():
            groups.setdefault((call.get("tags") or ["other"])[0], []).append(_endpoint(method, path, call))
    return ApiContext(
        frame=site.frame(request, "The API", "Every call of the API: graph, runs, tensors, and their problems."),
        groups=tuple((name.capitalize(), tuple(calls)) for name, calls in groups.items()),
    )


def _endpoint(method: str, path: str, call: dict[str, Any]) -> Endpoint:
    return Endpoint(
        method=method.upper(),
        path=path,
        summary=call.get("summary", ""),
        description=call.get("description", ""),
        parameters=tuple(
            (one["name"], one["in"], one.get("description", "") or _schema(one.get("schema", {})))
            for one in call.get("parameters", ())
        ),
        answers=tuple((status, answer.get("description", "")) for status, answer in call.get("responses", {}).items()),
    )


def _schema(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(str(one) for one in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(filter(None, (_schema(one) for one in schema["anyOf"])))
    return str(schema.get("type", ""))
