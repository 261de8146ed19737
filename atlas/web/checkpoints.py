"""The API of checkpoints: which run here and how they are held, and another one while serving.

A path is one of the server's machine. So only that machine may give one, or who has the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel, ConfigDict, Field

from atlas.errors import BadRequest, Forbidden
from atlas.settings import CheckpointChoice
from atlas.web.access import is_loopback
from atlas.web.problems import documented
from atlas.web.runs import backend_of

if TYPE_CHECKING:
    from atlas.runtime.arrivals import Arrival

router = APIRouter(prefix="/api/checkpoints", tags=["checkpoints"])
FORWARDED = ("forwarded", "via", "x-forwarded-for")
"""Headers by which a proxy says that it asks for somebody else."""


class CheckpointOrder(BaseModel):
    """Weights to open: a GGUF file, a directory, or `OWNER/NAME` of the hub."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, max_length=4096, examples=["/models/my-model"], description="On this machine.")
    model: str | None = Field(
        None, max_length=200, description="A model of the catalogue or a new id; by default the file's name."
    )
    dtype: Literal["float32", "bfloat16"] | None = Field(None, description="By default as the server was started.")
    device: Literal["auto", "cuda", "mps", "cpu"] | None = Field(None, description="As above.")


class Checkpoint(BaseModel):
    """A checkpoint as it stands. `error` says why it is refused."""

    model: str
    file: str = Field(description="The last part of its path.")
    status: Literal["opening", "ready", "refused"]
    stage: str = Field(description="What is being done.")
    progress: float | None = Field(description="A share from 0 to 1; null where it is not known.")
    architecture: str
    dtype: str
    device: str
    held: str = Field(description="Number format, device and memory, in words.")
    notes: list[str] = Field(description="What else to know of the weights.")
    error: dict[str, str] | None


# Not `async`: each waits for a lock or the disk, and nobody should wait with it.


@router.get("", responses=documented(503))
def list_checkpoints(request: Request) -> list[Checkpoint]:
    """Every checkpoint that runs here, is being opened, or was refused."""
    return [_said(arrival) for arrival in backend_of(request).engine().checkpoints()]


@router.post("", status_code=202, responses=documented(403, 409, 422, 503))
def add_checkpoint(request: Request, order: Annotated[CheckpointOrder, Body()]) -> Checkpoint:
    """Open another checkpoint while serving. The list of checkpoints tells how far it has come."""
    require_own_machine(request)
    engine = backend_of(request).engine()
    from atlas.runtime.placement import chosen_placement

    try:
        choice = CheckpointChoice.parse(order.path if order.model is None else f"{order.model}={order.path}")
    except ValueError as error:
        raise BadRequest(f"The checkpoint is not understood: {error}.", 'Give {"model": ..., "path": ...}.') from error
    changes: dict[str, Any] = {"dtype": order.dtype, "device": order.device}
    asked = {name: value for name, value in changes.items() if value is not None}
    return _said(engine.add(choice, chosen_placement(engine.settings.model_copy(update=asked))))


def require_own_machine(request: Request) -> None:
    """Raises `Forbidden` for whoever neither gives a token nor asks from this machine. A token is checked before."""
    if request.app.state.settings.token:
        return
    forwarded = any(name in request.headers for name in FORWARDED)
    if forwarded or request.client is None or not is_loopback(request.client.host):
        raise Forbidden(
            "Files of this machine are opened only for programs of this machine.",
            "Ask from there, or start the server with --token SECRET and give it.",
        )


def _said(arrival: Arrival) -> Checkpoint:
    error = arrival.error
    return Checkpoint(
        model=arrival.model,
        file=arrival.file,
        status=arrival.status,
        stage=arrival.stage,
        progress=arrival.progress,
        architecture=arrival.architecture,
        dtype=arrival.placement.dtype_name,
        device=arrival.placement.device.type,
        held=arrival.held,
        notes=list(arrival.notes),
        error=None if error is None else {"code": error.code, "detail": error.detail, "hint": error.hint},
    )
