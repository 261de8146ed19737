"""One rank's share of a model of transformers, by the library's own plan for tensor parallelism.

The plan says which layers are split, and the library splits them; what that makes of each tensor is seen in a first
pass, not believed. The model is built without memory, and each parameter is cut as the plan cut its like: of mapped
weights, and of a directory's files, no more is read than that.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from atlas.catalog import Model
from atlas.errors import CheckpointError
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.distributed.group import Group
from atlas.runtime.references.base import Pass
from atlas.runtime.references.hugging_face import Runner, hollow

END = "lm_head"
PROBE = (0, 1, 2)
"""Tokens of the pass in which shares are seen."""


class PlannedRunner(Runner):
    """Runs in step with the same on every other rank. `seen` is which axis of each tensor is split; None for none.

    It is known once all ranks have rehearsed.
    """

    def __init__(self, model: Model, checkpoint: Checkpoint, group: Group) -> None:
        """`checkpoint` has this rank's share of each weight, or all. Raises `CheckpointError` without a plan."""
        self._group = group
        self._world = group.world
        self.seen: Mapping[str, int | None] = {}
        super().__init__(model, checkpoint)

    def rehearse(self) -> None:
        """See in a first pass what is split. Raises `CheckpointError` where that is not even."""
        with self._group.together():
            self.seen = self._seen()

    def whole(self, name: str) -> torch.Tensor:
        """A parameter put together, on all ranks at once."""
        found = self._transformer.get_parameter(name)
        return found.full_tensor().detach() if isinstance(found, DTensor) else found.detach()

    def _constructed(self) -> Any:
        return hollow(self.loaded, self.model, self.checkpoint.placement.dtype)

    def _load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        tied = bool(self.checkpoint.config.get("tied_embeddings"))
        with self._group.together(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._plan(_mesh(self.checkpoint.placement.device, self._world), tied=tied)
        planned = dict(self._transformer.named_parameters(remove_duplicate=False))
        made: dict[int, torch.Tensor] = {}  # what is tied is cut once
        shares = {
            name: made.setdefault(id(tensor), self._share(name, tensor, planned.get(name)))
            if id(tensor) not in made
            else made[id(tensor)]
            for name, tensor in tensors.items()
        }
        super()._load({name: _as_planned(share, planned.get(name)) for name, share in shares.items()})
        if tied:
            self._tie()
        whole = self._transformer.state_dict()
        count = sum(tensor.numel() for name, tensor in whole.items() if not (tied and name == f"{END}.weight"))
        self.checkpoint = replace(self.checkpoint, tensors=shares, mapped=None, parameter_count=count)

    def _plan(self, mesh: DeviceMesh, *, tied: bool) -> None:
        """Have the library split the model, whose weights are not set."""
        plan = self._transformer._expand_parallel_plan(self._transformer.tp_plan)
        if not plan:
            raise _no_plan(self.model.name, self._world)
        if tied:  # one matrix: it is cut once, at the embedding
            plan.pop(f"{END}.weight", None)
        parallel = importlib.import_module("transformers.distributed.tensor_parallel")
        parallel.apply_tensor_parallelism(self._transformer, mesh, plan)
        if tied:
            self._tie()

    def _tie(self) -> None:
        self._transformer.get_output_embeddings().weight = self._transformer.get_input_embeddings().weight

    def _share(self, name: str, weight: torch.Tensor, planned: torch.Tensor | None) -> torch.Tensor:
        """This rank's share of a weight, placed. Of all of it, mapped, that share alone is read."""
        placement, share = self.checkpoint.placement, weight
        if isinstance(planned, DTensor):
            own = planned.to_local().shape
            if weight.shape not in (planned.shape, own):
                raise CheckpointError(
                    f"{name} in {self.checkpoint.path} has the shape {list(weight.shape)}, not {list(planned.shape)}.",
                    f"Are the weights of a model that {self.model.architecture.name} describes?",
                )
            if weight.shape != own:
                cutting = importlib.import_module("transformers.distributed.sharding_utils")
                share = cutting.DtensorShardOperation(planned).shard_tensor(weight)
        if share is weight and self.checkpoint.mapped is None:
            return weight.to(placement.device)
        return share.to(placement.device, placement.dtype, copy=True, memory_format=torch.contiguous_format)

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


def reader(model_class: Any, device: torch.device, world: int) -> Callable[..., Any]:
    """`from_pretrained` of a class, which reads this rank's share of each weight, by the class's own plan, and no more.

    The shares are on the processor. Raises `CheckpointError` for a class without a plan.
    """
    if not (model_class._tp_plan or model_class.config_class.base_model_tp_plan):
        raise _no_plan(model_class.__name__, world)
    mesh = _mesh(device, world)
    configuration = importlib.import_module("transformers.distributed.configuration_utils")

    def prepared(_: type, distributed_config: Any, device_map: Any = None) -> tuple[Any, Any, Any]:
        return distributed_config, device_map, _Mesh(mesh)

    # The library would take whichever accelerator it finds, and not the device that was asked for.
    placed = {"prepare_distribute_model": classmethod(prepared), "__module__": model_class.__module__}
    split: Any = type(model_class.__name__, (model_class,), placed)
    return partial(split.from_pretrained, distributed_config=configuration.DistributedConfig(tp_size=world))


class _Mesh:
    """All ranks in one row, whichever of the library's rows is meant."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh

    def get_mesh(self, _: object) -> DeviceMesh:
        return self._mesh


def _mesh(device: torch.device, world: int) -> DeviceMesh:
    return init_device_mesh(device.type, (world,))


def _as_planned(share: torch.Tensor, planned: torch.Tensor | None) -> torch.Tensor:
    """A share as the part of a whole that it is."""
    if not isinstance(planned, DTensor):
        return share
    mesh, places, stride = planned.device_mesh, planned.placements, planned.stride()
    return DTensor.from_local(share, mesh, places, run_check=False, shape=planned.shape, stride=stride)


def _no_plan(name: str, world: int) -> CheckpointError:
    return CheckpointError(
        f"{name} cannot be split over {world} ranks: transformers has no plan for it.",
        "Serve it from one process: atlas serve.",
    )
