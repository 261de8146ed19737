"""A small random Llama in Meta's own layout, whole or in shards, written here and opened as a reader would."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from atlas.catalog import Catalog
from atlas.errors import CheckpointError
from atlas.runtime.adoption import adopt
from atlas.runtime.checkpoints import open_checkpoint, verify
from atlas.runtime.distributed.shares import WeightShare
from atlas.runtime.llama_layout import parameter_shapes
from atlas.runtime.placement import Placement
from atlas.runtime.references.base import Pass
from atlas.runtime.references.llama import Runner

PARAMS: dict[str, Any] = {
    **{"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 520, "multiple_of": 32},
    **{"norm_eps": 1e-5, "rope_theta": 10000.0, "use_scaled_rope": False},
}
CONFIG = {**PARAMS, "tied_embeddings": False}
ROWS = ("wq", "wk", "wv", "w1", "w3", "output", "tok_embeddings")
COLUMNS = ("wo", "w2")
IDS = (5, 100, 42, 7, 7, 200, 19, 3, 500)
Write = Callable[..., Path]


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator) / (shape[-1] ** 0.5 if len(shape) > 1 else 1)
        for name, shape in parameter_shapes(CONFIG).items()
    }


def write_ranks(path: Path) -> None:
    """Every byte, and a few pairs: what tiktoken reads."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"he", b"ll", b"hell", b"hello", b" w", b" wo"]
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)))


def write_small(where: Path, shards: int = 1, dtype: torch.dtype = torch.float32, **changes: Any) -> Path:
    """Writes the model in so many shards; `changes` are to params.json, None removes an entry."""
    directory = where / "tiny-llama"
    directory.mkdir(exist_ok=True)
    for at in range(shards):
        part = {}
        for name, tensor in weights().items():
            kind = name.split(".")[-2]
            axis = 0 if kind in ROWS else 1 if kind in COLUMNS else None
            part[name] = (tensor if axis is None else tensor.chunk(shards, axis)[at]).clone().to(dtype)
        part["rope.freqs"] = torch.ones(8)
        torch.save(part, directory / f"consolidated.{at:02}.pth")
    stated = {name: value for name, value in (PARAMS | changes).items() if value is not None}
    (directory / "params.json").write_text(json.dumps(stated))
    write_ranks(directory / "tokenizer.model")
    return directory


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return partial(write_small, tmp_path)


class Copied(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that are copied from one tensor to another while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default, torch.ops.aten.clone.default):
            self.bytes += args[-1].nbytes
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("shards", [1, 2])
def test_shards_are_put_together_along_the_axes_they_were_cut(write: Write, tmp_path: Path, shards: int) -> None:
    checkpoint = open_checkpoint(write(shards), tmp_path)
    assert (checkpoint.architecture, checkpoint.format, checkpoint.name) == ("llama", "meta", "tiny-llama")
    assert checkpoint.tensors.keys() == weights().keys()
    for name, tensor in weights().items():
        assert torch.equal(checkpoint.tensors[name], tensor), name
    assert checkpoint.parameter_count == sum(tensor.numel() for tensor in weights().values())
    assert len(checkpoint.files) == shards + 2
    assert all(check.ok for check in verify(checkpoint))


def test_it_runs_and_gives_the_logits_of_an_independent_implementation(
    write: Write, catalog: Catalog, tmp_path: Path
) -> None:
    from atlas.inspection.checks._independent import independent_logits

    checkpoint = open_checkpoint(write(2), tmp_path)
    model = adopt(Catalog(catalog.store), "mine", checkpoint)
    assert model.name == "tiny-llama"
    runner = Runner(model, checkpoint)
    ours = runner.forward(Pass(IDS, 0), runner.memory(len(IDS)))
    theirs = independent_logits(runner, IDS)
    assert ((ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)).max() < 1e-5


@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_of_two_reads_its_share_of_the_shards(
    write: Write, catalog: Catalog, tmp_path: Path, shards: int, rank: int
) -> None:
    share = WeightShare.of_rank(catalog["smollm2-135m"], rank, 2)
    directory = write(shards, torch.bfloat16)
    with Copied() as copied:
        own = open_checkpoint(directory, tmp_path, placement=Placement(share=share))
    for name, tensor in weights().items():
        assert torch.equal(own.tensors[name], tensor[share.index(name, tensor.shape)].bfloat16().float()), name
    assert own.mapped is None
    assert own.nbytes < 0.51 * sum(tensor.nbytes for tensor in weights().values())
    assert copied.bytes == own.nbytes // 2  # bfloat16 is read, and nothing else of any shard


def test_what_needs_no_copy_stays_mapped(write: Write, tmp_path: Path) -> None:
    directory = write(1, torch.bfloat16)
    half = open_checkpoint(directory, tmp_path, placement=Placement(torch.bfloat16))
    assert half.mapped is not None
    assert half.mapped.path.name == "consolidated.00.pth"
    assert half.words == "bfloat16 on cpu, 0.3 MB mapped from their file"
    assert half.quantization == "bfloat16"
    whole = open_checkpoint(directory, tmp_path)
    assert whole.mapped is None
    assert torch.equal(whole.tensors["norm.weight"], half.tensors["norm.weight"].float())


