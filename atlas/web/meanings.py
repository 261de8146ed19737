"""The API of what tensors mean: top elements, heads, the logit lens, and one pass or run beside another.

Registered with the tensors' own addresses, and before the one that takes any path.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from atlas.errors import BadRequest
from atlas.inspection.answers import (
    Agreement,
    Difference,
    HeadMeasures,
    Parting,
    Predictions,
    TensorSummary,
    Top,
)
from atlas.web.problems import documented
from atlas.web.tensors import (
    PROBLEMS,
    At,
    AtNumbers,
    AtSummary,
    NodePath,
    RunId,
    against_of,
    engine_of,
    place_of,
    viewer_of,
)

router = APIRouter(prefix="/api/runs/{run_id}", tags=["tensors"])


class AtTop(AtNumbers):
    """One row: the slice keeps one axis."""

    count: int = Field(10, ge=1, le=1000)


class AtPositions(At):
    """Positions of the run, `start` to `stop` - 1; the last one of the pass unless given."""

    start: int | None = None
    stop: int | None = None
    count: int = Field(10, ge=1, le=100)


@router.get("/tensors/{node:path}/top", responses=PROBLEMS)
async def get_top(request: Request, run_id: RunId, node: NodePath, at: Annotated[AtTop, Query()]) -> Top:
    """The largest elements of one row, such as the keys that a query attends to."""
    from atlas.inspection import meanings

    place = place_of(run_id, node, at)
    return await meanings.top(viewer_of(request), engine_of(request), place, at.slice, at.count, at.part)


@router.get("/tensors/{node:path}/heads", responses=PROBLEMS)
async def get_heads(request: Request, run_id: RunId, node: NodePath, at: Annotated[At, Query()]) -> list[HeadMeasures]:
    """Measures of every head of one layer: entropy, and what it attends to."""
    from atlas.inspection import meanings

    return await meanings.heads(viewer_of(request), engine_of(request), place_of(run_id, node, at))


@router.get("/tensors/{node:path}/predictions", responses=PROBLEMS)
async def get_predictions(
    request: Request, run_id: RunId, node: NodePath, at: Annotated[AtPositions, Query()]
) -> Predictions:
    """The likeliest next tokens: of logits at the run's temperature, of the residual stream through the logit lens."""
    from atlas.inspection import meanings

    return await meanings.spoken(
        viewer_of(request), engine_of(request), place_of(run_id, node, at), at.start, at.stop, at.count
    )


@router.get("/tensors/{node:path}/difference", responses=PROBLEMS)
async def get_difference(
    request: Request, run_id: RunId, node: NodePath, at: Annotated[AtNumbers, Query()]
) -> Difference:
    """How far it is from another pass, layer or run, row by row: norm of the difference over norm of the row."""
    from atlas.inspection import meanings

    place = place_of(run_id, node, at)
    other = against_of(place, at)
    if other is None:
        raise BadRequest(
            "There is nothing to compare with.", "Give against_view, against_step, against_layer or against_run."
        )
    return await meanings.compared(viewer_of(request), engine_of(request), place, other)


@router.get("/tensors/{node:path}/agreement", responses=PROBLEMS)
async def get_agreement(request: Request, run_id: RunId, node: NodePath, at: Annotated[At, Query()]) -> Agreement:
    """Prefill and every decode step against the full sequence, at the same positions."""
    from atlas.inspection import meanings

    return await meanings.agreement(viewer_of(request), engine_of(request), place_of(run_id, node, at))


@router.get("/parting/{other_id}", responses=documented(404, 409, 422, 503))
async def get_parting(request: Request, run_id: RunId, other_id: RunId) -> Parting:
    """Where two finished runs part: the first node in order of data flow, at the first position."""
    from atlas.inspection import meanings

    return await meanings.parting(engine_of(request), run_id, other_id)


@router.get("/tensors/{node:path}", responses=PROBLEMS)
async def get_tensor(
    request: Request, run_id: RunId, node: NodePath, at: Annotated[AtSummary, Query()]
) -> TensorSummary:
    """A tensor of a run, whole: shape, statistics over the finite elements, and what was checked."""
    viewer, engine = viewer_of(request), engine_of(request)
    return await viewer.summary(engine, place_of(run_id, node, at), verified=at.checks == "all")
