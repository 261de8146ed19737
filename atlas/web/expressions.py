"""The API of expressions: what each expression of the reference code gave in one block, or outside the blocks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from atlas.graph.axes import View
from atlas.inspection.answers import SplitOver
from atlas.web.problems import documented
from atlas.web.runs import backend_of

router = APIRouter(prefix="/api/runs/{run_id}/expressions", tags=["expressions"])


class Where(BaseModel):
    """Which part of which pass."""

    model_config = ConfigDict(extra="forbid")

    view: View = "full"
    part: Literal["block", "outside"] = Field("block", description="One block, or what comes before and after all.")
    layer: int = Field(0, description="The block; layers count those of the model that ran.")
    step: int | None = Field(None, description="The decode step, from 1; 1 unless given.")
    rank: int | None = Field(
        None, ge=0, description="Of a model that is split over several processes, one rank's shares alone."
    )


class Glance(BaseModel):
    """One value at a glance. Statistics are over the finite entries, null if there are none."""

    dtype: str
    shape: list[int]
    mean: float | None
    rms: float | None
    min: float | None
    max: float | None
    nan: int
    inf: int


class ExpressionValues(BaseModel):
    """One expression of the reference code and its values, in the order in which they came."""

    name: str = Field(description="Its values are a tensor of this name; /1, /2 ... at its end picks one of several.")
    function: str
    text: str
    span: tuple[int, int, int, int] = Field(description="First line, last line, first column, last column (bytes).")
    nodes: list[str] = Field(description="The nodes that are declared there.")
    values: list[Glance]
    split: SplitOver | None = Field(
        None,
        description="How the values lie in the processes over which the model is split; null where it runs in one.",
    )


class Expressions(BaseModel):
    """All expressions that gave a tensor."""

    repository: str
    path: str
    expressions: list[ExpressionValues]


@router.get("", response_model=Expressions, responses=documented(404, 409, 422, 503))
async def expressions(
    request: Request,
    run_id: Annotated[str, InPath(max_length=64)],
    where: Annotated[Where, Query()],
) -> Any:
    """Every expression of the reference code that gave a tensor in this part of the pass."""
    from atlas.inspection.recorded.engine import recorded_glances

    engine = backend_of(request).engine()
    layer = where.layer if where.part == "block" else None
    known = recorded_glances(engine, run_id, where.view, layer, where.step)
    if known is not None:
        return known.model_dump()
    runner, seen = await engine.expressions(run_id, where.view, layer, where.step, where.rank)
    from atlas.inspection.expressions import values_of
    from atlas.inspection.viewing import split_over

    values = await run_in_threadpool(
        values_of, runner.expressions.all, seen, lambda name: split_over(runner, name, where.rank)
    )
    lock, locked = runner.model.store.locks.locked(runner.model.architecture.reference.file)
    return {
        "repository": lock.repository,
        "path": locked.path,
        "expressions": [value.model_dump() for value in values],
    }
