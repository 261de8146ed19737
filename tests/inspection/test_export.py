"""Files are read back by the libraries that people will read them with."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
import safetensors.torch
import torch

from atlas.errors import TooLarge
from atlas.inspection import export
from atlas.inspection.export import csv_rows, npy, npy_size, safetensors_file, shortest

TENSORS = [
    torch.randn(1, 3, 5),
    torch.randn(4, 2).to(torch.bfloat16),
    torch.randn(4, 2).half(),
    torch.randn(2, 3, dtype=torch.complex64),
    torch.arange(6).reshape(2, 3),
    torch.tensor(2.5),
    torch.randn(5, 4).T,
    torch.tensor([float("nan"), float("inf"), float("-inf")]),
    torch.empty(0, 3),
    torch.tensor([True, False]),
]


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: f"{t.dtype}{tuple(t.shape)}")
def test_npy_is_read_by_numpy(tensor: torch.Tensor) -> None:
    size, pieces = npy(tensor)
    content = b"".join(pieces)
    assert len(content) == size
    assert size >= npy_size(tensor)
    array = np.load(io.BytesIO(content), allow_pickle=False)
    wanted = tensor.float() if tensor.dtype is torch.bfloat16 else tensor
    assert array.dtype == wanted.numpy().dtype
    assert np.array_equal(array, wanted.numpy(), equal_nan=array.dtype.kind in "fc")


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: f"{t.dtype}{tuple(t.shape)}")
def test_safetensors_keeps_the_dtype(tensor: torch.Tensor) -> None:
    content = safetensors_file(tensor, "blocks/attention/queries", {"view": "prefill"})
    read = safetensors.torch.load(content)["blocks/attention/queries"]
    assert read.dtype is tensor.dtype
    assert torch.equal(torch.view_as_real(read) if read.is_complex() else read.nan_to_num(1, 2, 3), (
        torch.view_as_real(tensor) if tensor.is_complex() else tensor.nan_to_num(1, 2, 3)))  # fmt: skip
    assert b'"view":"prefill"' in content


def test_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "PIECE", 64)
    tensor = torch.randn(100)
    _, pieces = npy(tensor)
    parts = list(pieces)
    assert max(map(len, parts[1:])) == 64
    assert np.array_equal(np.load(io.BytesIO(b"".join(parts))), tensor.numpy())


def test_csv_reads_back_to_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "PIECE", 50)
    tensor = torch.randn(1, 3, 4)
    tensor[0, 1, 2] = float("-inf")
    text = b"".join(csv_rows(tensor, ("batch", "positions", "d_model"), (0, 7, 0))).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["positions"] for row in rows[:5]] == ["7", "7", "7", "7", "8"]
    assert np.array_equal(np.array([np.float32(row["value"]) for row in rows]), tensor.numpy().reshape(-1))
    parts = b"".join(csv_rows(torch.tensor([1 - 2j]), ("pairs",), (0,))).decode().split()
    assert parts == ["pairs,real,imaginary", "0,1.0,-2.0"]


def test_what_does_not_fit_csv_is_refused() -> None:
    with pytest.raises(TooLarge, match="1,000,001 elements") as caught:
        csv_rows(torch.zeros(1_000_001), ("d_model",), (0,))
    assert "slice" in caught.value.hint


def test_the_shortest_decimal() -> None:
    assert shortest(np.float32(0.1)) == "0.1"
    assert shortest(np.int64(504)) == "504"
    assert shortest(np.float32(np.nan)) == "nan"
    assert float(np.float32(shortest(np.float32(1 / 3)))) == float(np.float32(1 / 3))
