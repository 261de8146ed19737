"""Qwen3: a Llama-like decoder whose queries and keys are normalised, head by head, before they are rotated.

Declared from `modeling_qwen3.py` of transformers, which also runs it. Row vectors; weights are stored [out, in].
"""

from __future__ import annotations

from atlas.architectures import _attention, _ends, _gated, _rope
from atlas.architectures._code import ATTENTION, Code, Config, family_sizes, refuse, theta
from atlas.architectures._norms import block_norm, final_norm, head_norm
from atlas.graph.nodes import Architecture, Node

ID = "qwen3"
CODE = Code("qwen3", "Qwen3")
SMALL: Config = {
    "vocab_size": 272,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
"""A model of a size that any machine runs at once."""


def sizes(config: Config) -> dict[str, int]:
    """The fixed axes."""
    return family_sizes(config)


def declare(config: Config) -> Architecture:
    """The whole declaration for one configuration."""
    refuse("Qwen3", config, "use_sliding_window", False)
    refuse("Qwen3", config, "attention_bias", False)
    fixed = sizes(config)
    group = fixed["q_heads"] // fixed["kv_heads"]
    tied = bool(config.get("tie_word_embeddings"))
    loops, enters = _ends.JOINED
    return Architecture(
        id=ID,
        name="Qwen3",
        kind="Dense decoder",
        attention="Grouped-query attention" if group > 1 else "Multi-head attention",
        summary=(
            "The frame is Llama's: identical blocks that read normalised copies of one residual stream and add to it, "
            "rotary positions, grouped queries, a SwiGLU network. What is its own: every query and every key is brought to "
            "unit size before it is rotated. So no product of the two can grow without bound, and training stays steady without "
            "the biases that Qwen2 gave them. Heads together may be wider than the stream they read, since their width is a size "
            "of its own. The last normalised features are compared with one learned direction a token, which scores every token "
            "as the next."
        ),
        reference=CODE.reference(config),
        nodes=(
            *_ends.tokens(CODE),
            *_ends.embedding(CODE, tied=tied),
            *_rope.position_ids(CODE),
            *_rope.rotary(
                CODE, why="Qwen3 uses a theta of a million, a hundred times Llama 2's, for its longer context."
            ),
            *_ends.mask(CODE, made=CODE.forward.call("create_causal_mask")),
            *_ends.block(
                CODE,
                "All blocks have the same form and each has weights of its own. A block can only add to the stream.",
            ),
            *block_norm(CODE, "attention-norm", "a", "blocks/block-input", 1, "input_layernorm"),
            *_attention_part(group),
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
        settings={
            "norm_eps": config.get("rms_norm_eps", 1e-6),
            "rope_theta": theta(config),
            "group": group,
        },
        loops=loops,
        enters=enters,
    )


def _attention_part(group: int) -> tuple[Node, ...]:
    normed = {
        name: CODE.attend.assigns(f"{name}_states", nth=1).receiver for name in ("query", "key")
    }  # self.q_norm(self.q_proj(hidden_states).view(hidden_shape))
    values = CODE.attend.assigns("value_states", nth=1).receiver
    return (
        _attention.component(
            CODE,
            "The only place where positions exchange information. A query asks, keys answer, and the values of the positions "
            f"whose keys match best are mixed. {group} query heads share each head of keys and values, so the cache is "
            f"{group} times smaller than with one each.",
        ),
        *_attention.projections(
            CODE,
            group,
            places=(normed["query"].arg(0), normed["key"].arg(0), values),
            texts=(
                "Before they are normalised: their size does not matter yet.",
                f"Before they are normalised and rotated. There are {group} times fewer heads of keys than of queries.",
                "Neither normalised nor rotated: what is handed over keeps its size, and does not depend on where it stood.",
            ),
        ),
        *head_norm(CODE, "queries", "q_heads", normed["query"]),
        *head_norm(CODE, "keys", "kv_heads", normed["key"]),
        *_rope.rotations(CODE, queries="query-norm/normalized", keys="key-norm/normalized"),
        *_attention.caches(CODE, group),
        *_attention.scores(
            CODE,
            why=(
                "With the root of the head width, as everywhere, although queries and keys have been normalised: their gains "
                "decide how sharp attention can become, and the largest product is bounded by them."
            ),
        ),
        *_attention.weights(CODE),
        *_attention.mixing(CODE),
        *_attention.output(CODE),
    )
