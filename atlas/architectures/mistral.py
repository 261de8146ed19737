"""Mistral: Llama's block with attention that sees a sliding window.

Declared from `modeling_mistral.py` of transformers, which also runs it. Row vectors; weights are stored [out, in].
"""

from __future__ import annotations

from atlas.architectures import _attention, _ends, _gated, _rope
from atlas.architectures._code import ATTENTION, Code, Config, family_sizes, theta, windowed_keys
from atlas.architectures._norms import block_norm, final_norm
from atlas.graph.nodes import Architecture, Node, Window

ID = "mistral"
CODE = Code("mistral", "Mistral")
SMALL: Config = {
    "vocab_size": 272,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": None,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "sliding_window": 8,
    "tie_word_embeddings": False,
}
"""A model of a size that any machine runs at once, its window shorter than a test's prompt."""


def sizes(config: Config) -> dict[str, int]:
    """The fixed axes."""
    return family_sizes(config)


def declare(config: Config) -> Architecture:
    """The whole declaration for one configuration; without `sliding_window` every position is seen."""
    fixed = sizes(config)
    group = fixed["q_heads"] // fixed["kv_heads"]
    window = config.get("sliding_window")
    size = None if window is None else int(window)
    loops, enters = _ends.JOINED
    return Architecture(
        id=ID,
        name="Mistral",
        kind="Dense decoder",
        attention=f"Grouped-query attention{', sliding window' if size else ''}",
        summary=(
            "Llama's block: attention and a SwiGLU network read normalised copies of one residual stream and add to it, and "
            "positions enter as rotations of queries and keys. "
            + (
                "Two things keep long texts cheap: several query heads share each head of keys and values, and each position "
                "looks back no further than a window. What lies beyond the window still arrives, one window a layer: after n "
                "layers a position has heard, at second hand, of n windows. The cache stops growing when the window is full. "
                if size
                else "Several query heads share each head of keys and values, which keeps the cache small. Every position sees "
                "all before it, so the cache grows with the text, and the cost of a position too. "
            )
            + "The last normalised features are compared with one learned direction a token, which scores every token as the next."
        ),
        reference=CODE.reference(config),
        nodes=(
            *_ends.tokens(CODE),
            *_ends.embedding(CODE),
            *_rope.position_ids(CODE),
            *_rope.rotary(CODE),
            *_ends.mask(CODE, made=CODE.forward.assigns("causal_mask"), windowed=size is not None),
            *_ends.block(
                CODE,
                "All blocks have the same form and each has weights of its own. A block can only add to the stream.",
            ),
            *block_norm(CODE, "attention-norm", "a", "blocks/block-input", 1, "input_layernorm"),
            *_attention_part(group, size),
            *_ends.residual(
                CODE, "attention", CODE.layer.assigns("hidden_states", nth=3), update=f"{ATTENTION}/attention-update"
            ),
            *block_norm(CODE, "feed-forward-norm", "m", "blocks/mid-residual", 4, "post_attention_layernorm"),
            _gated.component(
                CODE,
                "SwiGLU (Shazeer, 2020), three and a half times as wide as the stream: wider than Llama 2's two and two thirds, "
                "paid for by the smaller matrices of keys and values.",
            ),
            *_gated.network(CODE),
            *_ends.residual(
                CODE,
                "feed-forward",
                CODE.layer.assigns("hidden_states", nth=6),
                update="blocks/feed-forward/feed-forward-update",
            ),
            *final_norm(CODE),
            *_ends.unembedding(CODE, tied=bool(config.get("tie_word_embeddings"))),
        ),
        axes=(windowed_keys(size, everywhere=True),) if size else (),
        sizes=fixed,
        settings={
            "norm_eps": config.get("rms_norm_eps", 1e-6),
            "rope_theta": theta(config),
            "group": group,
            **({"window": size} if size else {}),
        },
        loops=loops,
        enters=enters,
        window=Window(size=size) if size else None,
    )


def _attention_part(group: int, window: int | None) -> tuple[Node, ...]:
    return (
        _attention.component(
            CODE,
            "The only place where positions exchange information. "
            + (
                f"A position sees itself and the {window - 1:,} before it, no more, so the cost of a position does not grow "
                "with the text. A common misunderstanding: the context is not cut to the window, since every layer looks one "
                f"window further back than the one before. {group} query heads share each head of keys and values."
                if window
                else f"{group} query heads share each head of keys and values."
            ),
        ),
        *_attention.projections(CODE, group),
        *_rope.rotations(CODE),
        *_attention.caches(CODE, group, window=window),
        *_attention.scores(CODE),
        *_attention.weights(CODE),
        *_attention.mixing(CODE),
        *_attention.output(CODE),
    )
