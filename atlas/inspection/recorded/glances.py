"""What the expressions of the reference code gave, as a recorded run keeps it: the API's answer for one pass and layer.

Statistics only: the numbers themselves are those of declared tensors, or would take the model. Knows no files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from pydantic import BaseModel

from atlas.errors import NotComputed, NotFound
from atlas.inspection.expressions import ExpressionValues, values_of
from atlas.inspection.recorded.blocks import Packed, pack_text
from atlas.inspection.recorded.layout import Glanced
from atlas.inspection.recorded.selection import Batch
from atlas.inspection.viewing import split_over
from atlas.runtime.engine import Engine
from atlas.runtime.references.base import ReferenceRunner

MOST = 20_000
"""Members, at most: a bundle may not have many times as many."""
Seen = Mapping[str, Sequence[torch.Tensor]]


class Glances(BaseModel):
    """All expressions of a file that gave a tensor, in one block or outside the blocks."""

    repository: str
    path: str
    expressions: list[ExpressionValues]


async def seen_in(engine: Engine, run: str, batch: Batch) -> tuple[ReferenceRunner, Seen] | None:
    """What expressions gave in the part of a pass that a batch is of; None where none are looked at."""
    if batch.shelf == "parameter":
        return None
    try:
        return await engine.expressions(run, batch.view, batch.layer, batch.step)
    except (NotComputed, NotFound):
        return None


def glances(runner: ReferenceRunner, seen: Seen) -> Glances:
    """Each value at a glance, as the API says it."""
    values = values_of(runner.expressions.all, seen, lambda name: split_over(runner, name, None))
    lock, locked = runner.model.store.locks.locked(runner.model.architecture.reference.file)
    return Glances(repository=lock.repository, path=locked.path, expressions=values)


def packed_glances(runner: ReferenceRunner, seen: Seen) -> Packed:
    """The same as the bytes of a member."""
    return pack_text(glances(runner, seen).model_dump_json().encode())


def places_by_view(batches: Sequence[Batch]) -> tuple[Glanced, ...]:
    """Where it is held, in the order of the views."""
    views = dict.fromkeys(batch.view for batch in batches)
    return tuple(
        Glanced(view=view, places=tuple((one.layer, one.step) for one in batches if one.view == view)) for view in views
    )
