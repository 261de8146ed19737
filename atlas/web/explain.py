"""The API's answer to "how did this number come to be?": one element of a tensor, followed back by one operation."""

from __future__ import annotations

from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from pydantic import Field

from atlas.inspection.explained import Explained, drawn
from atlas.web.tensors import PROBLEMS, At, NodePath, RunId, engine_of

router = APIRouter(prefix="/api/runs/{run_id}/explain", tags=["tensors"])


class AtExplained(At):
    """One element: its index along each axis."""

    cell: str = Field(max_length=200, pattern=r"^[0-9]{1,9}(,[0-9]{1,9})*$", examples=["0,3,211"])


@router.get("/{node:path}", responses=PROBLEMS)
async def get_explanation(
    request: Request, run_id: RunId, node: NodePath, at: Annotated[AtExplained, Query()]
) -> Explained:
    """How one element was made: its equation with the numbers in it, the inputs' elements, the largest terms of a sum
    and what the others come to, and the same in float64 beside the captured value.
    """
    from atlas.inspection.explain import explain

    cell = [int(index) for index in at.cell.split(",")]
    found = await explain(engine_of(request), run_id, node, at.view, at.layer, at.step, cell)
    return await anyio.to_thread.run_sync(drawn, found)
