"""The API of runs: start, look, follow, cancel."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field, model_validator
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from atlas.errors import BadRequest, NotReady
from atlas.web.backend import Backend
from atlas.web.limits import Streams, client_of
from atlas.web.problems import documented

if TYPE_CHECKING:
    from atlas.runtime.runs import RunView

router = APIRouter(prefix="/api/runs", tags=["runs"])


class RunOrder(BaseModel):
    """What to run: a prompt as text or as token ids."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(max_length=200, examples=["smollm2-135m"])
    prompt: str | None = Field(None, max_length=1_000_000, examples=["The capital of France is"])
    token_ids: list[int] | None = Field(None, max_length=1_000_000)
    add_bos: bool | None = Field(None, description="By default as the tokenizer's own settings say.")
    chat: bool = Field(False, description="The prompt is a user's message: the model's chat template surrounds it.")
    max_new_tokens: int = Field(16, ge=0, examples=[8])
    temperature: float = Field(0.0, ge=0.0, le=100.0, allow_inf_nan=False)
    seed: int = Field(0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _one_of_two(self) -> RunOrder:
        if (self.prompt is None) == (self.token_ids is None):
            raise ValueError("give either a prompt or token_ids")
        if self.chat and (self.prompt is None or self.add_bos is not None):
            raise ValueError("a chat template takes a prompt, and says itself what it begins with: leave add_bos out")
        return self


class Token(BaseModel):
    """One token: `text` is what it adds, `label` shows it alone. `template`: a chat template put it there."""

    position: int
    id: int
    text: str
    label: str
    origin: str
    template: bool = False


class Run(BaseModel):
    """A run as it stands."""

    id: str
    model: str
    checkpoint: str
    status: str
    prompt: str
    chat: bool = Field(description="A chat template made the prompt's tokens; `prompt` is the message.")
    prompt_length: int
    max_new_tokens: int
    temperature: float
    seed: int
    tokens: list[Token]
    steps: int
    waiting: int
    seconds: dict[str, float]
    note: str
    error: dict[str, str] | None


RunId = Annotated[str, InPath(description="The id of a run.")]


EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "status, token, done and error events"}
}


class EventStream(EventSourceResponse):
    """Server-sent events that hold a place among the streams for as long as they are open."""

    def __init__(self, content: AsyncIterator[ServerSentEvent], streams: Streams, client: str) -> None:
        super().__init__(content, ping=15)
        self.streams = streams
        self.client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.streams.place(self.client):
            await super().__call__(scope, receive, send)


def backend_of(request: Request) -> Backend:
    """The backend of the application that serves this request. Raises `NotReady` where it runs no model."""
    backend: Backend | None = request.app.state.backend
    if backend is None:
        raise NotReady("This server runs no model.", "Start it with: atlas serve")
    return backend


# Not `async`, but for the events: each waits for the tokenizer, a lock or the disk, and nobody should wait with it.


@router.post("", status_code=202, response_model=Run, responses=documented(403, 404, 409, 413, 422, 429, 503))
def start(request: Request, order: Annotated[RunOrder, Body()], response: Response) -> Any:
    """Start a run, or find it: the same request is the same run."""
    engine = backend_of(request).engine()
    template: tuple[int, ...] = ()
    if order.prompt is not None:
        if not order.prompt:
            request.app.state.catalog.entry(order.model)
            raise BadRequest("The prompt is empty: there is nothing to compute.", "Give at least one token.")
        if order.chat:
            chat = engine.chat(order.model, order.prompt)
            ids, template = list(chat.ids), chat.template
        else:
            ids = engine.tokens(order.model, order.prompt, order.add_bos)
    else:
        ids = list(order.token_ids or ())
    from atlas.runtime.runs import RunRequest

    view = engine.submit(
        RunRequest(
            model=order.model,
            token_ids=tuple(ids),
            max_new_tokens=order.max_new_tokens,
            temperature=order.temperature,
            seed=order.seed,
            template=template,
        ),
        client_of(request.scope),
    )
    response.headers["Location"] = f"/api/runs/{view.id}"
    return view.model_dump()


@router.get("/{run_id}", response_model=Run, responses=documented(404, 409, 422, 503))
def look(request: Request, run_id: RunId) -> Any:
    """A run as it stands."""
    return backend_of(request).engine().view(run_id).model_dump()


@router.delete("/{run_id}", status_code=204, responses=documented(403, 404, 409, 422, 503))
def cancel(request: Request, run_id: RunId) -> Response:
    """Cancel and forget."""
    backend_of(request).engine().delete(run_id)
    return Response(status_code=204)


@router.get(
    "/{run_id}/events",
    response_class=EventSourceResponse,
    responses=EVENTS | documented(404, 409, 422, 429, 503),
)
async def follow(request: Request, run_id: RunId) -> EventStream:
    """Server-sent events: `status` when it changes, `token` for each token, then `done` or `error`."""
    engine = backend_of(request).engine()
    engine.run(run_id)
    return EventStream(_events(engine.watch(run_id)), request.app.state.streams, client_of(request.scope))


async def _events(views: AsyncIterator[RunView]) -> AsyncIterator[ServerSentEvent]:
    status, sent = "", 0
    async for view in views:
        if view.status != status:
            status = view.status
            yield _event("status", {"status": status, "waiting": view.waiting, "steps": view.steps})
        for token in view.tokens[sent:]:
            yield _event("token", token.model_dump() | {"steps": view.steps})
        sent = len(view.tokens)
        if status == "done":
            yield _event("done", {"status": status, "steps": view.steps})
        elif status in ("failed", "cancelled"):
            error = view.error
            said = {"code": status, "detail": f"The run was {status}.", "hint": "Start it again."}
            yield _event("error", said if error is None else error.model_dump())


def _event(kind: str, data: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(event=kind, data=json.dumps(data))
