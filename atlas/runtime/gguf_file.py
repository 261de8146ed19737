"""GGUF files: what the header says, and a tensor's numbers. Knows no architecture.

The header is walked here rather than by the gguf package, whose reader trusts the counts and lengths that
it meets and takes seconds for a vocabulary: here each is compared with a bound and with what is left of the
file before anything is allocated for it. The package does the dequantisation. Format: docs/gguf.md of
ggml-org/ggml.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from atlas.errors import CheckpointError

MAGIC = b"GGUF"
Value = int | float | bool | str | list[int] | list[float] | list[bool] | list[str]

_VERSIONS = (2, 3)
_MAX_ENTRIES = 1 << 16  # metadata entries, and tensors
_MAX_KEY = 1 << 16  # bytes
_MAX_ITEMS = 1 << 23  # items of all arrays together: the largest vocabularies have some 300,000 tokens and merges
_MAX_HEADER = 1 << 28  # bytes
_MAX_DIMENSIONS = 4
_CHUNK = 1 << 24  # numbers dequantised at a time
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}


@dataclass(frozen=True)
class TensorEntry:
    """One tensor: its shape as torch writes it (rows before columns), its type, and its bytes in the file."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    size: int

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class GgufFile:
    """A header that holds together: every tensor lies within the file, and no two overlap."""

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, TensorEntry]

    def numbers(self, name: str, start: int = 0, stop: int | None = None) -> Iterator[npt.NDArray[np.float32]]:
        """A tensor's numbers in order, dequantised to float32, in pieces of at most 64 MiB or one row.

        `start` and `stop` count rows, those of all leading dimensions together.

        Raises CheckpointError if the file has become shorter, or the type cannot be dequantised; OSError if
        it cannot be read.
        """
        entry = self.tensors[name]
        block, block_bytes = GGML_QUANT_SIZES[entry.type]
        row = entry.shape[-1]
        row_bytes = row // block * block_bytes
        rows = entry.count // row if stop is None else stop
        step = max(1, _CHUNK // row)
        with self.path.open("rb") as file, np.errstate(all="ignore"):
            file.seek(entry.offset + start * row_bytes)
            for first in range(start, rows, step):
                wanted = min(step, rows - first) * row_bytes
                data = file.read(wanted)
                if len(data) != wanted:
                    _refuse(self.path, f"it has become shorter while {name} was read")
                try:
                    yield dequantize(np.frombuffer(data, np.uint8).reshape(-1, row_bytes), entry.type).reshape(-1)
                except NotImplementedError as error:
                    raise CheckpointError(
                        f"{name} in {self.path} is {entry.type.name}, which cannot be dequantised here.",
                        "Choose a file in another quantisation, such as Q8_0 or Q4_K_M.",
                    ) from error


def read_header(path: Path) -> GgufFile:
    """Reads and checks the header. Raises CheckpointError; OSError if the file cannot be read."""
    with path.open("rb") as file:
        return _Walk(path, file, path.stat().st_size).header()


class _Walk:
    """One pass over a header. Whatever is to be read is first compared with what the file has left."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path = path
        self.size = size
        self._file = file
        self._at = 0
        self._items = 0

    def header(self) -> GgufFile:
        if self._take(4, "the magic number") != MAGIC:
            _refuse(self.path, "it does not begin with GGUF")
        version = self._integer("<I")
        if version not in _VERSIONS:
            swapped = int.from_bytes(struct.pack("<I", version), "big") in _VERSIONS
            reason = "it is written for big-endian machines" if swapped else f"its version is {version}, not 2 or 3"
            _refuse(self.path, reason)
        tensor_count, entry_count = self._count("tensors"), self._count("metadata entries")
        metadata: dict[str, Value] = {}
        for _ in range(entry_count):
            key = self._string(_MAX_KEY)
            if key in metadata:
                _refuse(self.path, f"it states {key} twice")
            metadata[key] = self._value(self._integer("<I"), key)
        raw = [self._tensor() for _ in range(tensor_count)]
        tensors = self._placed(raw, self._alignment(metadata))
        return GgufFile(self.path, metadata, tensors)

    def _take(self, count: int, what: str) -> bytes:
        if count > self.size - self._at:
            _refuse(
                self.path,
                f"it ends inside {what} (byte {self._at:,} of {self.size:,}, {count:,} more wanted)",
            )
        if count > _MAX_HEADER - self._at:
            _refuse(self.path, f"its header is larger than {_MAX_HEADER >> 20} MiB")
        data = self._file.read(count)
        if len(data) != count:
            _refuse(self.path, "it has become shorter while its header was read")
        self._at += count
        return data

    def _integer(self, code: str) -> int:
        value: int = struct.unpack(code, self._take(struct.calcsize(code), "its header"))[0]
        return value

    def _count(self, what: str) -> int:
        count = self._integer("<Q")
        if count > _MAX_ENTRIES:
            _refuse(self.path, f"it claims {count:,} {what}")
        return count

    def _string(self, limit: int) -> str:
        length = self._integer("<Q")
        if length > limit:
            _refuse(self.path, f"a string at byte {self._at:,} claims {length:,} bytes")
        try:
            return self._take(length, "a string").decode()
        except UnicodeDecodeError:
            _refuse(self.path, f"the string before byte {self._at:,} is not UTF-8")

    def _value(self, kind: int, key: str) -> Value:
        if kind == _STRING:
            return self._string(_MAX_HEADER)
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            _refuse(self.path, f"{key} is of the unknown type {kind}")
        code = _SCALARS[kind]
        value: int | float | bool = struct.unpack(code, self._take(struct.calcsize(code), key))[0]
        return value

    def _array(self, key: str) -> Value:
        kind, length = self._integer("<I"), self._integer("<Q")
        self._items += length
        if self._items > _MAX_ITEMS:
            _refuse(self.path, f"{key} claims {length:,} items")
        if kind == _STRING:
            return [self._string(_MAX_HEADER) for _ in range(length)]
        if kind not in _SCALARS:
            _refuse(self.path, f"{key} is an array of the unknown type {kind}")
        code = _SCALARS[kind]
        data = self._take(length * struct.calcsize(code), key)
        return list(struct.unpack(f"<{length}{code[1]}", data))

    def _tensor(self) -> TensorEntry:
        """A tensor as its entry states it; `offset` is still relative to where the data begin."""
        name = self._string(_MAX_KEY)
        dimensions = self._integer("<I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            _refuse(self.path, f"{name} claims {dimensions} dimensions")
        shape = tuple(reversed([self._integer("<Q") for _ in range(dimensions)]))
        kind, offset = self._integer("<I"), self._integer("<Q")
        try:
            quantization = GGMLQuantizationType(kind)
        except ValueError:
            _refuse(self.path, f"{name} is of the unknown type {kind}")
        block, block_bytes = GGML_QUANT_SIZES[quantization]
        if not all(shape) or shape[-1] % block:
            _refuse(self.path, f"{name} of shape {list(shape)} cannot be of type {quantization.name}")
        return TensorEntry(name, shape, quantization, offset, math.prod(shape) // block * block_bytes)

    def _alignment(self, metadata: dict[str, Value]) -> int:
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
            _refuse(self.path, f"general.alignment is {alignment!r}, not a power of two")
        return alignment

    def _placed(self, raw: list[TensorEntry], alignment: int) -> dict[str, TensorEntry]:
        start = -(-self._at // alignment) * alignment
        end = start
        tensors: dict[str, TensorEntry] = {}
        for entry in sorted(raw, key=lambda entry: entry.offset):
            offset = start + entry.offset
            if entry.name in tensors:
                _refuse(self.path, f"it holds {entry.name} twice")
            if entry.offset % alignment or offset < end:
                _refuse(self.path, f"{entry.name} lies at byte {offset:,}, where it cannot")
            end = offset + entry.size
            if end > self.size:
                _refuse(self.path, f"it has {self.size:,} bytes, and {entry.name} alone reaches to byte {end:,}")
            tensors[entry.name] = TensorEntry(entry.name, entry.shape, entry.type, offset, entry.size)
        return tensors


def _refuse(path: Path, reason: str) -> NoReturn:
    raise CheckpointError(
        f"{path} is not a whole GGUF file: {reason}.",
        "Download it again, and compare its sha256 with its publisher's.",
    )
