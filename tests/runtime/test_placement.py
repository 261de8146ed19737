"""Number format, device and room: chosen from what is there, and compared before anything is allocated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from atlas.catalog import Catalog
from atlas.errors import CheckpointError, EnvironmentUnfit
from atlas.graph.nodes import Tensor
from atlas.inspection.checks._live import Witness
from atlas.inspection.checks.equations import compare_one, made_nodes
from atlas.runtime import placement
from atlas.runtime.adoption import adopt
from atlas.runtime.checkpoints import Checkpoint, open_checkpoint
from atlas.runtime.placement import Placement, chosen_placement, found_device, require_room
from atlas.runtime.references.base import ReferenceRunner
from atlas.runtime.references.hugging_face import Runner as LibraryRunner
from atlas.runtime.references.llama import Runner as MetaRunner
from atlas.runtime.untrained import untrained
from atlas.settings import Settings
from tests.runtime.conftest import TinyGguf

HALF = Placement(torch.bfloat16)


@pytest.mark.parametrize(("cuda", "mps", "found"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")])
def test_a_device_is_found_by_itself(monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, found: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert found_device().type == found
    assert found_device("cpu").type == "cpu"
    assert chosen_placement(Settings(dtype="bfloat16")) == Placement(torch.bfloat16, torch.device(found))


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(EnvironmentUnfit, match="finds no CUDA device") as caught:
        found_device("cuda")
    assert caught.value.hint == "Leave --device out: cpu is found by itself."


def test_what_several_processes_share_is_not_promised_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "free_memory", lambda _: 11 * 10**9)
    assert require_room(Path("mine"), 10**9, Placement(room=5 * 10**9)) == "4.0 GB in float32 on cpu, 5.0 GB free"
    with pytest.raises(CheckpointError, match=r"mine needs 8\.0 GB in float32 on cpu, 5\.0 GB free\."):
        require_room(Path("mine"), 2 * 10**9, Placement(room=5 * 10**9))


@pytest.mark.parametrize(
    ("numbers", "dtype", "says"),
    [
        (4_025_000_000, torch.float32, "mine needs 16.1 GB in float32 on cpu, 11.0 GB free. Try --dtype bfloat16."),
        (8_025_000_000, torch.float32, "mine needs 32.1 GB in float32 on cpu, 11.0 GB free. Use a machine with more"),
        (8_025_000_000, torch.bfloat16, "mine needs 16.1 GB in bfloat16 on cpu, 11.0 GB free. Use a machine with more"),
    ],
)
def test_what_does_not_fit_says_what_would(
    monkeypatch: pytest.MonkeyPatch, numbers: int, dtype: torch.dtype, says: str
) -> None:
    monkeypatch.setattr(placement, "free_memory", lambda _: 11 * 10**9)
    with pytest.raises(CheckpointError) as caught:
        require_room(Path("mine"), numbers, Placement(dtype))
    assert str(caught.value).startswith(says)
    name = str(dtype).removeprefix("torch.")
    assert (
        require_room(Path("mine"), 10**9 // dtype.itemsize, Placement(dtype))
        == f"1.0 GB in {name} on cpu, 11.0 GB free"
    )


def test_what_fits_beside_the_device_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "free_memory", lambda device: 10**10 if device.type == "cpu" else 10**9)
    with pytest.raises(CheckpointError) as caught:
        require_room(Path("mine"), 2 * 10**9, Placement(torch.float32, torch.device("cuda")))
    assert caught.value.hint == "Try --device cpu."


def test_free_memory_is_some() -> None:
    assert placement.free_memory(torch.device("cpu")) > 1 << 20


def test_a_file_is_opened_in_the_format_asked_for(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    path = tiny_gguf()
    whole, half = open_checkpoint(path, tmp_path), open_checkpoint(path, tmp_path, placement=HALF)
    assert {tensor.dtype for tensor in half.tensors.values()} == {torch.bfloat16}
    assert half.tensors["output.weight"] is not half.tensors["norm.weight"]
    assert half.tensors["output.weight"].data_ptr() == half.tensors["tok_embeddings.weight"].data_ptr()
    assert (half.nbytes, half.mapped) == (whole.nbytes // 2, None)
    assert (whole.identity, half.sha256) == (whole.sha256, whole.sha256)
    assert half.identity != whole.identity
    assert half.words == "bfloat16 on cpu, 0.2 MB in memory"
    assert whole.words == "float32 on cpu, 0.3 MB mapped from their file"


def test_weights_that_do_not_fit_stay_in_their_file_and_say_so(
    tiny_gguf: TinyGguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atlas.runtime import checkpoints

    monkeypatch.setattr(checkpoints, "free_memory", lambda _: 100_000)
    opened = open_checkpoint(tiny_gguf(), tmp_path, in_memory=1 << 30)
    assert opened.mapped is not None
    assert opened.warnings == (
        "It needs 0.3 MB in float32, 0.1 MB free: it is read from the disk again in each pass. Try --dtype bfloat16.",
    )


def _halved(checkpoint: Checkpoint) -> Checkpoint:
    tensors = {name: tensor.bfloat16() for name, tensor in checkpoint.tensors.items()}
    return replace(checkpoint, tensors=tensors, placement=HALF)


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_bfloat16_is_recorded_replayed_and_checked(
    architecture: str, catalog: Catalog, tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    if architecture == "llama":
        own, checkpoint = Catalog(catalog.store), open_checkpoint(tiny_gguf(), tmp_path, placement=HALF)
        runner: ReferenceRunner = MetaRunner(adopt(own, "mine", checkpoint), checkpoint)
    else:
        small = catalog.small(architecture)
        runner = LibraryRunner(small, _halved(untrained(small)))
    witness = Witness(runner)
    last = runner.n_layers - 1
    for taken in (witness.passes[0], witness.passes[-2]):
        recorded = taken.recording
        for layer in (0, last):
            nodes = [
                path
                for path, node in runner.model.graph.nodes.items()
                if node.in_blocks and isinstance(node.node, Tensor) and node.exists_in(layer)
            ]
            again = runner.replay(taken.work, witness.memory, "block", layer, runner.sites(nodes))
            for node in nodes:
                one, other = recorded.last(node, layer), again.last(node, layer)
                assert (one is None) == (other is None), node
                assert one is None or other is None or (one.dtype, one.shape) == (other.dtype, other.shape), node
                assert one is None or other is None or torch.equal(one, other) or bool(torch.isnan(one).any()), node
        for resolved in made_nodes(runner.model):
            compared = compare_one(witness, taken, resolved, last if resolved.in_blocks else None)
            assert compared is None or compared.check.ok, (resolved.path, compared)
    assert witness.passes[0].recording.last("blocks/block-output", 0).dtype is torch.bfloat16  # type: ignore[union-attr]


def test_a_run_in_bfloat16_is_another_run_and_comes_back_from_the_journal(catalog: Catalog, tmp_path: Path) -> None:
    from atlas.runtime.journal import Journal
    from atlas.runtime.runs import RunRequest
    from atlas.runtime.shelf import Shelf, identity_of

    small = catalog.small("qwen3")
    whole, half = LibraryRunner(small, untrained(small)), LibraryRunner(small, _halved(untrained(small)))
    request = RunRequest(model=small.id, token_ids=(1, 2), max_new_tokens=2, temperature=0, seed=0)
    identity = identity_of(request, half)
    assert identity != identity_of(request, whole)
    journal = Journal(tmp_path / "runs.sqlite3")
    try:
        Shelf(journal, lambda _: half).new(identity, request, half)
        again = Shelf(journal, lambda _: half).find(identity)
        assert again is not None
        assert again.request == request
        with pytest.raises(Exception, match="other weights"):
            Shelf(journal, lambda _: whole).find(identity)
    finally:
        journal.close()
