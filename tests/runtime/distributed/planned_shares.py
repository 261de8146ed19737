"""Ranks of models of transformers, one after another in one process: what each reads, holds, and sees to be split.

The ranks are those of torch's fake group, which answers every collective at once, without numbers. Started by
`test_planned_share.py`: `planned_shares.py DATA_DIR OUT WORLD CHECKPOINT...`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist
import transformers.modeling_utils
from safetensors.torch import save_file
from torch._C._distributed_c10d import HashStore
from torch.testing._internal.distributed.fake_pg import FakeStore

from atlas.catalog import Catalog, open_catalog
from atlas.errors import CheckpointError
from atlas.runtime.adoption import adopt
from atlas.runtime.checkpoints import open_checkpoint
from atlas.runtime.distributed.group import Group
from atlas.runtime.distributed.liveness import Liveness, Member
from atlas.runtime.distributed.place import Place
from atlas.runtime.distributed.planned_share import PlannedRunner
from atlas.runtime.distributed.shares import WeightShare
from atlas.runtime.placement import Placement

READ = [0]
"""Bytes of weights that have been taken out of safetensors files."""


class Slice:
    """A weight in a file; what is taken of it is counted."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __getitem__(self, index: Any) -> Any:
        taken = self._real[index]
        READ[0] += taken.nbytes
        return taken


class Counted:
    """A safetensors file whose weights are counted as they are taken out."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._real = real_open(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __enter__(self) -> Counted:
        self._real.__enter__()
        return self

    def __exit__(self, *arguments: Any) -> Any:
        return self._real.__exit__(*arguments)

    def get_slice(self, name: str) -> Slice:
        return Slice(self._real.get_slice(name))


real_open = transformers.modeling_utils.safe_open


def shown(path: Path, data_dir: Path, out: Path, catalog: Catalog, group: Group) -> dict[str, Any]:
    """One rank of one checkpoint; its weights are written down."""
    READ[0] = 0
    share = WeightShare.of_rank(catalog["smollm2-135m"], group.rank, group.world)
    try:
        checkpoint = open_checkpoint(path, data_dir, placement=Placement(share=share))
        read, mapped = READ[0], checkpoint.mapped is not None
        runner = PlannedRunner(adopt(Catalog(catalog.store), "mine", checkpoint), checkpoint, group)
        runner.rehearse()
    except CheckpointError as error:
        return {"refused": error.detail}
    own = runner.checkpoint
    save_file({name: weight.clone() for name, weight in own.tensors.items()}, out / f"{path.name}.{group.rank}")
    found = {"read": read, "mapped": mapped, "held": own.nbytes, "count": own.parameter_count, "seen": runner.seen}
    assert own.mapped is None
    return found


def main(data_dir: Path, out: Path, world: int, paths: list[Path]) -> None:
    vars(transformers.modeling_utils)["safe_open"] = Counted
    catalog = open_catalog(data_dir)
    found: list[dict[str, Any]] = []
    for rank in range(world):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
        members, store = tuple(Member.here(one) for one in range(world)), HashStore()
        for one in range(world):
            store.set(f"alive/{one}", "0")
        liveness = Liveness(store, members[rank : rank + 1], 0, 60)
        group = Group(Place(rank, world, "127.0.0.1", 0), members, store, liveness)
        found.append({path.name: shown(path, data_dir, out, catalog, group) for path in paths})
        group.close()
        dist.destroy_process_group()
    (out / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [Path(one) for one in sys.argv[4:]])
