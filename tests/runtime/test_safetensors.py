"""Headers of safetensors files that are not what they should be: read or refused, with little memory either way."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from atlas.errors import CheckpointError
from atlas.runtime.hugging_face_directory import open_directory

BOUND = 4 << 20
"""Bytes of Python's own that a refusal may take."""
once = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
Written = Callable[[bytes], Path]


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """A file of two tensors."""
    path = tmp_path / "whole.safetensors"
    save_file({"a.weight": torch.arange(12.0).reshape(3, 4), "b.weight": torch.zeros(5)}, path)
    return path.read_bytes()


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """A directory of a model whose weights are these bytes."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"architectures": ["NobodyKnowsMe"], "model_type": "nobody"}))
    (directory / "tokenizer.json").write_text("{}")

    def write(data: bytes) -> Path:
        (directory / "model.safetensors").write_bytes(data)
        return directory

    return write


def refused(directory: Path, tmp_path: Path) -> str:
    """Opens it: it must be refused, by its header or because nobody knows such a model. What is said."""
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError) as caught:
            open_directory(directory, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < BOUND
    finally:
        tracemalloc.stop()
    assert caught.value.hint
    return caught.value.detail


def header(entries: dict[str, Any], length: int | None = None) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


HUGE = 1 << 60


WRONG = {
    "empty": b"",
    "shorter than its length": b"\x00" * 7,
    "a length beyond the file": struct.pack("<Q", HUGE),
    "a length beyond any file": header({}, length=HUGE),
    "the largest length": header({}, length=(1 << 64) - 1),
    "a tensor larger than the file": header({"a": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * 1000]}})
    + b"\x00" * 4000,
    "sizes whose product overflows": header({"a": {"dtype": "F32", "shape": [HUGE, HUGE], "data_offsets": [0, 0]}}),
    "an end beyond the file": header({"a": {"dtype": "F32", "shape": [10], "data_offsets": [0, HUGE]}}),
    "an end before its begin": header({"a": {"dtype": "F32", "shape": [10], "data_offsets": [40, 0]}}) + b"\x00" * 40,
    "an unknown dtype": header({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}) + b"\x00" * 4,
    "a negative size": header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}) + b"\x00" * 4,
    "entries that are numbers": header({f"t{number}": 7 for number in range(1000)}),
    "brackets": struct.pack("<Q", 6) + b"[[[[[[",
    "no text": struct.pack("<Q", 4) + b"\xff\xfe\xfd\xfc",
}


@pytest.mark.parametrize("what", WRONG)
def test_a_header_that_cannot_be_is_refused_before_anything_is_allocated(
    written: Written, tmp_path: Path, what: str
) -> None:
    assert "is no whole safetensors file" in refused(written(WRONG[what]), tmp_path)


@once
@given(data=st.data())
def test_a_file_cut_anywhere_is_refused(written: Written, whole: bytes, tmp_path: Path, data: st.DataObject) -> None:
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert "is no whole safetensors file" in refused(written(cut), tmp_path)


@once
@given(data=st.data())
def test_a_header_with_any_bytes_changed_is_read_or_refused(
    written: Written, whole: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(whole)
    end = 8 + struct.unpack_from("<Q", whole)[0]
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(UnicodeDecodeError):
        refused(written(bytes(content)), tmp_path)
