"""One rank of many, simulated: a model's true size under FakeTensorMode, split over ranks that are not there.

Run as a process of its own (`python -m atlas.runtime.distributed.simulated MODEL --world-size 8`), since the process
group of a process is one: torch's fake group answers every collective at once, without numbers. It prints, as JSON, the
shape of every tensor and parameter that each rank would have; what they should be is `expected`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from atlas.catalog import Catalog, Model, open_catalog
from atlas.errors import CheckpointError, EnvironmentUnfit
from atlas.graph.axes import VIEWS, View
from atlas.graph.nodes import Parameter, Quantity, Tensor
from atlas.runtime.distributed.loading import require_splittable
from atlas.runtime.references.base import TrueSize
from atlas.runtime.untrained import parameter_names

BATCH = 2
POSITIONS: Mapping[View, tuple[int, int]] = {"full": (7, 0), "prefill": (7, 0), "decode": (1, 6)}
"""Positions computed, and positions before them, in the pass that stands for a view."""
Shapes = dict[str, dict[str, list[list[int]]]]
"""By view (`parameters` for those) and node: the shapes that were seen, one after another, each once. `collectives` are
by view: the elements of every all-reduce, and of every whole that was gathered; `layers` there are the blocks that
passes ran, which stand for those that are alike.
"""


def simulated(model: Model, world: int, ranks: Sequence[int]) -> dict[int, Shapes]:
    """What each of these ranks has, in a process of its own. Raises `CheckpointError` where it cannot be split."""
    require_splittable(model, world)
    if model.architecture.reference.runner != "llama":
        raise CheckpointError(
            f"The ranks of {model.name} cannot be simulated: transformers splits weights that are there.",
            "Start them: torchrun --nproc-per-node N -m atlas serve.",
        )
    command = [sys.executable, "-m", __name__, model.id, "--world-size", str(world)]
    command += ["--data-dir", str(_data_dir(model)), "--ranks", ",".join(map(str, ranks))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentUnfit(f"The ranks of {model.name} could not be simulated: {done.stderr.strip()[-300:]}.", "")
    found = json.loads(done.stdout.splitlines()[-1])
    return {int(rank): shapes for rank, shapes in found.items()}


def expected(model: Model, world: int, view: View, path: str) -> list[int] | None:
    """The declared shape of a rank's share; None where the view does not compute the node."""
    node = model.graph[path].node
    shape = model.graph[path].shape[view]
    if not isinstance(node, Quantity) or shape is None:
        return None
    computed, before = POSITIONS[view]
    running = {"batch": BATCH, "positions": computed, "queries": computed, "keys": computed + before}
    sharded = node.sharded if isinstance(node, Tensor | Parameter) else None
    sizes = []
    for extent in shape:
        size = running.get(extent.axis, extent.size)
        assert size is not None
        sizes.append(size // world if extent.axis == sharded else size)
    return sizes


def faults(model: Model, world: int, rank: int, found: Shapes) -> list[str]:
    """What a rank has that the declaration does not say, a sentence each; none is as it should be."""
    said = []
    for path, node in model.graph.nodes.items():
        if not isinstance(node.node, Tensor | Parameter):
            continue
        for view in ("full",) if isinstance(node.node, Parameter) else VIEWS:
            want = expected(model, world, view, path)
            if want is None:
                continue
            seen = found["parameters" if isinstance(node.node, Parameter) else view].get(path, [])
            if seen != [want]:
                where = "" if isinstance(node.node, Parameter) else f" in {view}"
                said.append(f"Rank {rank} of {world} has {path} as {seen}{where}, and should have {want}.")
    return said


def _shapes(model: Model, rank: int, world: int) -> Shapes:
    """What this process sees as that rank."""
    import fairscale.nn.model_parallel.initialize as parallel

    parallel.print = lambda *_: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
        parallel.initialize_model_parallel(world)
        try:
            runner: TrueSize = import_module(
                f"atlas.runtime.references.{model.architecture.reference.runner}"
            ).TrueSizeRunner(model)
            found: Shapes = {"parameters": {}, "collectives": {"layers": [list(runner.layers)]}}
            layers = model.architecture.sizes["layers"]
            for path, node in model.graph.nodes.items():
                if isinstance(node.node, Parameter):
                    names = [name for name in parameter_names(node, layers) if name in runner.parameters]
                    found["parameters"][path] = _distinct(list(runner.parameters[name].shape) for name in names)
            for view in VIEWS:
                if view == "prefill" and runner.full_is_prefill:
                    found[view], found["collectives"][view] = found["full"], found["collectives"]["full"]
                    continue
                computed, before = POSITIONS[view]
                with _counted() as found["collectives"][view]:
                    trace = runner.trace(view, BATCH, computed, before)
                seen: dict[str, list[list[int]]] = {}
                for (path, _), values in trace.values.items():
                    seen[path] = _distinct([*seen.get(path, []), *(list(value.shape) for value in values)])
                found[view] = seen
            return found
        finally:
            parallel.destroy_model_parallel()
            dist.destroy_process_group()


@contextlib.contextmanager
def _counted() -> Iterator[list[list[int]]]:
    """What the ranks do together while entered: elements reduced, and elements gathered."""
    reduced: list[int] = []
    gathered: list[int] = []
    all_reduce, all_gather = dist.all_reduce, dist.all_gather

    def reducing(tensor: Any, *arguments: Any, **named: Any) -> Any:
        reduced.append(tensor.numel())
        return all_reduce(tensor, *arguments, **named)

    def gathering(tensors: Any, *arguments: Any, **named: Any) -> Any:
        gathered.append(sum(tensor.numel() for tensor in tensors))
        return all_gather(tensors, *arguments, **named)

    vars(dist).update(all_reduce=reducing, all_gather=gathering)
    try:
        yield [reduced, gathered]
    finally:
        vars(dist).update(all_reduce=all_reduce, all_gather=all_gather)


def _distinct(shapes: Iterable[list[int]]) -> list[list[int]]:
    found: list[list[int]] = []
    for shape in shapes:
        if shape not in found:
            found.append(shape)
    return found


def _data_dir(model: Model) -> Path:
    return model.store.cache_dir.parent


def main() -> None:
    """Print the shapes of the ranks that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--ranks", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    given = parser.parse_args()
    catalog: Catalog = open_catalog(given.data_dir)
    model = catalog[given.model]
    ranks = [int(rank) for rank in given.ranks.split(",")]
    print(json.dumps({rank: _shapes(model, rank, given.world_size) for rank in ranks}))


if __name__ == "__main__":
    main()
