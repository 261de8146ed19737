"""From the stream to tokens: the lens is the architecture's own ending, and probabilities add up."""

from __future__ import annotations

import numpy as np
import pytest

from atlas.catalog import Catalog
from atlas.errors import BadRequest
from atlas.inspection.arrays import as_array
from atlas.inspection.lens import LogitLens, lens_parameters, predictions
from atlas.runtime.references.base import ReferenceRunner


def test_the_lens_needs_the_gain_and_the_unembedding(catalog: Catalog) -> None:
    for model in ("llama-3-8b", "smollm2-135m"):
        assert lens_parameters(catalog[model].graph) == ("final-norm/gain", "unembedding/weight")


def test_the_lens_is_norm_gain_and_unembedding(runner: ReferenceRunner) -> None:
    graph = runner.model.graph
    gain, weight = (as_array(runner.weight(name)) for name in ("norm.weight", "output.weight"))
    lens = LogitLens(graph, {"final-norm/gain": gain, "unembedding/weight": weight})
    features = np.random.default_rng(0).standard_normal((3, 576)).astype(np.float32) * 40
    wide = features.astype(np.float64)
    normal = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * gain
    expected = normal @ weight.astype(np.float64).T
    gap = np.linalg.norm(lens.logits(features) - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert gap.max() < 1e-6


def test_probabilities_are_those_of_the_temperature() -> None:
    row = np.array([[2.0, 1.0, 4.0, -np.inf, 3.0]], np.float32)
    (warm,) = predictions(row, [6], [1], 2, 2.0, str)
    shares = np.exp(np.array([2.0, 1.0, 4.0, -np.inf, 3.0]) / 2)
    shares /= shares.sum()
    assert [one.id for one in warm.top] == [2, 4]
    assert [one.probability for one in warm.top] == pytest.approx([shares[2], shares[4]])
    assert warm.next is not None
    assert (warm.next.rank, warm.next.label, warm.position) == (4, "1", 6)
    assert warm.next.probability == pytest.approx(shares[1])
    (greedy,) = predictions(row, [6], [None], 1, 0.0, str)
    assert greedy.next is None
    assert greedy.top[0].probability == pytest.approx(np.exp(4) / np.exp([1, 2, 3, 4]).sum())


def test_logits_without_a_number_say_so() -> None:
    with pytest.raises(BadRequest, match="position 3 hold no finite number"):
        predictions(np.full((1, 4), np.nan, np.float32), [3], [None], 2, 1.0, str)
