"""What goes wrong, as an answer: a problem document (RFC 9457) for programs, a page for people.

Owns the one way from an error to an answer, and the last handler of all. A traceback goes to the log, never out.
"""

from __future__ import annotations

import http
import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from atlas.errors import AtlasError, BadRequest, NotFound, NotReady, TooMany, Unauthorized
from atlas.web.contexts import ProblemContext
from atlas.web.pieces import Link
from atlas.web.site import Site
from atlas.web.state import node_href

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
FOR_PROGRAMS = ("/api/", "/healthz", "/readyz", "/metrics", "/openapi.json")


class Problem(BaseModel):
    """A problem document. Programs match on `code`; `hint` says what to do next. Some codes carry further facts."""

    model_config = ConfigDict(extra="allow")

    type: str = Field("about:blank", description="No further type: `code` says which problem it is.")
    title: str = Field(description="The name of the status.", examples=["Not Found"])
    status: int = Field(examples=[404])
    code: str = Field(description="Stable name of the problem.", examples=["not-found"])
    detail: str = Field(description="What happened, and to what.")
    hint: str = Field(description="What to do next; may be empty.")
    request_id: str = Field(description="The id of this request, also in X-Request-ID and in the log.")


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may answer with these problems."""
    return {
        status: {
            "description": http.HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }


class NotAllowed(BadRequest):
    """The address exists, but not for this method."""

    code = "method-not-allowed"
    status = 405


class Internal(AtlasError):
    """A fault of ours. The log has more, under the request's id."""

    code = "internal"
    status = 500


def request_id(scope: Scope) -> str:
    """The id that `RequestId` gave the request."""
    return str(scope.get("state", {}).get("request_id", "-"))


def answer(request: Request, error: AtlasError) -> Response:
    """The error as a problem document or as a page, by the address that was asked."""
    name = request_id(request.scope)
    if error.status >= 500 and not isinstance(error, Internal | NotReady):
        log.error("%s %s: %s [%s]", request.method, request.url.path, error, name)
    path = request.url.path
    if path == "/api" or path.startswith(FOR_PROGRAMS):
        return document(error, name)
    return _page(request, error, name)


def document(error: AtlasError, name: str) -> JSONResponse:
    """A problem document."""
    problem = Problem(
        type="about:blank",
        title=_phrase(error.status),
        status=error.status,
        code=error.code,
        detail=error.detail,
        hint=error.hint,
        request_id=name,
        **{key: value for key, value in error.facts.items() if key not in Problem.model_fields},
    )
    return JSONResponse(problem.model_dump(), error.status, headers_of(error), media_type=MEDIA_TYPE)


def headers_of(error: AtlasError) -> dict[str, str]:
    """What an answer says of the error in its head: when to ask again, or how to be let in."""
    if error.status == 503 or isinstance(error, TooMany):
        return {"Retry-After": str(error.facts.get("retry_after", 5))}
    return {"WWW-Authenticate": 'Bearer realm="OpenModelAtlas"'} if isinstance(error, Unauthorized) else {}


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _page(request: Request, error: AtlasError, name: str) -> Response:
    site: Site = request.app.state.site
    title = "There is no such page" if error.status == 404 else _phrase(error.status)
    suggestion = _suggestion(site, error)
    links = [Link("All models", "/"), Link("Search", "/search"), Link("How to read", "/how-to-read")]
    if isinstance(error, Unauthorized):
        # Who comes by a link of another site brings no strict cookie; from a page of ours it is brought.
        links = [Link("I have been let in before: go on", "/" + request.url.path.lstrip("/"))]
    context = ProblemContext(
        frame=site.frame(request, title, error.detail, index=False),
        status=error.status,
        title=title,
        detail=error.detail,
        hint="" if suggestion else error.hint,
        request_id=name,
        suggestion=suggestion,
        links=tuple(links),
    )
    page = site.answer(request, "problem.html", context, status=error.status)
    page.headers.update(headers_of(error))
    return page


def _suggestion(site: Site, error: AtlasError) -> Link | None:
    """The nearest page to one that is not there."""
    href, nearest = error.facts.get("href"), error.facts.get("nearest")
    if isinstance(href, str):
        return Link(str(error.facts.get("nearest_name", nearest)), href)
    if isinstance(nearest, str) and nearest in site.catalog:
        return Link(site.catalog.entry(nearest).name, node_href(nearest))
    return None


def _from_http(error: HTTPException, request: Request) -> AtlasError:
    """Starlette's own errors. One raised while a body was read keeps what stopped it as its cause."""
    if isinstance(error.__cause__, AtlasError):
        return error.__cause__
    if error.status_code == 404:
        return NotFound(f"There is nothing at {request.url.path}.", "/docs lists the API, / all models.")
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return NotAllowed(
            f"{request.method} is not allowed at {request.url.path}.", f"Use {allowed}." if allowed else ""
        )
    wrong = BadRequest(str(error.detail), "/docs describes every call.")
    if error.status_code == 400:
        wrong = BadRequest("The body cannot be read.", "Send JSON in UTF-8. /docs describes every call.")
    wrong.status = error.status_code
    return wrong


def _from_validation(errors: Sequence[Any]) -> BadRequest:
    """The first few complaints, each with its place. What the client sent is not sent back."""
    said = []
    for one in errors[:3]:
        place = ".".join(str(part) for part in one["loc"] if part not in ("body", "query", "path"))
        message = str(one["msg"]).removeprefix("Value error, ").rstrip(".")
        said.append(f"{place}: {message}" if place else message)
    return BadRequest("; ".join(said) + ".", "/docs describes every call.")


def describe(app: FastAPI) -> dict[str, Any]:
    """The app's OpenAPI description, in which every problem is of the one form that is really answered."""
    described = FastAPI.openapi(app)
    schemas = described.setdefault("components", {}).setdefault("schemas", {})
    if "Problem" not in schemas:
        schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for path, methods in described["paths"].items():
            for method, call in methods.items():
                if "422" in call["responses"]:
                    call["responses"]["422"] = documented(422)[422]
                for status, said in documented(*at_the_door(path, method)).items():
                    call["responses"].setdefault(str(status), said)
    return described


def at_the_door(path: str, method: str) -> tuple[int, ...]:
    """The problems that any call may meet before it is looked at: a wrong host, no token, too much, another origin."""
    if path == "/healthz":
        return (421,)
    changes = (400, 403, 413) if method not in ("get", "head") else ()
    return (401, 421, 429, 503, *changes)


def install(app: FastAPI) -> None:
    """Make the app answer errors this way, and describe them so."""
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]

    @app.exception_handler(AtlasError)
    async def atlas_error(request: Request, error: AtlasError) -> Response:
        return answer(request, error)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        found = answer(request, _from_http(error, request))
        if error.headers:
            found.headers.update({key: value for key, value in error.headers.items() if key.lower() == "allow"})
        return found

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> Response:
        return answer(request, _from_validation(error.errors()))


class LastHandler:
    """Outermost: whatever nothing else has caught is logged with the request's id, and answered without a traceback."""

    def __init__(self, app: ASGIApp, owner: FastAPI) -> None:
        self.app = app
        self.owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:  # the last handler: anything may come
            name = request_id(scope)
            if not isinstance(error, AtlasError):
                log.exception("%s %s failed [%s]", scope["method"], scope["path"], name)
            if started:
                raise  # the answer is under way: the connection is cut
            known = (
                error
                if isinstance(error, AtlasError)
                else Internal("Something went wrong here.", f"It is in the server's log under {name}.")
            )
            scope.setdefault("app", self.owner)
            response = answer(Request(scope, receive), known)
            await response(scope, receive, send)
