"""Whether weights hold numbers only, found by their sum, or one by one where that says nothing."""

from __future__ import annotations

import pytest
import torch

from atlas.inspection.checks.checkpoint import all_finite

NAN, INF, LARGEST = float("nan"), float("inf"), torch.finfo(torch.float32).max


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wrong", [[NAN], [INF], [-INF], [INF, -INF], [NAN, INF]])
def test_what_is_no_number_is_found_among_many(dtype: torch.dtype, wrong: list[float]) -> None:
    tensor = torch.ones(40, 50, dtype=dtype)
    assert all_finite(tensor)
    tensor[17, : len(wrong)] = torch.tensor(wrong, dtype=dtype)
    assert not all_finite(tensor)


def test_large_numbers_are_numbers_though_their_sum_is_none() -> None:
    assert all_finite(torch.full((4,), LARGEST))
    assert not all_finite(torch.tensor([LARGEST, LARGEST, NAN]))
    assert all_finite(torch.empty(0))
    assert all_finite(torch.tensor([1, 2]))
