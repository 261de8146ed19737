"""From a checkpoint to a runner of a split model: which models can be split, and each rank's share of the weights."""

from __future__ import annotations

from dataclasses import replace

from atlas.catalog import Model
from atlas.errors import CheckpointError
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.distributed.group import Group
from atlas.runtime.distributed.llama_share import ShareRunner
from atlas.runtime.distributed.shares import require_divisible, shares
from atlas.runtime.distributed.split import SplitRunner
from atlas.runtime.placement import Placement
from atlas.runtime.references.base import ReferenceRunner

PARALLEL = ("llama",)
"""Runners whose reference code is parallel by itself."""


def require_splittable(model: Model, world: int) -> None:
    """Raises `CheckpointError` for a model whose code or sizes cannot be split over so many ranks."""
    reference = model.architecture.reference
    if reference.runner not in PARALLEL:
        raise CheckpointError(
            f"{model.name} cannot be split over {world} ranks: only models that Meta's reference code runs are.",
            "Serve it from one process: atlas serve.",
        )
    require_divisible(model, world)


def split(group: Group, model: Model, checkpoint: Checkpoint, placement: Placement) -> ReferenceRunner:
    """This rank's runner of a model; rank 0's has the others do what it does.

    `checkpoint` is whole, and mapped; the share is put where `placement` says, on a device of this rank's own. Raises
    `CheckpointError` if it cannot be split or does not fit, and `SourceError`.
    """
    require_splittable(model, group.world)
    placement = Placement(placement.dtype, group.device(placement.device))
    tensors = shares(model, checkpoint.tensors, group.rank, group.world, placement)
    own = ShareRunner(model, replace(checkpoint, tensors=tensors, mapped=None, placement=placement), group.world)
    return SplitRunner(own, replace(checkpoint, placement=placement), group) if group.rank == 0 else own
