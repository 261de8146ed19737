"""Checkpoints of architectures that nothing describes, opened, run, and looked into, in prefill and in decode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from atlas.graph.axes import VIEWS, View
from atlas.graph.nodes import Component, Operation, Parameter, Tensor
from atlas.runtime.references.base import Memory, Pass
from tests.derived import SMALL, Opened

PROMPT = (5, 100, 42, 7, 7, 200, 19, 3, 250, 11)
STEPS = ((12,), (13,), (290,))
EVERY_DECODER = {
    *("token-ids", "embedding/embedded", "blocks/block-input", "blocks/block-output"),
    *("final-norm/normalized", "unembedding/logits", "embedding/weight", "unembedding/weight"),
}

Open = Callable[[str], Opened]
Taken = dict[tuple[str, int | None], torch.Tensor]


@pytest.fixture(params=sorted(SMALL))
def subject(request: pytest.FixtureRequest, opened: Open) -> Opened:
    """Each architecture."""
    return opened(request.param)


def passes() -> list[Pass]:
    works = [Pass(PROMPT, 0)]
    for token in STEPS:
        works.append(Pass(token, works[-1].stop))
    return works


def recorded(subject: Opened) -> tuple[list[torch.Tensor], list[Taken], Memory]:
    """The logits of a prefill and decode steps, everything that was captured in each, and the memory behind them."""
    runner = subject.runner
    memory, sites = runner.memory(16), runner.sites(runner.captured_nodes())
    logits, values = [], []
    for work in passes():
        found, recording = runner.capture(work, memory, sites)
        logits.append(found)
        values.append({key: several[-1].clone() for key, several in recording.values.items()})
    return logits, values, memory


def test_recording_changes_no_bit_of_the_logits(subject: Opened) -> None:
    runner = subject.runner
    memory = runner.memory(16)
    bare = [runner.forward(work, memory) for work in passes()]
    for one, other in zip(bare, recorded(subject)[0], strict=True):
        assert torch.equal(one, other)


def test_decode_gives_what_the_full_sequence_gives(subject: Opened) -> None:
    runner = subject.runner
    logits = torch.cat(recorded(subject)[0], dim=1)
    whole = Pass(PROMPT + tuple(token for step in STEPS for token in step), 0)
    full = runner.forward(whole, runner.memory(whole.stop, cache=False))
    assert torch.allclose(logits, full, atol=1e-4, rtol=1e-4)


def test_a_block_that_is_run_again_gives_the_same_bits(subject: Opened) -> None:
    """Also of passes long gone, whose running state has been overwritten since."""
    runner = subject.runner
    _, values, memory = recorded(subject)
    inside = [path for path in runner.captured_nodes() if path.startswith("blocks/")]
    for work, taken in zip(passes(), values, strict=True):
        for layer in range(runner.n_layers):
            again = runner.replay(work, memory, "block", layer, runner.sites(inside))
            known = {key: value for key, value in taken.items() if key[1] == layer}
            assert {key: again.last(*key) is not None for key in known} == dict.fromkeys(known, True)
            for key, value in known.items():
                assert torch.equal(value, again.values[key][-1]), key


def test_blocks_that_give_tuples_are_run_again_too(opened: Open) -> None:
    test_a_block_that_is_run_again_gives_the_same_bits(opened("BloomForCausalLM"))
    test_what_stands_outside_the_blocks_is_made_again_too(opened("BloomForCausalLM"))


def test_what_stands_outside_the_blocks_is_made_again_too(subject: Opened) -> None:
    runner = subject.runner
    _, values, memory = recorded(subject)
    for work, taken in zip(passes(), values, strict=True):
        for path, layer in taken:
            if layer is None:
                again = runner.replay(work, memory, runner.part(path), None, runner.sites([path]))
                assert torch.equal(taken[path, None], again.values[path, None][-1]), path


def test_every_value_has_its_declared_rank_where_it_is_declared(subject: Opened) -> None:
    _, values, _ = recorded(subject)
    views: tuple[View, ...] = ("prefill", "decode")
    for taken, view in zip(values, views, strict=False):
        for node in subject.graph.nodes.values():
            if isinstance(node.node, Tensor):
                layers = [layer for layer in range(subject.runner.n_layers) if node.exists_in(layer)]
                for layer in layers if node.in_blocks else [None]:
                    value, declared = taken.get((node.path, layer)), node.shape[view]
                    assert (value is None) == (declared is None), (node.path, view, layer)
                    assert value is None or declared is None or value.ndim == len(declared)


def test_the_graph_has_what_every_decoder_has(subject: Opened) -> None:
    graph = subject.graph
    assert graph.nodes.keys() >= EVERY_DECODER
    assert graph.architecture.derived
    assert graph.architecture.reference.model == subject.name
    assert all(node.node.derived for node in graph.operations if isinstance(node.node, Operation))
    assert (graph.architecture.loops, graph.architecture.enters) == (
        (("blocks/block-output", "blocks/block-input"),),
        (("embedding/embedded", "blocks/block-input"),),
    )
    assert [extent.axis for extent in graph["blocks/block-output"].shape["decode"] or ()] == [
        "batch",
        "positions",
        "d_model",
    ]
    blocks = graph["blocks"].node
    assert isinstance(blocks, Component)
    assert (blocks.repeat, graph.architecture.sizes["layers"]) == ("layers", subject.runner.n_layers)


def test_every_parameter_of_the_checkpoint_has_a_node(subject: Opened) -> None:
    names = {
        node.node.weight.format(layer=layer)
        for node in subject.graph.nodes.values()
        if isinstance(node.node, Parameter)
        for layer in range(subject.runner.n_layers)
        if node.exists_in(layer)
    }
    assert names == set(subject.checkpoint.tensors)


def test_values_are_in_order_of_data_flow(subject: Opened) -> None:
    order = list(subject.graph.nodes)
    for edge in subject.graph.edges:
        if not edge.next_layer:
            assert order.index(edge.source) < order.index(edge.target), edge


def test_one_value_may_be_made_in_another_way_in_decode(opened: Open) -> None:
    graph = opened("Mamba2ForCausalLM").graph
    scan = graph["blocks/mixer/norm/hidden-states-2"]
    assert len(scan.inputs) == 2
    views = [graph[path].node.views for path in scan.inputs if isinstance(graph[path].node, Operation)]  # type: ignore[union-attr]
    assert sorted(view for several in views for view in several) == sorted(VIEWS)


def test_layers_that_differ_are_told_apart(opened: Open) -> None:
    graph = opened("SmolLM3ForCausalLM").graph
    rotated = graph["blocks/self-attn/apply-rotary-pos-emb-q-embed"]
    assert rotated.layers is not None
    assert rotated.layers.numbers == (0, 2)
    assert {node.path for node in graph.nodes.values() if node.layers is not None} >= {
        "blocks/self-attn/apply-rotary-pos-emb-k-embed",
        "blocks/self-attn/rotate-half-x1",
    }


def test_two_calls_of_one_function_are_two_values(opened: Open) -> None:
    graph = opened("Olmo2ForCausalLM").graph
    one, other = graph["blocks/self-attn/rotate-half-returned"], graph["blocks/self-attn/rotate-half-returned-2"]
    assert [extent.size for extent in one.shape["full"] or ()] == [None, 4, None, 8]
    assert [extent.size for extent in other.shape["full"] or ()] == [None, 2, None, 8]
    assert isinstance(one.node, Tensor)
    assert str(one.node.hook) == "rotate_half.returns inside apply_rotary_pos_emb.call(rotate_half, 1)"
