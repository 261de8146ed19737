"""What was seen, put in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from atlas.graph.anchors import at
from atlas.runtime.derivation.observation import Pass, Shape, Value, anchored, fits, generic, merged, settled

INNER = "model.layers.{layer}.attn"


def value(key: str, observed: Mapping[Pass, Sequence[Shape]], module: str = INNER, **facts: Any) -> Value:
    anchor = at(key).returns()
    seen = {where: list(shapes) for where, shapes in observed.items()}
    return Value(key, key, "returned", 0, None, anchor, "f(x)", module, observed=seen, **facts)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("model.layers.11.mlp.up.weight", ("model.layers.{layer}.mlp.up.weight", 11)),
        ("model.layers.0", ("model.layers.{layer}", 0)),
        ("model.layers", ("model.layers", None)),
        ("model.layers_norm.weight", ("model.layers_norm.weight", None)),
        ("lm_head.weight", ("lm_head.weight", None)),
    ],
)
def test_names_without_the_number_of_their_block(name: str, found: tuple[str, int | None]) -> None:
    assert generic(name, "model.layers") == found


def test_what_another_pass_has_more_comes_behind_what_was_before_it_there() -> None:
    order = merged(["a", "scan", "join", "end"], ["a", "step", "step-2", "join", "end", "last"])
    assert order == ["a", "step", "step-2", "scan", "join", "end", "last"]
    assert merged([], ["b", "a"]) == ["b", "a"]


def test_what_only_a_later_layer_has_comes_where_that_layer_has_it() -> None:
    order: list[str] = []
    layers = (["tokens"], ["in", "linear", "add"], ["in", "attention", "add"], ["norm"])
    for number, keys in enumerate(layers):
        order = merged(order, keys, first=number == 0)
    assert order == ["tokens", "in", "attention", "linear", "add", "norm"]


def test_a_function_that_serves_one_module_needs_no_more_than_its_place() -> None:
    alone = value("f", {("full", 0): [(1, 2)]})
    assert anchored(alone, {(INNER, None)}) == alone.anchor


def test_a_function_that_serves_several_is_told_by_the_call_around_it() -> None:
    call, other = at("g").call("f", 1), at("g").call("f", 2)
    one = value("f", {("full", 0): [(1, 2)]}, call=call)
    assert anchored(one, {(INNER, call), (INNER, other)}) == one.anchor.inside(call)
    assert anchored(one, {(INNER, call), ("model.layers.{layer}.cross", call)}) is None, "the same call for two modules"
    assert anchored(value("f", {}), {(INNER, None), (INNER, call)}) is None, "nothing tells where it was called"


def test_what_has_no_shape_of_its_own_does_not_fit() -> None:
    blocks = "model.layers"
    assert fits(value("f", {("full", 0): [(1, 2), (1, 2)]}), blocks)
    assert not fits(value("f", {("full", 0): [(1, 2), (1, 3)]}), blocks), "turns of a loop differ"
    assert not fits(value("f", {("full", 0): [(1, 2)], ("decode", 0): [(1, 2, 3)]}), blocks), "ranks differ"
    assert not fits(value("f", {("full", None): [(1, 2)]}), blocks), "a module of a block, outside of them"
    assert not fits(value("f", {("full", 0): [(1, 2)]}, module="model"), blocks), "inside them, another's module"


def test_layers_that_differ_become_values_of_their_own() -> None:
    wide = value("f", {("full", 0): [(1, 8)], ("full", 1): [(1, 4)], ("full", 2): [(1, 8)]})
    reads = value("g", {("full", layer): [(1, 1)] for layer in range(3)})
    reads.sources = {"f": {("full", layer) for layer in range(3)}, "w": {("full", layer) for layer in range(3)}}
    weights: dict[tuple[str, int | None], Shape] = {("w", 0): (8, 2), ("w", 1): (4, 2), ("w", 2): (8, 2)}
    values, kept = settled({"f": wide, "g": reads}, weights)
    assert {key: found.layers for key, found in values.items()} == {"f": {0, 2}, "f#2": {1}, "g": {0, 1, 2}}
    assert {key: (weight.shape, set(weight.layers)) for key, weight in kept.items()} == {
        "w": ((8, 2), {0, 2}),
        "w#2": ((4, 2), {1}),
    }
    assert values["g"].sources == {
        "f": {("full", 0), ("full", 2)},
        "f#2": {("full", 1)},
        "w": {("full", 0), ("full", 2)},
        "w#2": {("full", 1)},
    }
    assert (values["f"].shapes, values["g"].turns) == ({"full": (1, 8)}, 1)


def test_outside_the_blocks_values_of_the_last_one_are_read() -> None:
    inner = value("f", {("full", 0): [(1, 8)], ("full", 1): [(1, 4)]})
    after = value("g", {("full", None): [(1, 1)]}, module="model")
    after.sources = {"f": {("full", None)}}
    values, _ = settled({"f": inner, "g": after}, {})
    assert values["g"].sources == {"f#2": {("full", None)}}
