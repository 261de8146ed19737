"""Statistics against numpy's, in float64, on tensors that hold every kind of number."""

from __future__ import annotations

import json
import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from atlas.inspection import summary
from atlas.inspection.summary import BINS, color_ranges, summarize

LOWEST = np.finfo(np.float32).min
FLOATS = arrays(
    np.float32, array_shapes(max_dims=4, max_side=7), elements=st.floats(width=32, allow_nan=True, allow_infinity=True)
)


@settings(deadline=None)
@given(FLOATS)
def test_statistics_are_those_of_the_finite_elements(array: npt.NDArray[np.float32]) -> None:
    stats = summarize(torch.from_numpy(array))
    finite = array[np.isfinite(array)].astype(np.float64)
    assert stats.count == array.size
    assert stats.nan == np.isnan(array).sum()
    assert stats.inf == np.isinf(array).sum()
    assert stats.minus_inf == np.isneginf(array).sum()
    if not finite.size:
        assert set(stats.model_dump(exclude={"count", "nan", "inf", "minus_inf"}).values()) == {None}
        return
    assert stats.min == finite.min()
    assert stats.max == finite.max()
    assert stats.abs_max == np.abs(finite).max()
    size = np.abs(finite).max()
    assert stats.mean == pytest.approx(finite.mean(), rel=1e-12, abs=1e-12 * size)
    assert stats.std == pytest.approx(finite.std(), rel=1e-9, abs=1e-12 * size)
    assert stats.rms == pytest.approx(math.sqrt((finite**2).mean()), rel=1e-12)
    assert stats.histogram is not None
    assert sum(stats.histogram.counts) == finite.size
    assert len(stats.histogram.counts) == BINS
    assert stats.histogram.edges == sorted(stats.histogram.edges)
    assert stats.histogram.edges[0] <= finite.min()
    assert stats.histogram.edges[-1] >= finite.max()
    json.loads(stats.model_dump_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_the_histogram_is_numpys() -> None:
    array = np.random.default_rng(0).standard_normal((3, 700)).astype(np.float32)
    histogram = summarize(torch.from_numpy(array)).histogram
    counts, edges = np.histogram(array.astype(np.float64), BINS)
    assert histogram is not None
    assert histogram.counts == counts.tolist()
    assert histogram.edges == pytest.approx(edges.tolist())


def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.randn(7, 1001)
    tensor[3, 5] = float("-inf")
    whole = summarize(tensor)
    monkeypatch.setattr(summary, "PIECE", 100)
    pieces = summarize(tensor)
    assert pieces.histogram == whole.histogram
    assert pieces.model_dump(exclude={"histogram"}) == pytest.approx(whole.model_dump(exclude={"histogram"}), rel=1e-12)


@pytest.mark.parametrize(
    ("tensor", "mean", "low", "high"),
    [
        (torch.tensor([504, 3575, 282, -4]), 1089.25, -4, 3575),
        (torch.tensor([True, False, True, True]), 0.75, 0, 1),
        (torch.tensor([1 + 2j, -3 + 0j]), 0.0, -3, 2),
        (torch.tensor([1.5, 2.5], dtype=torch.bfloat16), 2.0, 1.5, 2.5),
        (torch.tensor([1e300, 3e300], dtype=torch.float64), 2e300, 1e300, 3e300),
        (torch.tensor([1e-300, 3e-300], dtype=torch.float64), 2e-300, 1e-300, 3e-300),
        (torch.tensor(7.0), 7.0, 7.0, 7.0),
    ],
)
def test_every_dtype(tensor: torch.Tensor, mean: float, low: float, high: float) -> None:
    stats = summarize(tensor)
    assert stats.mean == pytest.approx(mean, rel=1e-12)
    assert (stats.min, stats.max) == (low, high)
    assert stats.count == tensor.numel()
    assert stats.std is not None
    assert math.isfinite(stats.std)
    assert stats.rms is not None
    assert stats.rms > 0


def test_a_single_value_and_neighbours_in_float64_have_a_histogram() -> None:
    for tensor in (torch.full((5,), 1e20), torch.zeros(3), torch.tensor([1.0, math.nextafter(1.0, 2)]).double()):
        histogram = summarize(tensor).histogram
        assert histogram is not None
        assert sum(histogram.counts) == tensor.numel()
        assert all(a < b for a, b in zip(histogram.edges, histogram.edges[1:], strict=False))


def test_an_empty_tensor_has_none() -> None:
    stats = summarize(torch.empty(0, 4))
    assert (stats.count, stats.mean, stats.histogram) == (0, None, None)


@settings(deadline=None)
@given(FLOATS)
def test_robust_bounds_are_quantiles(array: npt.NDArray[np.float32]) -> None:
    ranges = color_ranges(torch.from_numpy(array))
    magnitudes = np.abs(array[np.isfinite(array) & (array != LOWEST)]).astype(np.float64)
    if not (magnitudes >= 2.0**-133).any():  # bfloat16's smallest: what is below counts as zero
        assert ranges is None
        return
    assert ranges is not None
    assert (magnitudes <= ranges.abs_high).sum() >= 0.995 * magnitudes.size
    within = magnitudes[magnitudes >= 2.0**-133]
    assert (within >= ranges.low_positive).sum() >= 0.995 * within.size
    assert 0 < ranges.low_positive < ranges.abs_high
    assert ranges.abs_high <= magnitudes.max() * 1.01 + 2.0**-132  # one bucket among subnormal numbers


def test_a_massive_entry_does_not_set_the_robust_range() -> None:
    tensor = torch.randn(22_500).abs() + 1
    tensor[17] = 22_500
    ranges = color_ranges(tensor)
    assert ranges is not None
    assert ranges.abs_high < 6
    assert color_ranges(torch.zeros(4)) is None


def test_a_mask_of_lowest_numbers_does_not_set_it_either() -> None:
    tensor = torch.randn(40, 40)
    masked = tensor + torch.full_like(tensor, torch.finfo(torch.float32).min).triu(1)
    ranges = color_ranges(masked)
    assert ranges is not None
    assert ranges.abs_high < 10


def test_few_numbers_and_many_are_counted_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted, or put into buckets: the same ranges, also of numbers that are masked, infinite or none."""
    drawn = torch.randn(3000, generator=torch.Generator().manual_seed(0)) ** 5
    odd = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), torch.finfo(torch.float32).min, 3e38])
    for tensor in (drawn, drawn.abs(), -drawn.abs(), torch.cat([drawn, odd]), odd, torch.zeros(5), torch.zeros(0)):
        monkeypatch.setattr("atlas.inspection.summary.SMALL_COUNT", 1 << 30)
        few = color_ranges(tensor)
        monkeypatch.setattr("atlas.inspection.summary.SMALL_COUNT", -1)
        assert color_ranges(tensor) == few
