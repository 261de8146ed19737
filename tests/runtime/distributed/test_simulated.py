"""A 70B's shape arithmetic, rank by rank, without weights: what each would have is the declared share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from atlas.errors import CheckpointError
from atlas.runtime.distributed.arithmetic import collectives
from atlas.runtime.distributed.simulated import BATCH, POSITIONS, expected, faults, simulated

if TYPE_CHECKING:
    from atlas.catalog import Catalog

LAST = 7


def test_ranks_of_the_70b_have_their_share_of_everything(catalog: Catalog) -> None:
    model = catalog["llama-3.1-70b"]
    ranks = simulated(model, 8, [0, LAST])
    assert [faults(model, 8, rank, found) for rank, found in ranks.items()] == [[], []]
    found = ranks[LAST]
    assert found["decode"]["blocks/attention/queries"] == [[BATCH, 1, 8, 128]]
    assert found["prefill"]["blocks/attention/key-cache"] == [[BATCH, 7, 1, 128]]
    assert found["parameters"]["blocks/feed-forward/down-weight"] == [[8192, 28672 // 8]]
    for view, (computed, _) in POSITIONS.items():
        together = collectives(model, BATCH * computed, len(found["collectives"]["layers"][0]))
        assert found["collectives"][view] == [list(together.reduced), list(together.gathered)]

    gate = "blocks/feed-forward/gate"
    found["decode"][gate] = [[BATCH, 1, 28672]]
    found["parameters"]["final-norm/gain"] = [[1024]]
    assert faults(model, 8, LAST, found) == [
        f"Rank 7 of 8 has {gate} as [[{BATCH}, 1, 28672]] in decode, and should have [{BATCH}, 1, 3584].",
        "Rank 7 of 8 has final-norm/gain as [[1024]], and should have [8192].",
    ]


def test_what_is_expected_is_the_declared_share(catalog: Catalog) -> None:
    model = catalog["llama-3.1-405b"]
    assert expected(model, 8, "decode", "blocks/attention/attention-weights") == [BATCH, 16, 1, 7]
    assert expected(model, 8, "prefill", "unembedding/logits") == [BATCH, 7, 128256]
    assert expected(model, 8, "decode", "causal-mask") is None


def test_what_cannot_be_split_is_refused_with_what_would_do(catalog: Catalog) -> None:
    with pytest.raises(CheckpointError, match=r"70B cannot be split over 16 ranks: 8 kv heads") as refused:
        simulated(catalog["llama-3.1-70b"], 16, [0])
    assert "Take 2, 4, 8 processes" in refused.value.hint
    with pytest.raises(CheckpointError, match="Qwen3, small and untrained cannot be simulated"):
        simulated(catalog.small("qwen3"), 2, [0])
