"""One rank's share of a model of transformers, by the library's own plan for tensor parallelism.

The plan says which layers are split, and the library splits them; what that makes of each tensor is seen in a first
pass, not believed. Every rank reads all weights, and keeps its share of those that the plan splits.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from atlas.catalog import Model
from atlas.errors import CheckpointError
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.distributed.group import Group
from atlas.runtime.references.base import Pass
from atlas.runtime.references.hugging_face import Runner

END = "lm_head"
PROBE = (0, 1, 2)
"""Tokens of the pass in which shares are seen."""


class PlannedRunner(Runner):
    """Runs in step with the same on every other rank. `seen` is which axis of each tensor is split; None for none."""

    def __init__(self, model: Model, checkpoint: Checkpoint, group: Group) -> None:
        """Raises `CheckpointError` for a model without a plan, and for one that the plan does not split evenly."""
        super().__init__(model, checkpoint)
        self._world = group.world
        plan = self._transformer._expand_parallel_plan(self._transformer.tp_plan)
        if not plan:
            raise CheckpointError(
                f"{model.name} cannot be split over {group.world} ranks: transformers has no plan for it.",
                "Serve it from one process: atlas serve.",
            )
        with group.together(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mesh = init_device_mesh(group.device(checkpoint.placement.device).type, (group.world,))
            parallel = importlib.import_module("transformers.distributed.tensor_parallel")
            tied = checkpoint.config.get("tied_embeddings")
            if tied:  # one matrix: it is cut once, at the embedding
                plan.pop(f"{END}.weight", None)
            parallel.apply_tensor_parallelism(self._transformer, mesh, plan)
            if tied:
                self._transformer.get_output_embeddings().weight = self._transformer.get_input_embeddings().weight
            _only_shares(self._transformer)
            own = dict(self._transformer.named_parameters(remove_duplicate=False))
            shares = {name: _local(own[name]) if name in own else kept for name, kept in checkpoint.tensors.items()}
            self.checkpoint = replace(checkpoint, tensors=shares, mapped=None)
            self.seen = self._seen()

    def whole(self, name: str) -> torch.Tensor:
        """A parameter put together, on all ranks at once."""
        found = self._transformer.get_parameter(name)
        return found.full_tensor().detach() if isinstance(found, DTensor) else found.detach()

    def _seen(self) -> Mapping[str, int | None]:
        nodes = self.captured_nodes()
        _, recording = self.capture(Pass(PROBE, 0), self.memory(len(PROBE)), self.sites(nodes))
        found: dict[str, int | None] = {}
        for (path, _layer), values in recording.values.items():
            declared = self.model.graph[path].shape["prefill"] or ()
            sizes = list(values[-1].shape)
            split = [
                at
                for at, (extent, size) in enumerate(zip(declared, sizes, strict=True))
                if extent.size is not None and not extent.free and size != extent.size
            ]
            uneven = [at for at in split if sizes[at] * self._world != declared[at].size]
            if len(split) > 1 or uneven:
                raise CheckpointError(
                    f"{self.model.name} cannot be split over {self._world} ranks: {path} comes out as {sizes}.",
                    "Take another number of processes.",
                )
            found[path] = split[0] if split else None
        return found


def _only_shares(transformer: nn.Module) -> None:
    """Let go of the whole tensors that shares were cut from. What is tied stays so."""
    made: dict[int, nn.Parameter] = {}
    for module in transformer.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if isinstance(parameter, DTensor) and id(parameter) in made:
                setattr(module, name, made[id(parameter)])
            elif isinstance(parameter, DTensor):
                again = DTensor.from_local(
                    parameter.to_local().detach().clone(),
                    parameter.device_mesh,
                    parameter.placements,
                    run_check=False,
                    shape=parameter.shape,
                    stride=parameter.stride(),
                )
                made[id(parameter)] = nn.Parameter(again, requires_grad=False)
                setattr(module, name, made[id(parameter)])


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return (parameter.to_local() if isinstance(parameter, DTensor) else parameter).detach()
