"""The pages' addresses. What is on each is built elsewhere; nothing here or below loads what computes."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from atlas.errors import NotFound
from atlas.web.compare_page import compare_context
from atlas.web.contexts import SearchContext
from atlas.web.home_page import home_context
from atlas.web.node_page import embed_context, model_context, node_context
from atlas.web.preview_picture import preview_card, preview_picture, site_card
from atlas.web.readable import readable
from atlas.web.reading_pages import api_context, glossary_context, how_to_read_context, walk_context
from atlas.web.site import Site
from atlas.web.sitemap import robots_text, sitemap_text
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


@router.get("/compare")
def compare(request: Request, a: str = "", b: str = "") -> Response:
    """Two models side by side."""
    site, state = _site(request), read_state(request.query_params)
    return site.answer(request, "compare.html", compare_context(site, request, a, b), state)


@router.get("/search")
def search(request: Request, q: str = "", model: str = "") -> Response:
    """What is called, or was once called, like this."""
    site, state = _site(request), read_state(request.query_params)
    query = q[:200].strip()
    about = model if model in site.catalog else ""
    context = SearchContext(
        frame=site.frame(
            request,
            f"{query} · Search" if query else "Search",
            "Search all models: names, symbols, code, and the names that other libraries use.",
            model=site.catalog[about] if about else None,
            index=False,
        ),
        query=query,
        hits=site.index.search(query, model=model, view=state.view),
    )
    return site.answer(request, "search.html", context, state)


@router.get("/how-to-read")
def how_to_read(request: Request) -> Response:
    """The views, the axes, the marks."""
    site = _site(request)
    return site.answer(request, "how-to-read.html", how_to_read_context(site, request))


@router.get("/walk")
def walk(request: Request) -> Response:
    """From prompt to token, stop by stop."""
    site = _site(request)
    return site.answer(request, "walk.html", walk_context(site, request))


@router.get("/glossary")
def glossary(request: Request) -> Response:
    """The words."""
    site = _site(request)
    return site.answer(request, "glossary.html", glossary_context(site, request))


@router.get("/embed/{model}/{node:path}")
def embed(request: Request, model: str, node: str) -> Response:
    """One node, to stand in a frame of another site."""
    site, state = _site(request), read_state(request.query_params)
    return site.answer(request, "embed.html", embed_context(site, request, model, node, state), state)


@router.get("/preview/{model}.svg")
@router.get("/preview/{model}/{node:path}.svg")
def preview(request: Request, model: str, node: str = "") -> Response:
    """The diagram of a page as a drawing."""
    picture = preview_picture(_site(request).views[model], node)
    return Response(picture, media_type="image/svg+xml", headers={"Cache-Control": "public, max-age=3600"})


@router.get("/preview/{model}.png")
@router.get("/preview/{model}/{node:path}.png")
def preview_for_links(request: Request, model: str, node: str = "") -> Response:
    """The diagram of a page as pixels, with its title: what sites show beside a link to it."""
    picture = preview_card(_site(request).views[model], node)
    return Response(picture, media_type="image/png", headers={"Cache-Control": "public, max-age=3600"})


@router.get("/preview.png")
def preview_of_the_site(request: Request) -> Response:
    """What sites show beside a link to a page of no model."""
    site = _site(request)
    models = list(readable(site.catalog))
    if not models:
        raise NotFound("No model can be shown here.", "The front page says why.")
    picture = site_card(site.views[models[0].id], len(models))
    return Response(picture, media_type="image/png", headers={"Cache-Control": "public, max-age=3600"})


@router.get("/docs")
def docs(request: Request) -> Response:
    """The API as a page."""
    site = _site(request)
    return site.answer(request, "api.html", api_context(site, request, request.app))


@router.get("/sitemap.xml")
def sitemap(request: Request) -> Response:
    """Every page of every model."""
    text = sitemap_text(_site(request).catalog, f"{request.url.scheme}://{request.url.netloc}")
    return Response(text, media_type="application/xml")


@router.get("/robots.txt")
def robots(request: Request) -> Response:
    """Pages may be read by all; runs are for people."""
    return PlainTextResponse(robots_text(f"{request.url.scheme}://{request.url.netloc}"))
