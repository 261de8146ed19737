"""Names for numbers: from settings, from what a pass was given, and from both where they agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from atlas.graph.axes import View
from atlas.runtime.derivation.sizes import Sizes, typed

PASSES: Mapping[View, tuple[int, int]] = {"full": (7, 61), "prefill": (11, 41), "decode": (13, 1)}
SETTINGS = {
    "hidden_size": 96,
    "vocab_size": 500,
    "intermediate_size": 200,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "state_size": 20,
    "chunk_size": 20,
    "num_hidden_layers": 9,
    "max_position_embeddings": 300,
    "eos_token_id": 31,
    "rope_theta": 10000.0,
    "use_bias": True,
}


def sizes(**changes: Any) -> Sizes:
    return Sizes(SETTINGS | changes, width=96, vocabulary=500, passes=PASSES, before=53)


@pytest.mark.parametrize(
    ("number", "name", "words"),
    [
        (96, "d_model", "d"),
        (500, "vocab", "vocab"),
        (200, "d_mlp", "mlp"),
        (6, "q_heads", "q heads"),
        (2, "kv_heads", "kv heads"),
        (16, "head_dim", "head dim"),
        (32, "kv_width", "kv width"),
        (8, "pairs", "pairs"),
        (20, "state_size_or_chunk_size", "state size or chunk size"),
        (9, "size_9", "features"),
        (300, "size_300", "features"),
        (31, "size_31", "features"),
        (1, "one", "one"),
        (0, "size_0", "features"),
    ],
)
def test_a_number_is_named_after_the_settings_that_have_it(number: int, name: str, words: str) -> None:
    given = sizes()
    assert given.fixed(number) == name
    assert given.sizes[name] == number
    assert name not in given.axes or given.axes[name].words == words


def test_as_many_heads_of_keys_as_of_queries_are_query_heads() -> None:
    assert sizes(num_key_value_heads=6).fixed(6) == "q_heads"


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ({"full": 7, "prefill": 11, "decode": 13}, "batch"),
        ({"full": 61, "prefill": 41, "decode": 1}, "positions"),
        ({"full": 61, "prefill": 41, "decode": 54}, "keys"),
        ({"full": 61, "prefill": 41}, "positions"),
        ({"decode": 54}, "keys"),
        ({"decode": 13}, "batch"),
        ({"decode": 1}, "one"),
        ({"full": 7 * 61, "prefill": 11 * 41, "decode": 13}, "tokens"),
        ({"full": 64, "prefill": 48, "decode": 1}, "entries"),
        ({"full": 96, "prefill": 96, "decode": 96}, "d_model"),
    ],
)
def test_an_axis_is_known_by_its_sizes_in_each_view(seen: dict[View, int], name: str) -> None:
    given = sizes()
    assert given.axis(seen) == name
    assert given.axes["entries"].free if name == "entries" else "entries" not in given.axes


def test_numbers_of_parameters_are_fixed_in_a_single_view_too() -> None:
    given = sizes()
    assert given.axis({"decode": 112}) == "entries"
    given.also([112])
    assert given.axis({"decode": 112}) == "size_112"


def test_names_of_the_code_as_tex() -> None:
    assert typed("attn_weights & more") == r"\mathtt{attn\_weights\ \&\ more}"
