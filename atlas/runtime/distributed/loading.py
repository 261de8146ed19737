"""From a checkpoint to a runner of a split model: which models can be split, and each rank's share of the weights."""

from __future__ import annotations

from dataclasses import replace

from atlas.catalog import Catalog, Model
from atlas.errors import CheckpointError
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.distributed.arithmetic import weights
from atlas.runtime.distributed.group import Group
from atlas.runtime.distributed.llama_share import ShareRunner
from atlas.runtime.distributed.shares import WeightShare, require_divisible
from atlas.runtime.distributed.split import SplitRunner
from atlas.runtime.placement import Placement
from atlas.runtime.references.base import ReferenceRunner

PARALLEL = ("llama", "hugging_face")
"""Runners whose code is parallel by itself, or has a plan."""


def require_splittable(model: Model, world: int) -> None:
    """Raises `CheckpointError` for a model whose code or sizes cannot be split over so many ranks."""
    reference = model.architecture.reference
    if reference.runner not in PARALLEL:
        raise CheckpointError(
            f"{model.name} cannot be split over {world} ranks: its code has no way to.",
            "Serve it from one process: atlas serve.",
        )
    require_divisible(model, world)


def placed(group: Group, catalog: Catalog, placement: Placement) -> Placement:
    """Where this rank's share of weights goes: a device of its own, of the kind that `placement` names.

    How weights are split is read off the default model, which is of the one architecture that can be.
    """
    share = WeightShare.of_rank(catalog[catalog.default.id], group.rank, group.world)
    return Placement(placement.dtype, group.device(placement.device), share, group.room)


def split(group: Group, model: Model, checkpoint: Checkpoint) -> ReferenceRunner:
    """This rank's runner of a model; rank 0's has the others do what it does.

    `checkpoint` has this rank's share, or, of a model with a plan, all of it mapped. Raises `CheckpointError` if it
    cannot be split or does not fit, and `SourceError`.
    """
    require_splittable(model, group.world)
    placement = replace(checkpoint.placement, device=group.computing)
    if model.architecture.reference.runner == "hugging_face":
        # transformers takes seconds to import, which most need not wait for.
        from atlas.runtime.distributed.planned_share import PlannedRunner

        planned = PlannedRunner(model, replace(checkpoint, placement=placement), group)
        return SplitRunner(planned, group, lambda: planned.seen, planned.whole) if group.rank == 0 else planned
    own = ShareRunner(model, replace(checkpoint, parameter_count=weights(model, 1, 1)), group.world)
    return SplitRunner(own, group) if group.rank == 0 else own
