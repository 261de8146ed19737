"""The default model split over three processes computes what one process computes, in every node of every layer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors import safe_open

from tests.runtime.distributed import whole_run
from tests.runtime.distributed.conftest import StartRanks

if TYPE_CHECKING:
    from atlas.runtime.engine import Engine

TOLERANCE = 2e-5
"""Of the norm of each row: another order of summation, and nothing else."""


@pytest.fixture(scope="module")
def written(start_ranks: StartRanks, own_data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where three ranks have written all that they computed."""
    out = tmp_path_factory.mktemp("split")
    ranks = start_ranks([str(Path(whole_run.__file__)), str(own_data_dir), str(out)])
    said = [process.communicate(timeout=300)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0, 0], "\n".join(said)
    return out


@pytest.fixture(scope="module")
def run(engine: Engine) -> Iterator[str]:
    """The same run in one process."""
    identity = engine.submit(whole_run.REQUEST).id
    while engine.view(identity).status != "done":
        time.sleep(0.02)
    yield identity
    engine.delete(identity)


def test_the_tokens_are_the_same(written: Path, run: str, engine: Engine) -> None:
    assert json.loads((written / "tokens.json").read_text()) == engine.run(run).ids


@pytest.mark.parametrize(("view", "step"), whole_run.PASSES)
def test_every_node_of_every_layer_agrees_row_by_row(
    written: Path, run: str, engine: Engine, view: str, step: int | None
) -> None:
    ours = whole_run.whole_run(engine, run, view, step)
    with safe_open(written / f"{view}.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(ours)
        worst = {
            # A masked row is infinitely long: its numbers are measured by the row as it was before the mask.
            name: difference(file.get_tensor(name), tensor, ours[name.replace("masked-", "scaled-")])
            for name, tensor in ours.items()
        }
    assert len(worst) > 30 * 25
    assert not {name: found for name, found in worst.items() if not found <= TOLERANCE}


def difference(split: torch.Tensor, whole: torch.Tensor, rows: torch.Tensor) -> float:
    """The worst row: the norm of what differs over the norm of its row in `rows`. Infinities are the same or not."""
    assert (split.shape, split.dtype) == (whole.shape, whole.dtype)
    if torch.equal(split, whole):
        return 0.0
    if split.dtype == torch.long:
        return float("inf")
    finite = torch.isfinite(whole)
    if not torch.equal(split[~finite], whole[~finite]):
        return float("inf")
    exact = torch.complex128 if whole.is_complex() else torch.float64
    ours, theirs = (torch.where(finite, tensor, 0).to(exact) for tensor in (whole, split))
    norms, apart = rows.to(exact).norm(dim=-1), (ours - theirs).norm(dim=-1)
    return float(torch.where(apart > 0, apart / norms, 0.0).max())
