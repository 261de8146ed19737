"""Ranks that were started differently are told what differs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from atlas.runtime.distributed.facts import RanksDiffer, compare, facts, hash_of
from atlas.settings import Settings

if TYPE_CHECKING:
    from atlas.catalog import Catalog


def test_the_same_start_is_the_same(catalog: Catalog) -> None:
    ours, theirs = facts(Settings(), catalog), facts(Settings(port=1, host="127.0.0.2"), catalog)
    assert hash_of(ours) == hash_of(theirs)
    compare("Rank 1", theirs, ours)


@pytest.mark.parametrize(
    ("name", "value"),
    [("torch", "2.12.0"), ("--dtype", "bfloat16"), ("pinned sources", "0000"), ("the weights of m", "sha256 00")],
)
def test_what_differs_is_named(name: str, value: str, catalog: Catalog) -> None:
    ours = facts(Settings(), catalog) | {"the weights of m": "sha256 11"}
    sentence = f"Rank 1 differs from rank 0: {name} is {value} there and {ours[name]} on rank 0."
    with pytest.raises(RanksDiffer, match=re.escape(sentence)):
        compare("Rank 1", ours | {name: value}, ours)


def test_options_and_versions_are_facts(catalog: Catalog) -> None:
    found = facts(Settings(max_new_tokens=7, untrained=True), catalog)
    assert found["--max-new-tokens"] == "7"
    assert found["--untrained"] == "True"
    assert found["torch"].startswith("2.")
    assert {"atlas", "Python", "llama-models", "fairscale", "pinned sources", "--checkpoint"} <= set(found)
