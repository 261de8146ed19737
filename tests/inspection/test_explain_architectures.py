"""Explanations need nothing from an architecture but its references: every node of every one is followed."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module

import numpy as np
import pytest

from atlas.catalog import Catalog, Model, found_architectures
from atlas.graph.nodes import Tensor
from atlas.inspection.checks._live import Witness
from atlas.inspection.explain import explain_cell
from atlas.inspection.explained import Explanation
from atlas.inspection.telling import Asked
from atlas.inspection.verify import inputs_of
from atlas.runtime.untrained import untrained

SMALL = sorted(name for name, module in found_architectures().items() if hasattr(module, "SMALL"))


@pytest.fixture(scope="module", params=SMALL)
def witness(request: pytest.FixtureRequest, catalog: Catalog) -> Witness:
    """The small model of each architecture, with random weights."""
    model = catalog.small(request.param)
    module = import_module(f"atlas.runtime.references.{model.architecture.reference.runner}")
    return Witness(module.Runner(model, untrained(model)))


def test_every_node_is_followed(witness: Witness) -> None:
    model, random = witness.model, np.random.default_rng(3)
    layers, explained = witness.runner.n_layers, 0
    for taken in (witness.passes[0], witness.passes[2]):
        for node in model.graph.nodes.values():
            if not isinstance(node.node, Tensor):
                continue
            layer = node.first_layer if node.in_blocks else None
            captured = witness.value(taken, node.path, layer)
            if captured is None:
                continue
            wanted = inputs_of(model, node.path, layer)
            found = {path: witness.value(taken, path, layers - 1 if layer is None else layer) for path in wanted}
            inputs = {path: value for path, value in found.items() if value is not None}
            cell = tuple(int(random.integers(size)) for size in captured.tensor.shape)
            asked = Asked(model, captured, cell, witness.facts(taken, layer), len(witness.prompt))
            told = explain_cell(asked, inputs)
            if told.operation is None:
                continue
            assert told.numbers, f"{node.path}: {told.sentence}"
            explained += 1
            if told.difference is not None and told.captured.value is not None:
                gap = abs(complex(told.difference.value or 0, told.difference.imaginary or 0))
                assert gap <= 1e-3 * max(abs(told.captured.value), 1e-2), node.path
    assert explained > 20


def test_a_logit_is_followed_back_to_an_embedding(witness: Witness) -> None:
    """Number by number, always to an input that is made of tokens, through every layer."""
    model = witness.model
    taken, layers, carrying = witness.passes[0], witness.runner.n_layers, made_of_tokens(model)

    def told(path: str, layer: int | None, cell: tuple[int, ...]) -> Explanation:
        captured = witness.value(taken, path, layer)
        assert captured is not None, path
        places = dict.fromkeys(inputs_of(model, path, layer), layers - 1 if layer is None else layer)
        for edge in model.graph.edges:  # what the block before hands on
            if edge.target == path and (edge.next_layer if layer else edge.first_layer):
                places[edge.source] = (layer or 1) - 1
        found = {one: witness.value(taken, one, where) for one, where in places.items()}
        inputs = {one: value for one, value in found.items() if value is not None}
        asked = Asked(model, captured, cell, witness.facts(taken, layer), len(witness.prompt))
        return explain_cell(asked, inputs)

    logits = witness.value(taken, "unembedding/logits", None)
    assert logits is not None
    explained = told("unembedding/logits", None, (0, logits.tensor.shape[1] - 1, 42))
    seen, through = [explained.node], set[int]()
    while not any(source.node == "token-ids" for source in explained.sources):
        assert len(seen) < 40 * layers, seen[-10:]
        everything = [*explained.sources, *(one for total in explained.totals for one in total.terms[0].sources)]
        following = min((one for one in everything if one.node in carrying), key=lambda one: carrying[one.node])
        explained = told(following.node, following.layer, tuple(following.cell))
        assert explained.captured == following.figure, following.node
        seen.append(explained.node)
        if explained.layer is not None:
            through.add(explained.layer)
    assert through == set(range(layers))
    assert "blocks/block-output" in seen


def made_of_tokens(model: Model) -> dict[str, int]:
    """The nodes to which values come from the tokens, each with its place in the order of the data."""
    into, reached, waiting = defaultdict[str, list[str]](list), set[str](), ["token-ids"]
    for edge in model.graph.edges:
        if not edge.lends:
            into[edge.source].append(edge.target)
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            waiting += into[node]
    return {path: place for place, path in enumerate(model.graph.nodes) if path in reached}
