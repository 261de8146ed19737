"""How a number came to be, on the real model: every kind of node, and back from a logit to an embedding."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from atlas.errors import BadRequest
from atlas.graph.nodes import Parameter, Tensor
from atlas.inspection.arrays import as_array
from atlas.inspection.explain import explain
from atlas.inspection.explained import Explanation, Source
from atlas.runtime.engine import Engine

A, M = "blocks/attention/", "blocks/feed-forward/"
LAYER = 12


def told(
    engine: Engine,
    node: str,
    cell: list[int],
    view: str = "prefill",
    layer: int | None = LAYER,
    step: int | None = None,
) -> Explanation:
    assert engine.demonstration is not None
    return asyncio.run(explain(engine, engine.demonstration, node, view, layer, step, cell))


def number(found: Explanation) -> complex:
    assert found.captured.value is not None
    return complex(found.captured.value, found.captured.imaginary or 0.0)


@pytest.mark.parametrize(("view", "step"), [("prefill", None), ("decode", 2), ("full", None)])
def test_every_node_is_explained_and_computed_again(engine: Engine, view: str, step: int | None) -> None:
    assert engine.demonstration is not None
    random = np.random.default_rng(7)
    for path, node in engine.model_of(engine.demonstration).graph.nodes.items():
        if not isinstance(node.node, Tensor | Parameter) or node.shape[view] is None:  # type: ignore[index]
            continue
        captured = engine.request(engine.demonstration, [path], view, LAYER, step).result(60)[path]
        cell = [int(random.integers(size)) for size in captured.tensor.shape]
        found = told(engine, path, cell, view, LAYER, step)
        assert found.sentence
        value = complex(as_array(captured.tensor)[tuple(cell)])
        if not np.isfinite(value):
            assert found.captured.value is None
            assert found.captured.text == found.recomputed.text if found.recomputed else False
            continue
        assert number(found) == value
        if found.operation is None:
            assert found.recomputed is None
            continue
        assert found.numbers, f"{path} is not followed"
        assert found.recomputed is not None
        assert found.recomputed.value is not None
        again = complex(found.recomputed.value, found.recomputed.imaginary or 0.0)
        assert abs(again - value) <= 1e-4 * max(abs(value), 1e-2)
        assert found.sources or found.totals or path == "causal-mask"


def test_a_sum_is_its_largest_terms_and_what_the_rest_adds(engine: Engine) -> None:
    found = told(engine, f"{A}attention-update", [0, 3, 211])
    (total,) = found.totals
    assert (total.how, total.count, len(total.terms), total.rest_count) == ("sum", 576, 12, 564)
    assert total.rest is not None
    assert total.rest.value is not None
    shown = [term.figure.value or 0.0 for term in total.terms]
    assert sum(shown) + total.rest.value == pytest.approx(number(found).real, abs=1e-5)
    assert [abs(value) for value in shown] == sorted(map(abs, shown), reverse=True)
    merged, weight = total.terms[0].sources
    assert (merged.node, merged.cell[:2], merged.layer) == (f"{A}merged-heads", [0, 3], LAYER)
    assert (weight.node, weight.cell[0], weight.learned, weight.view) == (f"{A}output-weight", 211, True, None)
    assert merged.positions == [None, 3, None]
    assert (merged.figure.value or 0) * (weight.figure.value or 0) == pytest.approx(shown[0])


def test_a_weight_of_attention_is_one_exponential_over_their_sum(engine: Engine) -> None:
    found = told(engine, f"{A}attention-weights", [0, 2, 0, 3], "decode", LAYER, 2)
    assert [total.how for total in found.totals] == ["max", "sum"]
    assert [source.node for source in found.sources] == [f"{A}scaled-similarities"], "no mask in decode"
    prefill = told(engine, f"{A}attention-weights", [0, 2, 4, 1])
    assert [source.node for source in prefill.sources] == [f"{A}masked-similarities"]


def test_a_rotated_feature_is_made_of_its_pair(engine: Engine) -> None:
    found = told(engine, f"{A}rotated-queries", [0, 3, 2, 11])
    assert [(source.node, source.cell) for source in found.sources] == [
        (f"{A}queries", [0, 3, 2, 10]),
        (f"{A}queries", [0, 3, 2, 11]),
        ("rotary/rotations", [3, 5]),
    ]
    assert found.sources[2].figure.imaginary is not None


@pytest.mark.parametrize(
    ("key", "view", "step"), [(0, "prefill", None), (4, "prefill", None), (5, "decode", 1), (6, "decode", 2)]
)
def test_an_old_row_of_a_cache_leads_to_the_pass_that_wrote_it(
    engine: Engine, key: int, view: str, step: int | None
) -> None:
    found = told(engine, f"{A}key-cache", [0, key, 1, 9], "decode", LAYER, 3)
    (source,) = found.sources
    assert (source.node, source.view, source.step, source.cell) == (f"{A}key-cache", view, step, [0, key, 1, 9])
    earlier = told(engine, source.node, source.cell, view, LAYER, step)
    assert earlier.captured == found.captured
    assert [one.node for one in earlier.sources] == [f"{A}rotated-keys"]


def test_what_nothing_makes_says_where_it_is_from(engine: Engine) -> None:
    first = told(engine, "blocks/block-input", [0, 1, 5], layer=0)
    assert [source.node for source in first.sources] == ["embedding/embedded"]
    later = told(engine, "blocks/block-input", [0, 1, 5], layer=3)
    assert [(source.node, source.layer) for source in later.sources] == [("blocks/block-output", 2)]
    assert later.sources[0].figure == later.captured
    assert "learned" in told(engine, f"{M}down-weight", [3, 4]).sentence.lower()
    assert "Given to the pass" in told(engine, "token-ids", [0, 2]).sentence
    assert "from the configuration" in told(engine, "rotary/inverse-frequencies", [3]).sentence
    assert "no number of an input" in told(engine, "causal-mask", [1, 3]).sentence


def test_a_logit_is_followed_back_to_an_embedding(engine: Engine) -> None:
    """Always by the input that counts most, one number at a time."""
    found = told(engine, "unembedding/logits", [0, 4, 7042])
    seen, layers = [found.node], []
    while found.node != "embedding/embedded":
        assert len(seen) < 1000
        inputs = [*found.sources, *(source for total in found.totals for source in total.terms[0].sources)]
        following = next(source for source in inputs if not source.learned and source.node != "rotary/rotations")
        following = stream(inputs) or following
        found = told(
            engine, following.node, following.cell, following.view or "prefill", following.layer, following.step
        )
        assert found.captured == following.figure
        seen.append(found.node)
        layers.append(found.layer)
    assert {"final-norm/normalized", "blocks/block-output", "blocks/mid-residual", "blocks/block-input"} <= set(seen)
    assert {layer for layer in layers if layer is not None} == set(range(30))
    assert [source.node for source in found.sources] == ["embedding/weight", "token-ids"]


def stream(inputs: list[Source]) -> Source | None:
    """The residual stream, where it is among the inputs: the way that always leads down."""
    return next((one for one in inputs if one.node in ("blocks/block-input", "blocks/mid-residual")), None)


@pytest.mark.parametrize(
    ("cell", "says"),
    [([0, 3], "has 2 indices"), ([0, 3, 576], "no index 576 along 'd_model'"), ([0, 3, -1], "no index -1")],
)
def test_a_cell_that_is_not_there_is_refused(engine: Engine, cell: list[int], says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        told(engine, f"{A}attention-update", cell)
