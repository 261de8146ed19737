from __future__ import annotations

import contextlib
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atlas.errors import CheckpointError
from atlas.runtime.gguf_file import read_header

from .conftest import TinyGguf

once = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def header(*, magic: bytes = b"GGUF", version: int = 3, tensors: int = 0, entries: int = 0, rest: bytes = b"") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, entries) + rest


def string(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


@pytest.mark.parametrize("quantization", ["F32", "F16", "BF16", "Q8_0", "Q4_1", "Q4_0"])
def test_agrees_with_the_packages_own_reader(tiny_gguf: TinyGguf, quantization: str) -> None:
    path = tiny_gguf(quantization=quantization)
    ours, theirs = read_header(path), GGUFReader(path)
    expected = {key: field.contents() for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert ours.metadata == expected
    assert {tensor.name for tensor in theirs.tensors} == ours.tensors.keys()
    for tensor in theirs.tensors:
        entry = ours.tensors[tensor.name]
        assert (entry.offset, entry.size, entry.type) == (
            tensor.data_offset,
            tensor.n_bytes,
            tensor.tensor_type,
        )
        assert list(entry.shape) == list(reversed(tensor.shape.tolist()))
        numbers = np.concatenate(list(ours.numbers(tensor.name)))
        assert np.array_equal(numbers, dequantize(tensor.data, tensor.tensor_type).reshape(-1))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends inside the magic number"),
        (header(magic=b"GGML"), "does not begin with GGUF"),
        (header(version=1), "its version is 1"),
        (header(version=3 << 24), "big-endian"),
        (header(tensors=1 << 60), "claims 1,152,921,504,606,846,976 tensors"),
        (header(entries=1 << 60), "metadata entries"),
        (header(entries=1, rest=string(b"k", 1 << 40)), "claims 1,099,511,627,776 bytes"),
        (
            header(entries=1, rest=string(b"k") + struct.pack("<I", 8) + string(b"", 1 << 27)),
            "ends inside a string",
        ),
        (header(entries=1, rest=string(b"k") + struct.pack("<I", 99)), "unknown type 99"),
        (header(entries=1, rest=string(b"k") + struct.pack("<IIQ", 9, 8, 1 << 50)), "items"),
        (header(entries=1, rest=string(b"k") + struct.pack("<IIQ", 9, 12, 1 << 22)), "ends inside k"),
        (header(entries=1, rest=string(b"k") + struct.pack("<IIQ", 9, 9, 1)), "unknown type 9"),
        (header(entries=1, rest=string(b"\xff") + struct.pack("<IB", 0, 1)), "not UTF-8"),
        (header(entries=2, rest=2 * (string(b"k") + struct.pack("<IB", 0, 1))), "states k twice"),
        (header(tensors=1, rest=string(b"t") + struct.pack("<I", 1 << 31)), "dimensions"),
        (header(tensors=1, rest=string(b"t") + struct.pack("<IQIQ", 1, 4, 77, 0)), "unknown type 77"),
        (header(tensors=1, rest=string(b"t") + struct.pack("<IQIQ", 1, 33, 8, 0)), "cannot be of type Q8_0"),
        (
            header(tensors=1, rest=string(b"t") + struct.pack("<IQQIQ", 2, 1 << 63, 1 << 63, 0, 0)),
            "reaches to byte",
        ),
        (header(tensors=1, rest=string(b"t") + struct.pack("<IQIQ", 1, 4, 0, 7)), "where it cannot"),
    ],
)
def test_refuses_what_cannot_be_before_it_allocates(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=reason) as raised:
        read_header(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert str(path) in raised.value.detail
    assert raised.value.hint


def test_refuses_overlapping_tensors(tmp_path: Path) -> None:
    def tensor(name: bytes, offset: int) -> bytes:
        return string(name) + struct.pack("<IQIQ", 1, 16, 0, offset)

    path = tmp_path / "bad.gguf"
    path.write_bytes(header(tensors=2, rest=tensor(b"a", 0) + tensor(b"b", 32)) + bytes(200))
    with pytest.raises(CheckpointError, match="b lies at byte"):
        read_header(path)


@once
@given(st.data())
def test_a_file_cut_anywhere_is_refused(tiny_gguf: TinyGguf, data: st.DataObject) -> None:
    whole = tiny_gguf().read_bytes()
    path = tiny_gguf("cut.gguf")
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(CheckpointError):
        read_header(path)


@once
@given(st.data())
def test_a_header_with_any_bytes_changed_is_read_or_refused(tiny_gguf: TinyGguf, data: st.DataObject) -> None:
    path = tiny_gguf()
    content = bytearray(path.read_bytes())
    end = min(entry.offset for entry in read_header(path).tensors.values())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(CheckpointError):
        read_header(path)


def test_says_if_the_file_becomes_shorter(tiny_gguf: TinyGguf) -> None:
    path = tiny_gguf()
    file = read_header(path)
    last = max(file.tensors.values(), key=lambda entry: entry.offset)
    with path.open("r+b") as stream:
        stream.truncate(last.offset + 4)
    with pytest.raises(CheckpointError, match="become shorter"):
        list(file.numbers(last.name))


def test_names_a_quantisation_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    entry = string(b"t") + struct.pack("<IQIQ", 1, 32, 24, 0)  # I8: no quantisation of weights
    path.write_bytes(header(tensors=1, rest=entry) + bytes(128))
    with pytest.raises(CheckpointError, match=r"t in .* is I8"):
        list(read_header(path).numbers("t"))
