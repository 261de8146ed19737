"""Rows are what is compared: infinities in place, zeros exactly, and a rotation's angle for what float32 can say."""

from __future__ import annotations

import numpy as np
import pytest

from atlas.catalog import Catalog
from atlas.graph.resolve import Graph
from atlas.inspection import evaluate
from atlas.inspection.arrays import Array
from atlas.inspection.evaluate import bind, compare, row_errors
from atlas.inspection.frames import Pass

SIMILARITIES, SCALED = "blocks/attention/similarities", "blocks/attention/scaled-similarities"
INF = np.inf


@pytest.fixture(scope="module")
def graph(catalog: Catalog) -> Graph:
    return catalog["smollm2-135m"].graph


def scaled(graph: Graph, similarities: Array, output: Array, made_in: Pass) -> evaluate.Comparison:
    axes = ("batch", "q_heads", "queries", "keys")
    arrays = {SIMILARITIES: (similarities, axes), SCALED: (output, axes)}
    bound = bind(graph, graph["blocks/attention/scale-similarities"], SCALED, made_in, arrays)
    assert not isinstance(bound, str)
    return compare(bound, SCALED, output, axes, "float32")


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0),
        ([3.0, 4.5], [3.0, 4.0], 0.1),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 1e-30], [0.0, 0.0], INF),
        ([1.0, -INF], [1.0, -INF], 0.0),
        ([-INF, 1.0], [1.0, -INF], INF),
        ([1.0, INF], [1.0, -INF], INF),
        ([1.0, np.nan], [1.0, np.nan], 0.0),
        ([1.0, np.nan], [1.0, 2.0], INF),
        ([1.0, 2.0], [1.0, np.nan], INF),
        ([1e200, 0.0], [1e200, 1e190], 1e-10),
        ([1j, 1.0], [1j, 1.0], 0.0),
        ([1j, 1.0], [-1j, 1.0], 2**0.5),
    ],
)
def test_a_row_is_compared(found: list[complex], expected: list[complex], error: float) -> None:
    errors, _ = row_errors(np.array([found]), np.array([expected]))
    assert errors == pytest.approx([error])


def test_a_massive_entry_hides_nothing_in_other_rows() -> None:
    expected = np.ones((2, 4))
    expected[0, 0] = 22_500
    found = expected.copy()
    found[1, 2] = 1.01
    errors, largest = row_errors(found, expected)
    assert errors[0] == 0
    assert errors[1] == pytest.approx(0.005)
    assert largest == pytest.approx(0.01)


def test_the_worst_row_is_named(graph: Graph) -> None:
    similarities = np.random.default_rng(1).normal(size=(1, 9, 3, 3)).astype(np.float32)
    output = (similarities / np.float32(8)).astype(np.float32)
    good = scaled(graph, similarities, output, Pass("prefill", 3, 0))
    assert good.ok
    assert good.rows == good.rows_checked == 27
    output[0, 4, 1, 2] *= 1.001
    bad = scaled(graph, similarities, output, Pass("prefill", 3, 0))
    assert not bad.ok
    assert bad.worst_at == (0, 4, 1)
    assert bad.worst_row is not None
    assert bad.worst_row > bad.tolerance


def test_another_shape_is_no_match(graph: Graph) -> None:
    similarities = np.ones((1, 9, 3, 3), np.float32)
    assert not scaled(graph, similarities, similarities[:, :, :2] / 8, Pass("prefill", 3, 0)).ok


def test_a_large_tensor_is_checked_in_part(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "WIDE", 9 * 3 * 100)
    similarities = np.random.default_rng(1).normal(size=(1, 9, 100, 100)).astype(np.float32)
    output = (similarities / np.float32(8)).astype(np.float32)
    output[0, 8, 99, 0] += 1
    found = scaled(graph, similarities, output, Pass("prefill", 100, 0))
    assert found.kept == {"queries": 3}
    assert (found.rows_checked, found.rows) == (27, 900)
    assert not found.ok
    assert found.worst_at == (0, 8, 99)


def test_the_outputs_of_a_large_matrix_are_checked_in_part(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "HEAVY", 576 * 4)
    random = np.random.default_rng(1)
    weight, features = random.normal(size=(100, 576)), random.normal(size=(1, 2, 576))
    logits = features @ weight.T
    axes = ("batch", "positions", "vocab")
    arrays = {
        "unembedding/weight": (weight, ("vocab", "d_model")),
        "final-norm/normalized": (features, ("batch", "positions", "d_model")),
    }
    bound = bind(graph, graph["unembedding/project"], "unembedding/logits", Pass("prefill", 2, 0), arrays)
    assert not isinstance(bound, str)
    found = compare(bound, "unembedding/logits", logits, axes, "float64")
    assert found.ok
    assert found.kept == {"vocab": 4}
    logits[0, 1, 99] += 1
    assert not compare(bound, "unembedding/logits", logits, axes, "float64").ok


def test_the_angle_of_a_rotation_may_be_as_wrong_as_float32_is(graph: Graph) -> None:
    frequencies = (1 / 100_000 ** (np.arange(0, 64, 2, dtype=np.float32) / 64)).astype(np.float32)
    start, axes = 8000, ("positions", "pairs")
    arrays = {"rotary/inverse-frequencies": (frequencies, ("pairs",))}
    bound = bind(graph, graph["rotary/rotate"], "rotary/rotations", Pass("decode", 1, start), arrays)
    assert not isinstance(bound, str)

    def rotations(position: int) -> Array:
        angles = np.float32(position) * frequencies
        return np.asarray([np.exp(1j * angles.astype(np.float64))], np.complex64)

    right = compare(bound, "rotary/rotations", rotations(start), axes, "complex64")
    assert right.ok
    assert right.worst_row is not None
    assert right.worst_row > evaluate.TOLERANCES["complex64"]
    assert not compare(bound, "rotary/rotations", rotations(start + 1), axes, "complex64").ok
