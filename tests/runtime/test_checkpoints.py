from __future__ import annotations

import hashlib
import math
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

from atlas.errors import CheckpointError
from atlas.runtime.checkpoints import Checkpoint, open_checkpoint, verify
from atlas.runtime.conversion import VERSION
from atlas.runtime.weights import locked

from .conftest import DIM, TinyGguf


def the_copy(checkpoint: Checkpoint, name: str) -> Path:
    return next(path for path in checkpoint.files if path.name == name)


def overwrite(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)


# --- the default checkpoint


def test_the_default_is_what_its_lock_says(checkpoint: Checkpoint) -> None:
    assert checkpoint.sha256 == locked()[0].sha256
    assert (checkpoint.format, checkpoint.architecture) == ("gguf", "llama")
    assert checkpoint.quantization == "Q4_1"
    assert checkpoint.parameter_count == 134_515_008
    assert checkpoint.warnings == ()
    assert checkpoint.config == {
        "dim": 576,
        "n_layers": 30,
        "n_heads": 9,
        "n_kv_heads": 3,
        "vocab_size": 49152,
        "multiple_of": 256,
        "norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "use_scaled_rope": False,
        "context_length": 8192,
        "tied_embeddings": True,
    }


def test_the_defaults_tensors(checkpoint: Checkpoint) -> None:
    tensors = checkpoint.tensors
    assert len(tensors) == 2 + 30 * 9 + 1
    assert tensors["output.weight"] is tensors["tok_embeddings.weight"]
    assert tensors["layers.29.attention.wk.weight"].shape == (192, 576)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert all(tensor.data_ptr() % 64 == 0 for tensor in tensors.values())


# --- the copy


