"""A tensor as tiles: cut so that a plane of any size is read in pieces, packed so that they are small.

A tensor is seen as planes [rows, columns], its last two axes. As many whole planes as fit make one tile; a plane that
is larger is cut into tiles of its own. A tile's bytes are little-endian numbers in row order, sorted by significance
(first the lowest byte of every number, then the next one: bytes that are alike stand together), then deflated. Knows
no runs and no files. `static/live/recorded/blocks.js` reads the same.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from atlas.errors import BadRequest
from atlas.inspection.arrays import Array, as_array, dtype_name, lowest
from atlas.inspection.tiles import reduce

CELLS = 1 << 16
SIDE = 256
JUDGED_WHOLE, SAMPLE = 1 << 16, 1 << 13
"""Bytes up to which both ways of deflating are tried on all of it, and how many of each lane tell of more."""
OVERVIEW_FROM = 4 * CELLS
"""Cells of a plane above which an overview is kept beside the tiles."""

WIDTHS = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "bool": 1, "complex64": 8}
"""The dtypes that can be kept, with their bytes."""


@dataclass(frozen=True)
class Tiling:
    """How a tensor of `planes` x `rows` x `columns` is cut: a tile is `tall` x `wide` of `deep` planes, or the rest."""

    planes: int
    rows: int
    columns: int
    deep: int
    tall: int
    wide: int

    def boxes(self) -> Iterator[tuple[slice, slice, slice]]:
        """What each tile holds, in order."""
        for planes in _cuts(self.planes, self.deep):
            for rows in _cuts(self.rows, self.tall):
                for columns in _cuts(self.columns, self.wide):
                    yield planes, rows, columns


def tiling(shape: Sequence[int]) -> Tiling:
    """The one way in which a shape is cut."""
    columns = shape[-1] if shape else 1
    rows = shape[-2] if len(shape) > 1 else 1
    planes = math.prod(shape[:-2])
    plane = rows * columns
    if plane <= CELLS:
        return Tiling(planes, rows, columns, max(1, CELLS // max(1, plane)), rows, columns)
    tall = min(rows, SIDE)
    wide = max(SIDE, 1 << (CELLS // tall).bit_length() - 1)
    return Tiling(planes, rows, columns, 1, tall, min(columns, wide))


def raw(tensor: torch.Tensor) -> Array:
    """The numbers bit for bit; bfloat16, which numpy lacks, as unsigned whole numbers of its bits.

    Raises `BadRequest` for a dtype that cannot be kept.
    """
    if dtype_name(tensor) not in WIDTHS:
        raise BadRequest(f"Numbers of {dtype_name(tensor)} cannot be recorded.", f"Known are {', '.join(WIDTHS)}.")
    if tensor.dtype is torch.bfloat16:
        array: Array = tensor.detach().cpu().contiguous().view(torch.int16).numpy().view(np.uint16)
        return array
    array = as_array(tensor)
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


@dataclass(frozen=True)
class Packed:
    """Deflated bytes, and how many they are inflated."""

    content: bytes
    full: int


def pack_text(content: bytes) -> Packed:
    """Text as it is kept."""
    return Packed(zlib.compress(content, 6), len(content))


def pack(block: Array) -> Packed:
    """The bytes of a tile."""
    width = block.dtype.itemsize
    content = np.frombuffer(np.ascontiguousarray(block).tobytes(), np.uint8).reshape(-1, width)
    return Packed(deflated(np.ascontiguousarray(content.T).tobytes(), width), content.size)


def deflated(content: bytes, lanes: int = 1) -> bytes:
    """Deflated in whichever of two ways is smaller; where there is much, the beginning of each of its `lanes` tells.

    Measured numbers hardly repeat, but for runs of the same byte: then looking for other repetitions takes six times as
    long, and gives more bytes. Heads that share keys do repeat.
    """
    if len(content) <= JUDGED_WHOLE:
        return min(_runs(content), zlib.compress(content, 6), key=len)
    length = len(content) // lanes
    told = [content[at * length : at * length + SAMPLE] for at in range(lanes)]
    runs, repeated = sum(len(_runs(one)) for one in told), sum(len(zlib.compress(one, 1)) for one in told)
    return zlib.compress(content, 6) if 10 * repeated < 9 * runs else _runs(content)


def _runs(content: bytes) -> bytes:
    """Deflated by runs of one byte and by how frequent bytes are."""
    writer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
    return writer.compress(content) + writer.flush()


def tiles_of(tensor: torch.Tensor) -> list[Packed]:
    """All tiles of a tensor, in order."""
    array, cut = raw(tensor), tiling(tensor.shape)
    planes = array.reshape(cut.planes, cut.rows, cut.columns)
    return [pack(planes[box]) for box in cut.boxes()]


def overview_of(tensor: torch.Tensor) -> tuple[tuple[int, int], Packed] | None:
    """Levels and bytes of the overview, for a tensor with planes large enough to have one."""
    cut = tiling(tensor.shape)
    if cut.rows * cut.columns <= OVERVIEW_FROM or tensor.is_complex():
        return None
    levels = [0, 0]
    cells = [cut.rows, cut.columns]
    while cells[0] * cells[1] > CELLS:
        axis = int(cells[1] >= cells[0])
        levels[axis] += 1
        cells[axis] = -(-(cut.rows, cut.columns)[axis] // (1 << levels[axis]))
    planes = as_array(tensor).reshape(cut.planes, cut.rows, cut.columns)
    small = reduce(planes, "absmax", (levels[0], levels[1]), lowest(tensor)).to_bytes()
    return (levels[0], levels[1]), Packed(deflated(small), len(small))


def inflate(content: bytes, size: int) -> bytes:
    """Exactly `size` bytes, and never more memory than that. Raises ValueError where it is not what it should be."""
    reader = zlib.decompressobj()
    try:
        found = reader.decompress(content, size)
    except zlib.error as error:
        raise ValueError(f"it cannot be inflated ({error})") from error
    if len(found) != size or (not reader.eof and reader.decompress(reader.unconsumed_tail, 1)):
        raise ValueError(f"it inflates to another size than the {size} bytes that are said")
    return found


def assembled(dtype: str, shape: Sequence[int], tiles: Iterator[bytes]) -> torch.Tensor:
    """A tensor from its inflated tiles in order. Raises ValueError where a tile has another size."""
    cut, width = tiling(shape), WIDTHS[dtype]
    kind = np.dtype(np.uint16 if dtype == "bfloat16" else dtype).newbyteorder("<")
    whole: Array = np.empty((cut.planes, cut.rows, cut.columns), kind)
    for box, content in zip(cut.boxes(), tiles, strict=True):
        part = whole[box]
        lanes = np.frombuffer(content, np.uint8).reshape(width, -1)
        part[...] = np.ascontiguousarray(lanes.T).reshape(-1).view(kind).reshape(part.shape)
    found = torch.from_numpy(whole.astype(kind.newbyteorder("="), copy=False).reshape(tuple(shape)))
    return found.view(torch.bfloat16) if dtype == "bfloat16" else found


def _cuts(size: int, step: int) -> Iterator[slice]:
    """One after another: a size that somebody claims is not allocated."""
    for start in range(0, size, max(1, step)):
        yield slice(start, min(start + step, size))
