"""By what ranks reach each other, and on which device each computes."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._C._distributed_c10d import HashStore, Store

from atlas.errors import EnvironmentUnfit
from atlas.runtime.distributed.group import backend_for, meet, own_device
from atlas.runtime.distributed.liveness import Member
from atlas.runtime.distributed.place import Place

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def place(rank: int, local: int) -> Place:
    return Place(rank, 16, "first", 29500, local=local)


def test_the_backend_is_that_of_the_device() -> None:
    assert backend_for(CUDA) == backend_for(torch.device("cuda", 3)) == "nccl"
    assert backend_for(CPU) == "gloo"
    with pytest.raises(EnvironmentUnfit, match="over ranks that compute on MPS: torch has no way") as refused:
        backend_for(torch.device("mps"))
    assert "--device cpu" in refused.value.hint


def test_each_rank_has_a_device_of_its_own_machine() -> None:
    assert own_device(place(11, 3), CUDA, 8) == torch.device("cuda", 3)
    assert own_device(place(11, 3), CPU, 0) == CPU


def test_more_ranks_than_devices_are_refused() -> None:
    said = "Rank 12 has no GPU of its own: it is number 4 on this machine, counted from 0, and torch finds 4 here."
    with pytest.raises(EnvironmentUnfit, match=re.escape(said)) as refused:
        own_device(place(12, 4), CUDA, 4)
    assert "--nproc-per-node 4" in refused.value.hint


def test_ranks_of_another_start_are_not_met() -> None:
    """Launchers keep one store, and those of several machines count their starts each for itself."""
    store, world = HashStore(), 3
    stores: list[Store] = []
    for start in range(2):
        places = [Place(rank, world, "first", 29500, attempt=start * rank) for rank in range(world)]
        here = [Member(place.rank, 100 * start + place.rank, "first", "") for place in places]
        with ThreadPoolExecutor(world) as pool:
            # The others come first, and find what the last start has left.
            waiting = [pool.submit(meet, places[rank], here[rank], store) for rank in (2, 1, 0)]
            met = [one.result(timeout=60) for one in waiting]
        assert [members for _, members in met] == [tuple(here)] * world
        met[0][0].set("said", str(start))
        assert [own.get("said") for own, _ in met] == [str(start).encode()] * world
        stores.append(met[0][0])
    assert stores[0].get("said") == b"0"