def test_the_copy_holds_the_dequantised_numbers(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    path = tiny_gguf(quantization="Q8_0")
    opened = open_checkpoint(path, tmp_path / "data")
    theirs = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    query = theirs["blk.1.attn_q.weight"]
    expected = dequantize(query.data, query.tensor_type)
    assert np.array_equal(opened.tensors["layers.1.attention.wq.weight"].numpy(), expected)
    assert opened.name == "tiny"
    assert opened.parameter_count == sum(tensor.n_elements for tensor in theirs.values())
    assert opened.tokenizer.decode(opened.tokenizer.encode("hello wörld")) == "<|begin|>hello wörld"


def test_a_later_start_uses_the_copy(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    path = tiny_gguf()
    first = open_checkpoint(path, tmp_path / "data")
    before = the_copy(first, "weights.safetensors").stat()
    said: list[str] = []
    second = open_checkpoint(path, tmp_path / "data", lambda message, _: said.append(message))
    after = the_copy(second, "weights.safetensors").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert said == []
    assert second.config == first.config
    assert second.tokenizer.encode("hello") == first.tokenizer.encode("hello")


def truncated(content: bytes) -> bytes:
    return content[:-1]


def emptied(_: bytes) -> bytes:
    return b""


def tampered(content: bytes) -> bytes:
    return content.replace(b"1", b"2", 1) if b"1" in content[:4096] else content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("name", ["weights.safetensors", "vocabulary.json", "manifest.json"])
@pytest.mark.parametrize("damage", [truncated, tampered, emptied, None])
def test_a_damaged_copy_is_made_again(tiny_gguf: TinyGguf, tmp_path: Path, name: str, damage: Any) -> None:
    path = tiny_gguf()
    first = open_checkpoint(path, tmp_path / "data")
    expected = {name: tensor.clone() for name, tensor in first.tensors.items()}
    damaged = the_copy(first, "weights.safetensors").with_name(name)
    if damage:
        overwrite(damaged, damage(damaged.read_bytes()))
    else:
        damaged.unlink()
    again = open_checkpoint(path, tmp_path / "data")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in again.tensors.items())
    assert all(check.ok for check in verify(again))


VERSION_LINE = f'"version": {VERSION}'.encode()


def test_a_copy_of_another_version_is_made_again(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    path = tiny_gguf()
    manifest = the_copy(open_checkpoint(path, tmp_path / "data"), "weights.safetensors").with_name("manifest.json")
    other = manifest.read_bytes().replace(VERSION_LINE, b'"version": 0')
    overwrite(manifest, other)
    overwrite(manifest.with_suffix(".sha256"), hashlib.sha256(other).hexdigest().encode())
    open_checkpoint(path, tmp_path / "data")
    assert VERSION_LINE in manifest.read_bytes()


def test_verify_names_the_file_that_changed(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    opened = open_checkpoint(tiny_gguf(), tmp_path / "data")
    assert [check.ok for check in verify(opened)] == [True, True, True, True]
    vocabulary = the_copy(opened, "vocabulary.json")
    overwrite(vocabulary, b"{}")
    opened.path.unlink()
    checks = {check.path: check for check in verify(opened)}
    assert not checks[vocabulary].ok
    assert checks[vocabulary].found != checks[vocabulary].expected
    assert checks[opened.path].found is None
    assert checks[the_copy(opened, "weights.safetensors")].ok


def test_weights_with_nan_open_with_a_warning(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    gain = np.ones(DIM, np.float32)
    gain[3], gain[7] = np.nan, np.inf
    opened = open_checkpoint(tiny_gguf(tensors={"blk.1.ffn_norm.weight": gain}), tmp_path / "data")
    assert opened.warnings == ("layers.1.ffn_norm.weight: 2 of 64 weights are NaN or infinite.",)
    assert math.isnan(opened.tensors["layers.1.ffn_norm.weight"][3])


def test_what_a_killed_conversion_left_is_swept_up(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    left = tmp_path / "data" / "checkpoints" / ".partial-abc"
    (left / "new").mkdir(parents=True)
    (left / "new" / "weights.safetensors").write_bytes(b"half")
    open_checkpoint(tiny_gguf(), tmp_path / "data")
    assert not left.exists()


def test_a_disk_that_fills_up_leaves_nothing_to_be_used(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    path, data_dir = tiny_gguf(), tmp_path / "data"
    program = """
        import resource, sys
        from pathlib import Path
        from atlas.errors import StorageError
        from atlas.runtime.checkpoints import open_checkpoint
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        try:
            open_checkpoint(Path(sys.argv[1]), Path(sys.argv[2]))
        except StorageError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(path), str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "Could not write the converted copy of the weights: File too large" in done.stdout
    assert "Free some space" in done.stdout
    assert [left.name for left in (data_dir / "checkpoints").iterdir()] == [".lock"]
    assert open_checkpoint(path, data_dir).parameter_count > 0


# --- what cannot be opened


def test_refuses_what_is_no_checkpoint(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not weights")
    for path, reason in [
        (tmp_path / "absent.gguf", "cannot be read: No such file"),
        (tmp_path, "has no config.json"),
        (text, "in none of the formats"),
    ]:
        with pytest.raises(CheckpointError, match=reason) as raised:
            open_checkpoint(path, tmp_path / "data")
        assert raised.value.hint


def test_a_truncated_file_is_refused_though_a_copy_of_the_whole_is_there(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    path = tiny_gguf()
    open_checkpoint(path, tmp_path / "data")
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(CheckpointError, match="not a whole GGUF file"):
        open_checkpoint(path, tmp_path / "data")


def test_a_vocabulary_that_contradicts_itself_is_refused(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    path = tiny_gguf(metadata={"tokenizer.ggml.merges": ["no such"]})
    with pytest.raises(CheckpointError, match="the merge 'no such' is not of two tokens"):
        open_checkpoint(path, tmp_path / "data")
    assert [left.name for left in (tmp_path / "data" / "checkpoints").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pytorch_model.bin", "is a pickle, which can run code when it is read.*Give a directory"),
        ("consolidated.00.pth", "is a pickle, which can run code when it is read.*Give a directory"),
        ("model.safetensors", "says nothing of what its weights are of. Give the directory that it is in"),
        ("model.onnx", "is in none of the formats that are read .gguf.. Give a GGUF file, or a directory"),
    ],
)
def test_a_file_that_is_not_enough_says_what_would_be(tmp_path: Path, name: str, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path, tmp_path / "data")
    assert re.search(says, str(caught.value))
