"""What attention weights say: the strongest keys of a query, and measures that tell kinds of head apart.

Weights are [heads, queries, keys] with rows that sum to one; `first` is the position of the first query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from atlas.inspection.answers import HeadMeasures
from atlas.inspection.arrays import Array

Mask = npt.NDArray[np.bool_]


def measure_heads(weights: Array, tokens: Sequence[int], first: int) -> list[HeadMeasures]:
    """Measures of each head; `tokens` are the ids at the keys' positions.

    A query with one key to look at says nothing, and is left out.
    """
    heads, queries, keys = weights.shape
    if len(tokens) < keys:
        raise ValueError(f"{keys} keys, but {len(tokens)} tokens")
    ids = np.asarray(tokens[:keys])
    query_at, key_at = first + np.arange(queries)[:, None], np.arange(keys)[None, :]
    several = np.broadcast_to(query_at >= 1, (queries, 1))[:, 0]
    earlier = key_at < query_at
    same = earlier & (ids[first : first + queries, None] == ids[None, :])
    after = np.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    after &= key_at <= query_at
    wide = weights.astype(np.float64)
    logs = np.log2(wide, where=wide > 0, out=np.zeros_like(wide))
    columns = {
        "entropy": _mean(-(wide * logs).sum(-1), several),
        "previous": _weight_on(wide, key_at == query_at - 1, several),
        "first": _weight_on(wide, np.broadcast_to(key_at == 0, (queries, keys)), several),
        "same_token": _weight_on(wide, same, same.any(-1)),
        "after_same_token": _weight_on(wide, after, after.any(-1)),
    }
    return [HeadMeasures(head=head, **{name: found[head] for name, found in columns.items()}) for head in range(heads)]


def strongest(row: Array, count: int) -> list[tuple[int, float]]:
    """The `count` largest of a row with their indices, largest first, ties by index; what is no number left out."""
    kept = np.where(np.isnan(row), -np.inf, row.astype(np.float64))
    count = min(count, row.size)
    if count < row.size:
        edge = np.partition(kept, row.size - count)[row.size - count]
        places = np.flatnonzero(kept >= edge)
    else:
        places = np.arange(row.size)
    ordered = places[np.lexsort((places, -kept[places]))][:count]
    return [(int(place), float(kept[place])) for place in ordered if np.isfinite(kept[place])]


def rank_of(row: Array, index: int) -> int | None:
    """How many are larger than the element, plus one; None if it is no finite number."""
    value: Any = row[index]
    return int((row > value).sum()) + 1 if np.isfinite(value) else None


def _weight_on(weights: Array, where: Mask, rows: Mask) -> list[float | None]:
    return _mean((weights * where).sum(-1), rows)


def _mean(values: Array, rows: Mask) -> list[float | None]:
    if not rows.any():
        return [None] * values.shape[0]
    return [float(value) for value in values[:, rows].mean(-1)]