def test_its_own_tokenizer_is_used(write: Write, tmp_path: Path) -> None:
    tokenizer = open_checkpoint(write(), tmp_path).tokenizer
    ids = tokenizer.encode("hello w\N{GRINNING FACE}<|eot_id|>")
    assert ids[:3] == [tokenizer.bos_id, 259, 260]
    assert not set(ids[1:]) & tokenizer.special_ids
    assert tokenizer.decode(ids[1:]) == "hello w\N{GRINNING FACE}<|eot_id|>"


def test_an_unembedding_that_is_the_embedding_counts_once(write: Write, tmp_path: Path) -> None:
    directory = write()
    content = torch.load(directory / "consolidated.00.pth", weights_only=True)
    torch.save(content | {"output.weight": content["tok_embeddings.weight"]}, directory / "consolidated.00.pth")
    checkpoint = open_checkpoint(directory, tmp_path)
    assert checkpoint.config["tied_embeddings"] is True
    assert checkpoint.parameter_count == sum(tensor.numel() for tensor in weights().values()) - 520 * 64


def test_a_vocabulary_left_to_the_tokenizer_is_the_embeddings(write: Write, tmp_path: Path) -> None:
    assert open_checkpoint(write(vocab_size=-1), tmp_path).config["vocab_size"] == 520


class _Code:
    """Writes a file when it is unpickled."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.witness}",)


def _broken(directory: Path, how: str) -> None:
    shard, params = directory / "consolidated.01.pth", directory / "params.json"
    match how:
        case "no params":
            params.unlink()
        case "no JSON":
            params.write_text("{")
        case "a list":
            params.write_text("[]")
        case "no tokenizer":
            (directory / "tokenizer.model").unlink()
        case "a strange tokenizer":
            (directory / "tokenizer.model").write_bytes(b"\n\x0b\n\x05<unk>")
        case "no first shard":
            (directory / "consolidated.00.pth").unlink()
        case "no last shard":
            shard.unlink()
        case "code":
            torch.save({"norm.weight": _Code(directory / "ran")}, shard)
        case "cut short":
            shard.write_bytes(shard.read_bytes()[:-3000])
        case "no archive":
            torch.save({"norm.weight": torch.ones(3)}, shard, _use_new_zipfile_serialization=False)
        case "no tensors":
            torch.save({"epoch": 3}, shard)
        case "in one only":
            content = torch.load(shard, weights_only=True)
            del content["layers.1.ffn_norm.weight"]
            torch.save(content, shard)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("no params", "has no params.json"),
        ("no JSON", "params.json cannot be read"),
        ("a list", "is no configuration"),
        ("no tokenizer", "has no tokenizer.model"),
        ("a strange tokenizer", "not a tokenizer.model in Meta's format"),
        ("no first shard", "lacks 1 of its files of weights: consolidated.00.pth"),
        ("no last shard", "has 1 of 2 shards: layers.0.attention.wq.weight has 32 rows of 64"),
        ("code", r"consolidated.01.pth is a pickle that asks for code to be run \(posix.system\). That is never done"),
        ("cut short", "consolidated.01.pth is no whole file of weights"),
        ("no archive", "consolidated.01.pth is no whole file of weights: mmap can only be used"),
        ("no tensors", "holds something else than tensors by name"),
        ("in one only", "in some shards only: layers.1.ffn_norm.weight"),
    ],
)
def test_what_is_missing_or_broken_is_said(write: Write, tmp_path: Path, how: str, says: str) -> None:
    directory = write(2)
    _broken(directory, how)
    with pytest.raises(CheckpointError, match=says) as caught:
        open_checkpoint(directory, tmp_path)
    assert caught.value.hint
    assert not (directory / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n_layers": 3}, "asks for: missing: layers.2.attention_norm.weight.* and 5 more"),
        ({"n_layers": 1}, "asks for: extra: layers.1."),
        ({"multiple_of": 256}, "asks for: misshapen: layers.0.feed_forward.w1.weight"),
        ({"vocab_size": 400}, "misshapen: tok_embeddings.weight"),
        ({"n_kv_heads": 3}, "4 query heads and 3 key heads"),
        ({"dim": "64"}, "dim is '64'"),
        ({"n_layers": None}, "n_layers is None"),
        ({"vision_chunk_size": 448}, "does not compute: vision_chunk_size"),
    ],
)
def test_params_that_disagree_with_the_weights_are_refused(
    write: Write, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(CheckpointError, match=says):
        open_checkpoint(write(2, **changes), tmp_path)


def test_what_does_not_fit_is_refused_before_it_is_read(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atlas.runtime import placement

    monkeypatch.setattr(placement, "free_memory", lambda _: 450_000)
    directory = write(2)
    with pytest.raises(CheckpointError, match=r"needs 0.7 MB in float32 on cpu, 0.5 MB free. Try --dtype bfloat16"):
        open_checkpoint(directory, tmp_path)
    assert open_checkpoint(directory, tmp_path, placement=Placement(torch.bfloat16)).nbytes < 450_000
