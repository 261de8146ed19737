"""Shapes and edges of every model that Meta lists, by running the reference at true size; what it takes."""

from __future__ import annotations

import resource

import pytest

from atlas.catalog import Catalog
from atlas.inspection.checks import Subject, edges, shapes
from atlas.inspection.checks._true_size import Traced, traced
from atlas.inspection.checks.result import Result
from atlas.runtime.references import base
from atlas.settings import Settings


def test_every_node_has_its_numbers(subject: Subject, at_true_size: Traced) -> None:
    results = list(shapes.check(subject))
    assert [result.detail for result in results if result.status != "passed"] == [
        "Nothing but their number tells these apart, in code, sizes, settings or declaration: "
        "layers 0–15, of which 0, 1, 15 were run."
    ]
    assert {result.subject for result in results} == {"the reference code at Llama 3.2 1B's true size"}
    by_node = {result.node: dict(result.numbers) for result in results}
    assert by_node["blocks/attention/attention-weights"] == {
        "layers": 16,
        "layers_run": 3,
        "full": "2 × 32 × 5 × 5",
        "prefill": "2 × 32 × 5 × 5",
        "decode": "2 × 32 × 1 × 13",
    }
    assert by_node["causal-mask"]["decode"] == "absent"
    assert by_node["blocks/feed-forward/down-weight"] == {"shape": "2048 × 8192", "layers": 16}
    assert len(results) - 1 == sum(
        node.kind in ("tensor", "cache", "parameter") for node in subject.model.graph.nodes.values()
    )
    assert at_true_size.assumed == ""


def test_every_edge_is_travelled_in_every_layer_that_is_run(at_true_size: Traced) -> None:
    results = {result.node: result for result in edges.results(at_true_size)}
    assert {result.status for result in results.values()} == {"passed"}
    once_a_layer = results["blocks/attention/compare"].numbers
    # Two inputs and one output; the output's edge is travelled with each input: four a layer and view.
    assert once_a_layer == {"edges": 3, "times_travelled": 4 * 3 * 3, "only_lends": 0}
    assert results["build-mask"].numbers["only_lends"] == 1


def test_the_largest_model_needs_little_memory(catalog: Catalog) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    subject = Subject(catalog["llama-3.1-405b"], catalog, Settings(), lambda _message, _share: None)
    results = [*shapes.check(subject), *edges.check(subject)]
    assert [result.node for result in results if result.status not in ("passed", "noted")] == []
    logits = next(result for result in results if result.kind == "shapes" and result.node == "unembedding/logits")
    assert logits.numbers["decode"] == "2 × 1 × 128256"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 << 20, "kilobytes"


@pytest.mark.parametrize("model", ["smollm2-135m", "llama-3.2-3b"])
def test_other_sizes_hold_as_well(catalog: Catalog, model: str) -> None:
    subject = Subject(catalog[model], catalog, Settings(), lambda _message, _share: None)
    results = [*shapes.check(subject), *edges.check(subject)]
    assert [result.node for result in results if result.status not in ("passed", "noted")] == []


@pytest.mark.parametrize("model", ["llama-3.2-1b", "gemma-3-270m", "small deepseek_v3"])
def test_blocks_that_are_alike_show_what_all_of_them_show(
    catalog: Catalog, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = catalog.small("deepseek_v3") if model == "small deepseek_v3" else catalog[model]

    def shown() -> tuple[Traced, list[Result]]:
        subject = Subject(chosen, catalog, Settings(), lambda _message, _share: None)
        found = traced(subject)
        results = [*shapes.check(subject), *edges.check(subject)]
        counted = {"layers_run", "times_travelled"}
        return found, [
            result.model_copy(update={"numbers": {k: v for k, v in result.numbers.items() if k not in counted}})
            for result in results
            if result.what != "every layer, or one that is alike, was run"
        ]

    some, short = shown()
    monkeypatch.setattr(base, "enough", lambda groups: tuple(sorted(layer for group in groups for layer in group)))
    every, long = shown()
    assert len(every.layers) == chosen.architecture.sizes["layers"]
    assert set(some.layers) <= set(every.layers)
    assert (every.left_out, short) == ("", long)
    assert {result.status for result in long} <= {"passed", "noted"}
