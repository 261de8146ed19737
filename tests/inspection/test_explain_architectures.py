"""Explanations need nothing from an architecture but its references: every node of every one is followed."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from atlas.catalog import Catalog, found_architectures
from atlas.graph.nodes import Tensor
from atlas.inspection.checks._live import Witness
from atlas.inspection.explain import explain_cell
from atlas.inspection.telling import Asked
from atlas.inspection.verify import inputs_of
from atlas.runtime.untrained import untrained

SMALL = sorted(name for name, module in found_architectures().items() if hasattr(module, "SMALL"))


@pytest.mark.parametrize("architecture", SMALL)
def test_every_node_is_followed(catalog: Catalog, architecture: str) -> None:
    model = catalog.small(architecture)
    module = import_module(f"atlas.runtime.references.{model.architecture.reference.runner}")
    witness, random = Witness(module.Runner(model, untrained(model))), np.random.default_rng(3)
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
