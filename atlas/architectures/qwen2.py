"""Qwen2: Llama's block, with a bias on queries, keys and values and nowhere else.

Declared from `modeling_qwen2.py` of transformers, which also runs it. Row vectors; weights are stored [out, in].
"""

from __future__ import annotations

from atlas.architectures import _attention, _ends, _gated, _rope
from atlas.architectures._code import ATTENTION, Code, Config, family_sizes, refuse, theta
from atlas.architectures._norms import block_norm, final_norm
from atlas.graph.nodes import Architecture

ID = "qwen2"
CODE = Code("qwen2", "Qwen2")
SMALL: Config = {
    "vocab_size": 272,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
"""A model of a size that any machine runs at once."""


def sizes(config: Config) -> dict[str, int]:
    """The fixed axes."""
    return family_sizes(config)


def declare(config: Config) -> Architecture:
    """The whole declaration for one configuration."""
    refuse("Qwen2", config, "use_sliding_window", False)
    fixed = sizes(config)
    group = fixed["q_heads"] // fixed["kv_heads"]
    tied = bool(config.get("tie_word_embeddings"))
    loops, enters = _ends.JOINED
    return Architecture(
        id=ID,
        name="Qwen2",
        kind="Dense decoder",
        attention="Grouped-query attention" if group > 1 else "Multi-head attention",
        summary=(
            "Llama's block: attention and a SwiGLU network read normalised copies of one residual stream and add to it, positions "
            "are rotations, and several query heads share each head of keys and values. One thing is added: queries, keys and "
            "values have a bias. It had gone out of use as needless, and "
            "came back here for what it does to positions: a constant part of keys and queries, once rotated, is a liking for "
            "certain distances that does not depend on the text. That was found to carry further beyond the length trained on. "
            "Qwen3 replaced it by normalising queries and keys."
        ),
        reference=CODE.reference({**config, "rope_theta": theta(config)}),
        nodes=(
            *_ends.tokens(CODE),
            *_ends.embedding(CODE, tied=tied),
            *_rope.position_ids(CODE),
            *_rope.rotary(CODE),
            *_ends.mask(CODE, made=CODE.forward.call("create_causal_mask")),
            *_ends.block(
                CODE,
                "All blocks have the same form and each has weights of its own. A block can only add to the stream.",
            ),
            *block_norm(CODE, "attention-norm", "a", "blocks/block-input", 1, "input_layernorm"),
            _attention.component(
                CODE,
                f"The only place where positions exchange information. {group} query heads share each head of keys and values, "
                "and each of the three projections has a bias; the output projection has none.",
            ),
            *_attention.projections(CODE, group, bias=True),
            *_rope.rotations(CODE),
            *_attention.caches(CODE, group),
            *_attention.scores(CODE),
            *_attention.weights(CODE),
            *_attention.mixing(CODE),
            *_attention.output(CODE),
            *_ends.residual(
                CODE, "attention", CODE.layer.assigns("hidden_states", nth=3), update=f"{ATTENTION}/attention-update"
            ),
            *block_norm(CODE, "feed-forward-norm", "m", "blocks/mid-residual", 4, "post_attention_layernorm"),
            _gated.component(
                CODE,
                "SwiGLU (Shazeer, 2020): each hidden feature reads one direction of the stream through a gate and another "
                "through up, and writes their product back. Positions do not meet here.",
            ),
            *_gated.network(CODE),
            *_ends.residual(
                CODE,
                "feed-forward",
                CODE.layer.assigns("hidden_states", nth=6),
                update="blocks/feed-forward/feed-forward-update",
            ),
            *final_norm(CODE),
            *_ends.unembedding(CODE, tied=tied),
        ),
        sizes=fixed,
        settings={"norm_eps": config.get("rms_norm_eps", 1e-6), "rope_theta": theta(config), "group": group},
        loops=loops,
        enters=enters,
    )
