"""The Llama reference on the real default weights: recorded and replayed bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import _get_current_function_mode

from atlas.runtime.references.base import Memory, Pass, ReferenceRunner

PROMPT = "The capital of France is"
NEW = 4


@pytest.fixture(scope="module")
def ids(runner: ReferenceRunner) -> list[int]:
    """Prompt and greedy continuation."""
    ids = runner.checkpoint.tokenizer.encode(PROMPT)
    memory = runner.memory(16)
    logits = runner.forward(Pass(tuple(ids), 0), memory)
    for _ in range(NEW):
        ids.append(int(logits[0, -1].argmax()))
        logits = runner.forward(Pass((ids[-1],), len(ids) - 1), memory)
    return ids


@pytest.fixture(scope="module")
def passes(ids: list[int]) -> list[Pass]:
    prompt = len(ids) - NEW
    return [Pass(tuple(ids[:prompt]), 0), *(Pass((ids[at],), at) for at in range(prompt, len(ids)))]


@pytest.fixture(scope="module")
def memory(runner: ReferenceRunner, passes: list[Pass]) -> Memory:
    memory = runner.memory(16)
    for work in passes:
        runner.forward(work, memory)
    return memory


def test_the_capital_of_france(runner: ReferenceRunner, ids: list[int]) -> None:
    assert ids[:5] == [504, 3575, 282, 4649, 314]
    assert runner.checkpoint.tokenizer.decode(ids[5:6]) == " Paris"


def test_logits_are_bit_equal_with_the_recorder_on(runner: ReferenceRunner, passes: list[Pass]) -> None:
    plain, recorded = runner.memory(16), runner.memory(16)
    sites = runner.sites(runner.captured_nodes())
    for work in passes:
        logits, recording = runner.capture(work, recorded, sites)
        assert torch.equal(logits, runner.forward(work, plain))
        seen = recording.last("unembedding/logits")
        assert seen is not None
        assert torch.equal(seen, logits)
    for ours, theirs in zip((recorded.residual, *recorded.keys), (plain.residual, *plain.keys), strict=True):
        assert torch.equal(ours[:, : passes[-1].stop], theirs[:, : passes[-1].stop])


def test_every_node_of_every_layer_is_replayed_bit_for_bit(
    runner: ReferenceRunner, passes: list[Pass], memory: Memory
) -> None:
    nodes = runner.captured_nodes()
    fresh, compared = runner.memory(16), 0
    for work in passes:
        _, recording = runner.capture(work, fresh, runner.sites(nodes))
        several = len(work.tokens) > 1
        for part in ("before", "block", "after"):
            inside = [node for node in nodes if runner.part(node) == part]
            for layer in range(runner.n_layers) if part == "block" else [None]:
                replayed = runner.replay(work, memory, part, layer, runner.sites(inside))
                for node in inside:
                    one, other = recording.last(node, layer), replayed.last(node, layer)
                    masks = node in ("causal-mask", "blocks/attention/masked-similarities")
                    assert (one is None) == (other is None) == (masks and not several), node
                    if one is not None and other is not None:
                        assert torch.equal(one, other), (node, layer, work.start)
                        compared += 1
    assert compared > 30 * 25 * len(passes)


def test_a_replay_in_the_middle_of_a_pass_leaves_it_as_it_was(
    runner: ReferenceRunner, passes: list[Pass], memory: Memory
) -> None:
    plain = runner.forward(passes[0], runner.memory(16))
    node = "blocks/attention/attention-update"

    def disturb(layer: int) -> None:
        runner.replay(passes[2], memory, "block", layer, [runner.site(node)])

    assert torch.equal(plain, runner.forward(passes[0], runner.memory(16), disturb))


def test_the_cache_that_was_captured_does_not_change_with_later_steps(
    runner: ReferenceRunner, passes: list[Pass]
) -> None:
    memory = runner.memory(16)
    node = "blocks/attention/key-cache"
    _, recording = runner.capture(passes[0], memory, [runner.site(node)])
    kept = recording.last(node, 3)
    assert kept is not None
    before = kept.clone()
    for buffer in memory.keys:
        buffer.fill_(7.0)
    assert torch.equal(kept, before)


def test_frequencies_are_captured_when_the_model_is_built(runner: ReferenceRunner) -> None:
    found = runner.built.last("rotary/inverse-frequencies")
    assert found is not None
    pairs = torch.arange(0, 64, 2, dtype=torch.float64)
    assert torch.allclose(found.double(), 100000.0 ** (-pairs / 64), rtol=1e-6)


def test_no_hook_is_left(runner: ReferenceRunner, passes: list[Pass]) -> None:
    runner.capture(passes[0], runner.memory(16), runner.sites(runner.captured_nodes()))
    with pytest.raises(RuntimeError):
        runner.forward(passes[0], runner.memory(16), _fail)
    transformer = runner._transformer  # type: ignore[attr-defined]
    assert len(transformer.layers) == runner.n_layers
    for module in transformer.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert _get_current_function_mode() is None  # type: ignore[no-untyped-call]


def _fail(layer: int) -> None:
    if layer == 3:
        raise RuntimeError
