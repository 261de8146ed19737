"""The pages' addresses. What is on each is built elsewhere; nothing here or below loads what computes."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from atlas.web.home_page import home_context
from atlas.web.node_page import model_context, node_context
from atlas.web.site import Site
from atlas.web.state import read_state

router = APIRouter(include_in_schema=False)


def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


@router.get("/")
def home(request: Request) -> Response:
    """All models."""
    site = _site(request)
    return site.answer(request, "home.html", home_context(site, request), read_state(request.query_params))


@router.get("/models")
def models() -> Response:
    """The list of models is the front page."""
    return RedirectResponse("/", 308)


@router.get("/models/{model}")
def model(request: Request, model: str) -> Response:
    """A model: header, numbers, graph."""
    site, state = _site(request), read_state(request.query_params)
    return site.answer(request, "model.html", model_context(site, request, model, state), state)


@router.get("/models/{model}/{node:path}")
def node(request: Request, model: str, node: str) -> Response:
    """A component, operation, tensor, parameter or cache."""
    if not node or node.endswith("/"):
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"/models/{model}/{node}".rstrip("/") + query, 308)
    site, state = _site(request), read_state(request.query_params)
    return site.answer(request, "node.html", node_context(site, request, model, node, state), state)
