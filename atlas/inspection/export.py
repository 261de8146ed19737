"""A tensor as a file that others can read: .npy, .safetensors, and .csv for what fits.

Files are made in pieces where their format allows, so that a large one is not held twice. Knows nothing of HTTP.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import safetensors.torch
import torch

from atlas.errors import TooLarge
from atlas.inspection.arrays import Array, as_array

PIECE = 1 << 20
CSV_ROWS = 1_000_000
"""A spreadsheet takes 1,048,576 rows."""


def npy(tensor: torch.Tensor) -> tuple[int, Iterator[bytes]]:
    """Size in bytes and content of a .npy file (version 1.0, C order). bfloat16 is written as float32."""
    array = np.ascontiguousarray(as_array(tensor)).reshape(tensor.shape)
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
    return head.tell() + array.nbytes, _with_header(head.getvalue(), array)


def safetensors_file(tensor: torch.Tensor, name: str, facts: Mapping[str, str]) -> bytes:
    """A .safetensors file with one tensor, its dtype kept, and `facts` as metadata."""
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous()}, dict(facts))


def npy_size(tensor: torch.Tensor) -> int:
    """Bytes of the numbers in a .npy file, header aside."""
    return tensor.numel() * (4 if tensor.dtype is torch.bfloat16 else tensor.element_size())


def csv_rows(tensor: torch.Tensor, axes: Sequence[str], first: Sequence[int]) -> Iterator[bytes]:
    """One line an element: its index on each axis (counted from `first`), then the value, or real and imaginary.

    Numbers are the shortest decimals that read back to the same number of their dtype. Raises `TooLarge` at once.
    """
    if tensor.numel() > CSV_ROWS:
        raise TooLarge(
            f"{tensor.numel():,} elements are too many for CSV, which is given up to {CSV_ROWS:,} lines.",
            "Take a slice, or the format npy or safetensors.",
        )
    return _csv_lines(as_array(tensor), axes, first)


def shortest(value: object) -> str:
    """The shortest decimal that reads back to the same number of its dtype; `nan`, `inf`, `-inf`."""
    return str(value.item() if isinstance(value, np.integer | np.bool_) else value)


def _with_header(header: bytes, array: Array) -> Iterator[bytes]:
    yield header
    content = array.reshape(-1).view(np.uint8)
    for start in range(0, content.size, PIECE):
        yield content[start : start + PIECE].tobytes()


def _csv_lines(array: Array, axes: Sequence[str], first: Sequence[int]) -> Iterator[bytes]:
    complex_numbers = np.iscomplexobj(array)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow([*axes, *(("real", "imaginary") if complex_numbers else ("value",))])
    for index in np.ndindex(array.shape):
        value = array[index]
        parts = (value.real, value.imag) if complex_numbers else (value,)
        writer.writerow([*(at + start for at, start in zip(index, first, strict=True)), *map(shortest, parts)])
        if buffer.tell() > PIECE:
            yield buffer.getvalue().encode()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode()
