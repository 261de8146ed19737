"""A captured tensor's checks, on the default model: each holds, says what it compared, and fails where it should."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator

import pytest

from atlas.errors import SourceMismatch
from atlas.inspection.answers import Checks
from atlas.inspection.frames import Pass, pass_of
from atlas.inspection.verify import Verifier, check_shape, checks_for, inputs_of
from atlas.provenance.store import SourceStore
from atlas.runtime.captures import Captured
from atlas.runtime.engine import Engine

QUERIES, WEIGHTS = "blocks/attention/rotated-queries", "blocks/attention/attention-weights"
MASKED = "blocks/attention/masked-similarities"


@pytest.fixture
def verifier() -> Iterator[Verifier]:
    verifier = Verifier()
    yield verifier
    verifier.close()


def demonstration(engine: Engine) -> str:
    assert engine.demonstration is not None
    return engine.demonstration


def captured(
    engine: Engine, nodes: list[str], view: str = "prefill", layer: int = 3, step: int | None = None
) -> dict[str, Captured]:
    return engine.request(demonstration(engine), nodes, view, layer, step).result(60)


def checked(
    engine: Engine, verifier: Verifier, node: str, view: str = "prefill", layer: int = 3, step: int | None = None
) -> Checks:
    async def ask() -> Checks:
        tensor = await engine.tensor(demonstration(engine), node, view, layer, step)
        return await verifier.checks(engine, demonstration(engine), tensor)

    return asyncio.run(ask())


@pytest.mark.parametrize(("view", "step"), [("prefill", None), ("decode", 2), ("full", None)])
@pytest.mark.parametrize(
    "node",
    [
        "embedding/embedded",
        "rotary/rotations",
        "blocks/attention-norm/reciprocal-rms",
        QUERIES,
        "blocks/attention/key-cache",
        WEIGHTS,
        "blocks/block-output",
        "final-norm/normalized",
        "unembedding/logits",
    ],
)
def test_all_checks_of_a_tensor_hold(
    engine: Engine, verifier: Verifier, node: str, view: str, step: int | None
) -> None:
    found = checked(engine, verifier, node, view, 3, step)
    assert found.shape.ok is True
    assert found.source.ok is True
    assert found.equation.ok is True, found.equation
    assert found.equation.worst_row is not None
    assert found.equation.max_abs_error is not None
    assert found.equation.worst_row <= 3e-6
    assert found.equation.rows_checked == found.equation.rows > 0


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("token-ids", "Given to the pass"),
        ("blocks/block-input", "Handed on from"),
        ("blocks/attention/query-weight", "learned weight"),
        ("unembedding/weight", "learned weight"),
    ],
)
def test_a_check_that_does_not_apply_says_why(engine: Engine, verifier: Verifier, node: str, why: str) -> None:
    found = checked(engine, verifier, node)
    assert found.shape.ok is True
    assert found.equation.ok is None
    assert why in found.equation.why


def test_a_check_is_remembered(engine: Engine, verifier: Verifier) -> None:
    assert checked(engine, verifier, QUERIES).equation is checked(engine, verifier, QUERIES).equation


def test_a_wrong_number_is_found(engine: Engine) -> None:
    model = engine.model_of(demonstration(engine))
    inputs = captured(engine, [QUERIES, *inputs_of(model, QUERIES)])
    one = inputs[QUERIES]
    facts = pass_of("prefill", None, 5, 5)
    assert checks_for(model, facts, QUERIES, one, inputs).equation.ok is True
    wrong = one.tensor.clone()
    wrong[0, 4, 8, 63] += 0.01
    found = checks_for(model, facts, QUERIES, dataclasses.replace(one, tensor=wrong), inputs).equation
    assert found.ok is False
    assert found.worst_at == [0, 4, 8]


def test_weights_of_the_wrong_mask_are_found(engine: Engine) -> None:
    model = engine.model_of(demonstration(engine))
    inputs = captured(engine, [WEIGHTS, MASKED])
    facts = pass_of("prefill", None, 5, 5)
    seen = inputs[MASKED].tensor.clone()
    seen[..., 2, 3] = 0.0
    leaky = {MASKED: dataclasses.replace(inputs[MASKED], tensor=seen)}
    assert checks_for(model, facts, WEIGHTS, inputs[WEIGHTS], leaky).equation.ok is False


def test_a_shape_is_compared_axis_by_axis(engine: Engine) -> None:
    model = engine.model_of(demonstration(engine))
    wrong = check_shape(model, Pass("prefill", 5, 0), QUERIES, [1, 9, 5, 64])
    assert wrong.ok is False
    assert wrong.expected == [1, 5, 9, 64]
    assert wrong.why == "Positions is 9, not 5; q_heads is 5, not 9."
    assert check_shape(model, Pass("prefill", 5, 0), QUERIES, [1, 5, 576]).ok is False
    assert check_shape(model, Pass("decode", 1, 5), MASKED, [1, 9, 1, 6]).ok is False


def test_a_source_that_was_edited_is_named(engine: Engine, verifier: Verifier, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(engine, verifier, QUERIES).source.ok is True

    def edited(*_: object) -> None:
        raise SourceMismatch("model.py is not the pinned file.", "Install it again.")

    monkeypatch.setattr(SourceStore, "read", edited)
    found = checked(engine, verifier, QUERIES)
    assert found.source.ok is False
    assert "not the pinned file" in found.source.why
    assert found.equation.ok is True
