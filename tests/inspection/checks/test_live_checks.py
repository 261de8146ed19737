"""Equations, consistency and checkpoint on the default model: what they compare, and for whom another speaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from atlas.catalog import Catalog
from atlas.inspection.checks import Subject, checkpoint, consistency, equations
from atlas.inspection.checks._live import Witness, live
from atlas.inspection.checks.result import Result
from atlas.runtime.placement import Placement
from atlas.runtime.references.hugging_face import Runner
from atlas.runtime.untrained import untrained
from atlas.settings import CheckpointChoice, Settings

DEFAULT = "smollm2-135m"


@pytest.fixture(scope="module")
def shared(witness: Witness) -> dict[str, object]:
    """What checks share: the default model's passes."""
    return {f"witness: {DEFAULT}": witness}


def subject(catalog: Catalog, model: str, shared: dict[str, object]) -> Subject:
    return Subject(catalog[model], catalog, Settings(), lambda _message, _share: None, shared)


def statuses(results: list[Result]) -> set[str]:
    return {result.status for result in results}


def test_every_equation_holds_in_every_layer_and_view(catalog: Catalog, shared: dict[str, object]) -> None:
    results = list(equations.check(subject(catalog, DEFAULT, shared)))
    assert statuses(results) == {"passed"}
    made = [node.path for node in equations.made_nodes(catalog[DEFAULT])]
    assert {result.node for result in results} == set(made)
    queries = next(r for r in results if r.node == "blocks/attention/queries")
    assert queries.numbers["comparisons"] == 30 * 3
    assert queries.numbers["rows"] == 30 * 9 * (5 + 1 + 8)
    assert 0 < float(queries.numbers["worst_row"]) < 3e-6 < float(queries.numbers["tolerance"])
    masked = next(r for r in results if r.node == "blocks/attention/masked-similarities")
    assert masked.numbers["comparisons"] == 30 * 2, "there is no mask in decode"


def test_another_model_speaks_for_one_without_weights_and_says_so(catalog: Catalog, shared: dict[str, object]) -> None:
    asked = subject(catalog, "llama-3.1-8b", shared)
    found = live(asked)
    assert found is not None
    assert found.stands_in
    results = list(equations.check(asked))
    assert statuses(results) == {"passed"}
    subjects = {result.subject for result in results}
    assert subjects == {
        "the reference code at Llama 3.1 8B's configuration",
        "the weights of SmolLM2 135M, which stand in",
    }
    own = {result.node for result in results if "configuration" in result.subject}
    assert own == {"rotary/scaled-frequencies", "rotary/rotations", "causal-mask"}


def test_decode_cache_and_an_independent_implementation_agree(catalog: Catalog, shared: dict[str, object]) -> None:
    results = list(consistency.check(subject(catalog, DEFAULT, shared)))
    assert statuses(results) == {"passed"}
    said = {result.what for result in results}
    assert "logits agree with transformers on the same weights" in said
    assert "after 3 decode steps it is that of one prefill of the same tokens" in said
    assert all(float(result.numbers["worst_row"]) < consistency.TOLERANCE / 3 for result in results)


def test_the_default_checkpoint_is_as_declared(catalog: Catalog, shared: dict[str, object]) -> None:
    results = list(checkpoint.check(subject(catalog, DEFAULT, shared)))
    assert statuses(results) == {"passed"}
    count = next(r for r in results if "parameters" in r.numbers)
    assert count.numbers == {"parameters": 134_515_008, "tied_matrix_counted_once": "true"}


@pytest.mark.parametrize("module", [consistency, checkpoint])
def test_what_needs_weights_that_are_not_here_is_pending(
    catalog: Catalog, shared: dict[str, object], module: object
) -> None:
    (result,) = module.check(subject(catalog, "llama-3-8b", shared))  # type: ignore[attr-defined]
    assert result.status == "pending"
    assert "atlas check llama-3-8b --checkpoint llama-3-8b=PATH" in result.hint


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_checkpoint_with_windows_agrees_with_itself_past_them(catalog: Catalog, dtype: torch.dtype) -> None:
    model = catalog.small("gemma3")
    weights = untrained(model)
    tensors = {name: tensor.to(dtype) for name, tensor in weights.tensors.items()}
    own = Witness(Runner(model, replace(weights, tensors=tensors, placement=Placement(dtype))))
    assert len(own.tokens) > 8, "past the window"
    settings = Settings(checkpoint=(CheckpointChoice(model=model.id, path=Path("mine.gguf")),))
    asked = Subject(model, catalog, settings, lambda _message, _share: None, {f"witness: {model.id}": own})
    results = list(consistency.check(asked))
    assert statuses(results) == {"passed", "noted"}
    assert {"sliding-mask", "causal-mask", "blocks/attention/key-cache"} <= {result.node for result in results}
    assert {result.numbers["tolerance"] for result in results if result.numbers} == {consistency.TOLERANCES[dtype]}
