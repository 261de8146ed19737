"""Which blocks are alike: whatever tells one apart, in code, sizes, settings or declaration, has it run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from atlas.catalog import Catalog
from atlas.graph.nodes import Architecture, Layers, Window
from atlas.graph.resolve import Graph
from atlas.runtime.references.alike import Same, alike, enough

COUNT, ODD = 6, 3


class Part(nn.Module):
    """A block of the made-up model."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer_idx, self.heads, self.scale = layer, 4, 0.5
        self.within = nn.Linear(2, 3)
        self.register_buffer("table", torch.zeros(2))


class Other(Part):
    """The same sizes, other code."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@pytest.fixture(scope="module")
def architecture(catalog: Catalog) -> Architecture:
    """A declaration with as many layers as there are blocks here."""
    declared = catalog["smollm2-135m"].architecture
    return declared.model_copy(update={"sizes": {**declared.sizes, "layers": COUNT}})


def blocks() -> list[nn.Module]:
    return [Part(layer) for layer in range(COUNT)]


def test_blocks_that_differ_in_their_number_only_are_alike(architecture: Architecture) -> None:
    groups = alike(Graph(architecture), blocks())
    assert groups == (tuple(range(COUNT)),)
    assert enough(groups) == (0, 1, COUNT - 1)


def changed(block: Any, name: str, value: object) -> Any:
    setattr(block, name, value)
    return block


DIFFERENT: dict[str, Callable[[Any], Any]] = {
    "a setting": lambda block: changed(block, "heads", 8),
    "a setting of another type": lambda block: changed(block, "scale", "0.5"),
    "a setting that is not understood": lambda block: changed(block, "scale", object()),
    "the number of another block": lambda block: changed(block, "layer_idx", 0),
    "a parameter's size": lambda block: changed(block, "within", nn.Linear(2, 4)),
    "a parameter's dtype": lambda block: changed(block, "within", nn.Linear(2, 3, dtype=torch.float64)),
    "a parameter that is missing": lambda block: changed(block, "within", nn.Linear(2, 3, bias=False)),
    "a buffer's size": lambda block: changed(block, "table", torch.zeros(3)),
    "one part more": lambda block: changed(block, "more", nn.Identity()),
    "another class": lambda _: Other(ODD),
    "code of its own": lambda block: changed(block, "forward", lambda x: x),
    "a hook": lambda block: (block.register_forward_hook(lambda *_: None), block)[1],
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_whatever_tells_a_block_apart_has_it_run(architecture: Architecture, what: str) -> None:
    made = blocks()
    made[ODD] = DIFFERENT[what](made[ODD])
    groups = alike(Graph(architecture), made)
    assert (ODD,) in groups
    assert ODD in enough(groups)


def test_the_configuration_of_a_layer_tells_it_apart(architecture: Architecture) -> None:
    kinds = ["full"] * COUNT
    kinds[ODD] = "sliding"
    config = SimpleNamespace(layer_types=kinds, other=[1, 2])
    assert (ODD,) in alike(Graph(architecture), blocks(), config)


def test_the_declaration_of_a_layer_tells_it_apart(architecture: Architecture) -> None:
    odd = Layers(name="odd", numbers=(ODD,))
    windowed = architecture.model_copy(update={"window": Window(size=3, layers=odd)})
    assert (ODD,) in alike(Graph(windowed), blocks())


def test_a_block_that_is_left_out_hands_on_what_it_is_given() -> None:
    given = torch.ones(2)
    assert Same()(given, 3, mask=None) is given
