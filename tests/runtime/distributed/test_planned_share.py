"""Models of transformers by their plans: each rank reads its share of the weights, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

from atlas.runtime.checkpoints import open_checkpoint
from tests.runtime.distributed import planned_shares
from tests.runtime.test_gguf_families import write_small
from tests.runtime.test_hugging_face_directory import save_small

if TYPE_CHECKING:
    from atlas.catalog import Catalog

WORLD = 2
SAVED = ("qwen3", "mixtral", "gpt_oss", "deepseek_v3", "gpt2")
PACKED = ("qwen3.gguf", "mixtral.gguf")
LESS = {"gpt_oss": 1.0}
"""How much of the weights a rank may hold where it is more than about a half: this plan splits the two ends alone."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, catalog: Catalog) -> Path:
    """Where small models are kept, as directories and as files."""
    where = tmp_path_factory.mktemp("planned")
    for architecture in SAVED:
        save_small(catalog, where, architecture, shard="200KB")
    for name in PACKED:
        write_small(catalog, where, name.removesuffix(".gguf"))
    return where


@pytest.fixture(scope="module")
def ranks(here: Path, own_data_dir: Path) -> list[dict[str, Any]]:
    """What each of two ranks found, by checkpoint."""
    data = here / "data"
    data.mkdir()
    (data / "sources").symlink_to((own_data_dir / "sources").resolve())
    command = [sys.executable, str(Path(planned_shares.__file__)), str(data), str(here), str(WORLD)]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [*command, *(str(here / name) for name in (*SAVED, *PACKED))],
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads((here / "found.json").read_text())
    return found


@pytest.mark.parametrize("name", [name for name in (*SAVED, *PACKED) if name != "gpt2"])
def test_a_rank_reads_and_holds_its_share(name: str, here: Path, ranks: list[dict[str, Any]]) -> None:
    whole = open_checkpoint(here / name, here / "data")
    shares = [load_file(here / f"{name}.{rank}") for rank in range(WORLD)]
    for weight, tensor in whole.tensors.items():
        assert makes([share[weight] for share in shares], tensor), weight
    for rank, share in zip(ranks, shares, strict=True):
        found = rank[name]
        assert share.keys() == whole.tensors.keys()
        assert found["count"] == whole.parameter_count
        assert found["held"] <= LESS.get(name, 0.6) * whole.nbytes
        if name in PACKED:
            assert found["mapped"]  # nothing was copied before the plan had cut it
        else:
            assert found["read"] == found["held"]


def test_what_is_split_was_seen(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["qwen3"]["seen"]["blocks/attention/attention-weights"] == 1
        assert rank["qwen3"]["seen"]["blocks/block-output"] is None
        assert rank["qwen3.gguf"]["seen"] == rank["qwen3"]["seen"]
        assert rank["mixtral.gguf"]["seen"] == rank["mixtral"]["seen"]
        assert set(rank["gpt_oss"]["seen"].values()) == {None}
        said = "GPT2LMHeadModel cannot be split over 2 ranks: transformers has no plan for it."
        assert rank["gpt2"] == {"refused": said}


def makes(shares: list[torch.Tensor], whole: torch.Tensor) -> bool:
    """Whether shares are all of a tensor each, or make it together: in order, or each of its halves in order."""
    if all(torch.equal(share, whole) for share in shares):
        return True
    for axis in range(whole.ndim):
        halves = list(chain.from_iterable(zip(*(share.chunk(2, axis) for share in shares), strict=True)))
        if any(torch.equal(torch.cat(parts, axis), whole) for parts in (shares, halves)):
            return True
    return False
