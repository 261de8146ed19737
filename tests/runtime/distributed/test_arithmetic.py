"""The numbers of docs/distributed.md, computed again; and the arithmetic against the model that is here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from atlas.runtime.distributed.arithmetic import collectives, kept, tables, weights
from atlas.runtime.distributed.shares import WeightShare
from atlas.runtime.placement import Placement

if TYPE_CHECKING:
    from atlas.catalog import Catalog
    from atlas.runtime.references.base import ReferenceRunner

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["llama-3.1-70b", "llama-3.1-405b"])
def test_the_document_says_what_is_computed(name: str, catalog: Catalog) -> None:
    lines = (ROOT / "docs" / "distributed.md").read_text("utf-8").splitlines()
    for part, rows in tables(catalog[name], (2, 4, 8), 2, 2048).items():
        at = lines.index(rows[0])
        assert lines[at : at + len(rows)] == rows, part


def test_every_table_of_the_document_is_checked(catalog: Catalog) -> None:
    lines = (ROOT / "docs" / "distributed.md").read_text("utf-8").splitlines()
    heads = ("| ranks", "| asked", "| --", "| what is said", "| `")
    cells = [line for line in lines if line.startswith("| ") and not line.startswith(heads)]
    made = [tables(catalog[name], (2, 4, 8), 2, 2048) for name in ("llama-3.1-70b", "llama-3.1-405b")]
    assert sorted(cells) == sorted(row for part in made for rows in part.values() for row in rows)


def test_the_sentences_say_what_is_computed(catalog: Catalog) -> None:
    text = " ".join((ROOT / "docs" / "distributed.md").read_text("utf-8").split())
    small, large = catalog["llama-3.1-70b"], catalog["llama-3.1-405b"]
    steps = [len(collectives(model, 1).reduced) for model in (small, large)]
    logits = 4 * 2048 * large.architecture.sizes["vocab"]
    for sentence in (
        f"needs {weights(large, 8, 2) / 1e9:.1f} GB for weights and {kept(large, 8, 2, 2048) / 1e9:.1f} GB for a run",
        f"(its logits alone are {logits / 1e9:.1f} GB in float32)",
        f"{weights(large, 1, 2) / 1e9:.0f} GB at 1 GB/s are {weights(large, 1, 2) / 6e10:.0f} minutes",
        f"a copy in float32 is made first, which is {weights(large, 1, 4) / 1e12:.1f} TB here",
        f"A run of 8,192 positions holds {kept(large, 8, 2, 8192) / 1e9:.1f} GB on each rank",
        f"One decoded token is {steps[1]} all-reduces one after another ({steps[0]} for the 70B)",
        f"at 50 microseconds each {steps[1] * 0.05:.0f} ms",
        f"It has {large.architecture.sizes['kv_heads']} KV heads",
    ):
        assert sentence in text


def test_memory_is_what_a_rank_really_holds(runner: ReferenceRunner) -> None:
    model = runner.model
    for rank in (0, 2):
        placement = Placement(share=WeightShare.of_rank(model, rank, 3))
        own = {name: placement.put(name, tensor) for name, tensor in runner.checkpoint.tensors.items()}
        own["output.weight"] = own["tok_embeddings.weight"]  # tied
        held = sum({tensor.data_ptr(): tensor.nbytes for tensor in own.values()}.values())
        assert held == weights(model, 3, 4)
    assert weights(model, 1, 4) == runner.checkpoint.parameter_count * 4
    assert kept(model, 1, 4, 33) == runner.memory(33).nbytes


def test_the_published_size_of_a_model_is_that_of_its_parameters(catalog: Catalog) -> None:
    assert weights(catalog["llama-3.1-70b"], 1, 1) == pytest.approx(70.6e9, rel=1e-3)
    assert weights(catalog["llama-3.1-405b"], 1, 1) == pytest.approx(405.9e9, rel=1e-3)


def test_a_ring_sends_its_part(catalog: Catalog) -> None:
    model = catalog["llama-3.1-70b"]
    one = collectives(model, 1)
    assert len(one.reduced) == 161
    assert one.sent(1, 2) == 0
    assert one.sent(8, 2) == (161 * 8192 * 2 + 128256) * 2 * 7 // 8
