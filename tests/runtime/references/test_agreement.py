"""Our numbers against an independent implementation: transformers' Llama on the same weights, node by node.

transformers pairs feature i with i + h/2 where Meta pairs 2i with 2i + 1, so rows of W_Q and W_K are permuted for it
and its queries and keys permuted back. Compared row by row: norm of the difference over norm of the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from atlas.runtime.references.base import Pass, ReferenceRunner

TOLERANCE = 2e-5
PROMPT = "In 1969, two people walked on the moon; the name of the first was"
STEPS = 3


def to_theirs(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Meta row 2i + j of a head becomes row j h/2 + i."""
    return rows.view(heads, -1, 2, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)


def to_ours(features: torch.Tensor) -> torch.Tensor:
    """The last axis of a head from (i, i + h/2) to (2i, 2i + 1)."""
    half = features.shape[-1] // 2
    return torch.stack([features[..., :half], features[..., half:]], dim=-1).flatten(-2)


@pytest.fixture(scope="module")
def theirs(runner: ReferenceRunner) -> Iterator[Any]:
    """transformers' model with our weights, and a dictionary that its parts write to."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama import modeling_llama

    config = runner.checkpoint.config
    sizes = runner.model.architecture.sizes
    theta = config["rope_theta"]
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=sizes["vocab"],
            hidden_size=sizes["d_model"],
            intermediate_size=sizes["d_mlp"],
            num_hidden_layers=sizes["layers"],
            num_attention_heads=sizes["q_heads"],
            num_key_value_heads=sizes["kv_heads"],
            rms_norm_eps=float(config["norm_eps"] or 0),
            rope_parameters={"rope_type": "default", "rope_theta": float(theta or 0)},
            tie_word_embeddings=True,
            attn_implementation="eager",
        )
    ).eval()
    tensors = runner.checkpoint.tensors
    state = {
        "model.embed_tokens.weight": tensors["tok_embeddings.weight"],
        "lm_head.weight": tensors["tok_embeddings.weight"],
        "model.norm.weight": tensors["norm.weight"],
    }
    for layer in range(sizes["layers"]):
        here, there = f"layers.{layer}", f"model.layers.{layer}"
        heads = {"q": sizes["q_heads"], "k": sizes["kv_heads"]}
        for letter in "qk":
            weight = tensors[f"{here}.attention.w{letter}.weight"]
            state[f"{there}.self_attn.{letter}_proj.weight"] = to_theirs(weight, heads[letter])
        for ours, other in (
            ("attention.wv", "self_attn.v_proj"),
            ("attention.wo", "self_attn.o_proj"),
            ("feed_forward.w1", "mlp.gate_proj"),
            ("feed_forward.w3", "mlp.up_proj"),
            ("feed_forward.w2", "mlp.down_proj"),
            ("attention_norm", "input_layernorm"),
            ("ffn_norm", "post_attention_layernorm"),
        ):
            state[f"{there}.{other}.weight"] = tensors[f"{here}.{ours}.weight"]
    missing = model.load_state_dict(state, strict=False)
    assert not missing.missing_keys
    assert not missing.unexpected_keys

    seen: dict[tuple[str, int], torch.Tensor] = {}
    counter = {"rotated": 0, "attention": 0}
    plain_rotate, plain_attention = modeling_llama.apply_rotary_pos_emb, modeling_llama.eager_attention_forward

    def rotate(*arguments: Any, **keywords: Any) -> Any:
        q, k = plain_rotate(*arguments, **keywords)
        layer = counter["rotated"] % sizes["layers"]
        counter["rotated"] += 1
        seen["blocks/attention/rotated-queries", layer] = to_ours(q).transpose(1, 2)
        seen["blocks/attention/rotated-keys", layer] = to_ours(k).transpose(1, 2)
        return q, k

    def attend(module: Any, q: Any, k: Any, v: Any, *arguments: Any, **keywords: Any) -> Any:
        out, weights = plain_attention(module, q, k, v, *arguments, **keywords)
        layer = counter["attention"] % sizes["layers"]
        counter["attention"] += 1
        seen["blocks/attention/key-cache", layer] = to_ours(k).transpose(1, 2)
        seen["blocks/attention/value-cache", layer] = v.transpose(1, 2)
        seen["blocks/attention/attention-weights", layer] = weights
        seen["blocks/attention/head-outputs", layer] = out.transpose(1, 2)
        seen["blocks/attention/merged-heads", layer] = out.flatten(2)
        return out, weights

    for layer, block in enumerate(model.model.layers):
        watch(block.input_layernorm, "blocks/attention-norm/normalized", layer, seen)
        watch(block.self_attn.v_proj, "blocks/attention/values", layer, seen, sizes["kv_heads"])
        watch(block.self_attn.q_proj, "blocks/attention/queries", layer, seen, sizes["q_heads"], turn=True)
        watch(block.self_attn.k_proj, "blocks/attention/keys", layer, seen, sizes["kv_heads"], turn=True)
        watch(block.self_attn.o_proj, "blocks/attention/attention-update", layer, seen)
        watch(block.post_attention_layernorm, "blocks/feed-forward-norm/normalized", layer, seen)
        watch(block.mlp.gate_proj, "blocks/feed-forward/gate", layer, seen)
        watch(block.mlp.up_proj, "blocks/feed-forward/up", layer, seen)
        watch(block.mlp.act_fn, "blocks/feed-forward/activated-gate", layer, seen)
        watch(block.mlp.down_proj, "blocks/feed-forward/feed-forward-update", layer, seen)
        watch(block, "blocks/block-output", layer, seen)
    watch(model.model.embed_tokens, "embedding/embedded", 0, seen)
    watch(model.model.norm, "final-norm/normalized", 0, seen)
    watch(model.lm_head, "unembedding/logits", 0, seen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_llama, "apply_rotary_pos_emb", rotate)
        patch.setattr(modeling_llama, "eager_attention_forward", attend)
        model.config._attn_implementation = "eager"
        yield model, seen


def watch(
    module: Any, node: str, layer: int, seen: dict[tuple[str, int], torch.Tensor], heads: int = 0, turn: bool = False
) -> None:
    def keep(_: Any, __: Any, out: Any) -> None:
        value = out[0] if isinstance(out, tuple) else out
        if heads:
            value = value.view(*value.shape[:-1], heads, -1)
        seen[node, layer] = to_ours(value) if turn else value

    module.register_forward_hook(keep)


def worst_row(ours: torch.Tensor, other: torch.Tensor) -> float:
    a, b = ours.double().flatten(0, -2), other.double().flatten(0, -2)
    assert ours.shape == other.shape
    return float(((a - b).norm(dim=-1) / a.norm(dim=-1)).max())


def test_every_shared_node_agrees_in_prefill_and_decode(runner: ReferenceRunner, theirs: Any) -> None:
    from transformers import DynamicCache

    model, seen = theirs
    ids = runner.checkpoint.tokenizer.encode(PROMPT)
    memory, cache = runner.memory(64), DynamicCache(config=model.config)
    sites = runner.sites(runner.captured_nodes())
    work, worst, compared = Pass(tuple(ids), 0), 0.0, 0
    for _ in range(1 + STEPS):
        seen.clear()
        logits, recording = runner.capture(work, memory, sites)
        with torch.inference_mode():
            model(torch.tensor([work.tokens]), cache=cache, use_cache=True)
        assert len(seen) == 30 * 18 + 3
        for (node, layer), other in seen.items():
            ours = recording.last(node, layer if node.startswith("blocks/") else None)
            assert ours is not None, node
            error = worst_row(ours, other)
            assert error <= TOLERANCE, (node, layer, work.start, error)
            worst, compared = max(worst, error), compared + 1
        work = Pass((int(logits[0, -1].argmax()),), work.stop)
    assert compared == (1 + STEPS) * (30 * 18 + 3)
    assert 0 < worst <= TOLERANCE
    print(f"worst row {worst:.1e}")


def test_a_wrong_pairing_would_be_seen(runner: ReferenceRunner, theirs: Any) -> None:
    """The comparison can fail: their features taken without permuting back differ by far."""
    model, seen = theirs
    seen.clear()
    ids = runner.checkpoint.tokenizer.encode(PROMPT)
    node = "blocks/attention/rotated-queries"
    _, recording = runner.capture(Pass(tuple(ids), 0), runner.memory(64), [runner.site(node)])
    with torch.inference_mode():
        model(torch.tensor([ids]), use_cache=False)
    ours = recording.last(node, 0)
    assert ours is not None
    half = ours.shape[-1] // 2
    unturned = seen[node, 0].unflatten(-1, (half, 2)).transpose(-1, -2).flatten(-2)
    assert worst_row(ours, unturned) > 0.1
