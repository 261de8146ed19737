"""Exact statistics of a tensor, and the ranges that a colour scale may take.

Everything is over the finite elements, accumulated in float64 and in pieces, so that a tensor of a hundred
million elements needs no second copy. Other elements are counted, never averaged. Knows no axes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from atlas.inspection.answers import Histogram, Ranges, Stats
from atlas.inspection.arrays import Array, as_array, lowest, real_numbers

BINS = 64
PIECE = 1 << 20
INFINITE = 0x7F80  # the first bucket of magnitudes that are infinite, or no number
SMALL_COUNT = 1 << 15
"""Of fewer numbers it is quicker to sort them than to go through all buckets."""
LARGE, SMALL = 1e150, 1e-150  # beyond these a square leaves the range of float64


def summarize(tensor: torch.Tensor) -> Stats:
    """Statistics of any tensor: real, complex (over both parts together), integer or bool."""
    count = tensor.numel()
    numbers = real_numbers(as_array(tensor))
    finite = nan = inf = minus = 0
    low, high, total, scale = np.inf, -np.inf, 0.0, 1.0
    for piece in _pieces(numbers):
        nan += int(np.isnan(piece).sum())
        inf += int(np.isinf(piece).sum())
        minus += int(np.isneginf(piece).sum())
        kept = _finite(piece)
        if kept.size:
            finite += kept.size
            low, high = min(low, float(kept.min())), max(high, float(kept.max()))
    if not finite:
        return Stats(count=count, nan=nan, inf=inf, minus_inf=minus)
    abs_max = max(abs(low), abs(high))
    if abs_max > LARGE or 0 < abs_max < SMALL:
        scale = abs_max
    for piece in _pieces(numbers):
        total += float((_finite(piece) / scale).sum())
    mean = total / finite
    squares = deviations = 0.0
    bottom, top = _histogram_range(low, high, scale)
    counts = np.zeros(BINS, np.int64)
    for piece in _pieces(numbers):
        kept = _finite(piece) / scale
        squares += float(np.square(kept).sum())
        deviations += float(np.square(kept - mean).sum())
        counts += np.histogram(kept, BINS, (bottom, top))[0]
    edges = np.linspace(bottom, top, BINS + 1)
    return Stats(
        count=count,
        mean=mean * scale,
        std=float(np.sqrt(deviations / finite)) * scale,
        min=low,
        max=high,
        rms=float(np.sqrt(squares / finite)) * scale,
        abs_max=abs_max,
        nan=nan,
        inf=inf,
        minus_inf=minus,
        histogram=Histogram(edges=(np.clip(edges * scale, -_MAX, _MAX)).tolist(), counts=counts.tolist()),
    )


def color_ranges(tensor: torch.Tensor, share: float = 0.995) -> Ranges | None:
    """Robust bounds of a tensor's magnitudes; None if no element is finite and non-zero.

    Counted in 65,280 buckets: the upper 16 bits of a float32, that is bfloat16's numbers, negative ones apart. The
    dtype's lowest number is left out: some masks add it where others add minus infinity.
    """
    masked = lowest(tensor)
    numbers = real_numbers(as_array(tensor))
    buckets, amounts = _buckets(numbers, masked)
    magnitudes = buckets & 0x7FFF
    finite = magnitudes < INFINITE
    filled, places = np.unique(magnitudes[finite], return_inverse=True)
    both = np.zeros(len(filled), np.int64)
    np.add.at(both, places, amounts[finite])
    below = np.cumsum(both)
    zeros, everything = int(both[filled == 0].sum()), int(both.sum())
    if everything == zeros:
        return None
    upper = int(filled[np.searchsorted(below, share * everything)])
    lower = int(filled[np.searchsorted(below, zeros + (1 - share) * (everything - zeros), side="right")])
    high, low = _bucket(max(upper, lower, 1) + 1), _bucket(max(lower, 1))
    bottom = -high if (buckets[finite & (magnitudes > 0)] >> 15).any() else 0.0
    linear = np.zeros(BINS, np.int64)
    for piece in _pieces(numbers):
        linear += np.histogram(_finite(piece), BINS, (bottom, high))[0]
    both, filled = both[filled > 0], filled[filled > 0]
    factors = np.geomspace(low, max(_bucket(int(filled[-1]) + 1), low * 2), BINS + 1)
    by_factor = np.histogram((_edges(filled) + _edges(filled + 1)) / 2, factors, weights=both)[0]
    return Ranges(
        abs_high=high,
        low_positive=low,
        linear=Histogram(edges=np.linspace(bottom, high, BINS + 1).tolist(), counts=linear.tolist()),
        magnitudes=Histogram(edges=factors.tolist(), counts=by_factor.astype(np.int64).tolist()),
    )


_MAX = float(np.finfo(np.float64).max)


def _buckets(numbers: Array, masked: float | None) -> tuple[Array, Array]:
    """The upper 16 bits that occur in float32 numbers, in order, and how often each does; without those `masked`."""
    counts = np.zeros(1 << 16 if numbers.size > SMALL_COUNT else 0, np.int64)
    for piece in _pieces(numbers):
        with np.errstate(over="ignore"):
            wanted = (piece if masked is None else piece[piece != masked]).astype(np.float32)
        upper = (wanted.view(np.uint32) >> 16).astype(np.int64)
        if not counts.size:
            return np.unique(upper, return_counts=True)
        counts += np.bincount(upper, minlength=1 << 16)
    filled = np.flatnonzero(counts)
    return filled, counts[filled]


def _pieces(numbers: Array) -> Iterator[Array]:
    for start in range(0, numbers.size, PIECE):
        yield numbers[start : start + PIECE]


def _finite(piece: Array) -> Array:
    wide = piece.astype(np.float64)
    mask = np.isfinite(wide)
    kept: Array = wide if mask.all() else wide[mask]
    return kept


def _histogram_range(low: float, high: float, scale: float) -> tuple[float, float]:
    """The ends of the histogram in units of `scale`; a single value, or nearly, gets a bin's width around it."""
    bottom, top = low / scale, high / scale
    span = max(abs(bottom), abs(top))
    if (top - bottom) / BINS > np.spacing(span):
        return bottom, top
    around = max(0.5 / scale, span * 1e-6) if span else 0.5
    return bottom - around, top + around


def _bucket(index: int) -> float:
    """The smallest magnitude of a bucket; beyond the last one, float32's largest."""
    return float(_edges(np.array([index]))[0])


def _edges(indices: Array) -> Array:
    bits = np.minimum(indices.astype(np.int64) << 16, (INFINITE << 16) - 1).astype(np.uint32)
    edges: Array = bits.view(np.float32).astype(np.float64)
    return edges
