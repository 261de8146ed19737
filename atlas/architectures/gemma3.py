"""Gemma 3: four norms a block, a scaled embedding, and local layers with a global one after every few.

Declared from `modeling_gemma3.py` of transformers (the text model), which also runs it. Row vectors; weights are stored
[out, in].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atlas.architectures import _attention, _ends, _gated, _rope
from atlas.architectures._code import (
    ATTENTION,
    FEED_FORWARD,
    Code,
    Config,
    family_sizes,
    refuse,
    shared,
    whole,
    window_axis,
    windowed_keys,
)
from atlas.architectures._norms import block_norm, final_norm, head_norm
from atlas.architectures._numeric import gelu
from atlas.graph.anchors import at
from atlas.graph.nodes import Architecture, Layers, Node, Operation, Use, Window

ID = "gemma3"
CODE = Code("gemma3", "Gemma3", body="TextModel")
ROWS = CODE.at("TextScaledWordEmbedding.forward").returns().left
SMALL: Config = {
    "vocab_size": 272,
    "hidden_size": 40,
    "intermediate_size": 72,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 12,
    "sliding_window": 8,
    "sliding_window_pattern": 3,
    "rope_theta": 40000.0,
    "rope_local_theta": 10000.0,
    "tie_word_embeddings": True,
}
"""A model of a size that any machine runs at once: both kinds of layers, a window shorter than a test's prompt."""

GELU: _gated.Activation = (
    "GELU",
    r"\operatorname{GELU}(<gate>) \approx \tfrac{1}{2}\,<gate>"
    r"\left(1 + \tanh\!\left[\sqrt{2/\pi}\left(<gate> + 0.044715\,<gate>^3\right)\right]\right)",
    lambda gate: gelu(gate),
    "GELU is the input times the chance that a normal number is below it, here by its tanh approximation. As a gate it makes "
    "the unit a GeGLU (Shazeer, 2020); SiLU has nearly the same shape, with a deeper dip.",
)


def sizes(config: Config) -> dict[str, int]:
    """The fixed axes."""
    return family_sizes(config)


def kinds(config: Config) -> tuple[Layers, Layers]:
    """Local and global layers: every `sliding_window_pattern`-th is global."""
    pattern, count = whole(config, "sliding_window_pattern", 6), whole(config, "num_hidden_layers")
    local = tuple(layer for layer in range(count) if (layer + 1) % pattern)
    return (
        Layers(name="local", numbers=local),
        Layers(name="global", numbers=tuple(layer for layer in range(count) if layer not in local)),
    )


def declare(config: Config) -> Architecture:
    """The whole declaration for one configuration."""
    for name, wanted in (
        ("use_bidirectional_attention", False),
        ("attn_logit_softcapping", None),
        ("final_logit_softcapping", None),
        ("attention_bias", False),
    ):
        refuse("Gemma 3", config, name, wanted)
    fixed = sizes(config)
    group, window = fixed["q_heads"] // fixed["kv_heads"], whole(config, "sliding_window", 4096)
    local, everywhere = kinds(config)
    loops, enters = _ends.JOINED
    layer = CODE.layer
    return Architecture(
        id=ID,
        name="Gemma 3",
        kind="Dense decoder",
        attention="Grouped-query attention, local and global",
        summary=(
            "Blocks read normalised copies of one residual stream and add to it: attention, then a gated network. "
            f"Most layers look no further back than {window:,} positions; every few layers one looks at everything. The local "
            "ones turn positions fast, the global ones slowly, by two tables of rotary frequencies, so that distances mean the "
            "same to either as they did in training. Each branch is normalised twice, before it reads and before it is added, "
            "queries and keys once more, and the embedding is scaled up to the size of the stream. The cache of a long text is "
            "almost that of the few global layers alone."
        ),
        reference=CODE.reference(_arguments(config)),
        nodes=(
            *_ends.tokens(CODE),
            *_ends.embedding(
                CODE,
                tied=True,
                rows=ROWS,
                output="looked-up",
                explanation=(
                    "A look-up, and a factor. The vocabulary is large, 262,144 tokens for many languages: in the smallest "
                    "models the embedding is more than half of all parameters."
                ),
            ),
            *_scaled_embedding(),
            *_rope.position_ids(CODE),
            *_rope.rotary(
                CODE,
                kind="full_attention",
                name="Rotary positions of global layers",
                why="Slow: a theta of a million, since these layers see the whole of a long context.",
            ),
            *_rope.rotary(
                CODE,
                path="rotary-local",
                kind="sliding_attention",
                letter="l",
                theta="rope_local_theta",
                name="Rotary positions of local layers",
                why="Fast: a theta of 10,000 is ample for distances within a window.",
            ),
            *_ends.mask(CODE, made=CODE.forward.call("create_causal_mask")),
            *_ends.mask(
                CODE,
                path="sliding-mask",
                operation="build-sliding-mask",
                made=CODE.forward.call("create_sliding_window_causal_mask"),
                windowed=True,
                symbol=r"M_{\mathrm l}",
                keys="window_keys",
            ),
            *_ends.block(
                CODE,
                f"{local.words.capitalize()}; {everywhere.words}. The two have the same form and the same parameters; they "
                "differ in the mask and in the rotations that they are handed, and in what their caches keep.",
                loop=2,
            ),
            *block_norm(CODE, "attention-norm", "a", "blocks/block-input", 1, "input_layernorm", offset=True),
            *_attention_part(group, window, local, everywhere),
            *block_norm(
                CODE,
                "post-attention-norm",
                "b",
                f"{ATTENTION}/attention-update",
                3,
                "post_attention_layernorm",
                texts=(
                    "Normalise what attention gives, before it is added.",
                    "So no update can be larger than its gain allows, whatever attention has found; the gain tells how much a "
                    "layer may change the stream.",
                ),
                offset=True,
                gguf="post_attention_norm",
                lens="ln1_post",
            ),
            *_ends.residual(
                CODE, "attention", layer.assigns("hidden_states", nth=4), update="blocks/post-attention-norm/normalized"
            ),
            *block_norm(
                CODE, "feed-forward-norm", "m", "blocks/mid-residual", 5, "pre_feedforward_layernorm", offset=True
            ),
            _gated.component(
                CODE,
                "GeGLU: a gate with GELU. Six times as wide as the stream in the 1B model, wider than usual: in a small model "
                "this is where there is room to know things.",
            ),
            *_gated.network(
                CODE,
                activation=GELU,
                also=shared("gelu", "GELU by its tanh approximation.", "activations.py", at("GELUTanh.__init__")),
            ),
            *block_norm(
                CODE,
                "post-feed-forward-norm",
                "c",
                f"{FEED_FORWARD}/feed-forward-update",
                7,
                "post_feedforward_layernorm",
                texts=(
                    "Normalise what the network gives, before it is added.",
                    "The second of the two norms that stand after a branch.",
                ),
                offset=True,
                gguf="post_ffw_norm",
                lens="ln2_post",
            ),
            *_ends.residual(
                CODE,
                "feed-forward",
                layer.assigns("hidden_states", nth=8),
                update="blocks/post-feed-forward-norm/normalized",
            ),
            *final_norm(CODE, offset=True),
            *_ends.unembedding(
                CODE,
                tied=True,
                nth=1,
                explanation=(
                    "One direction a token, the embedding used again (unscaled). Gemma 2 capped its logits softly at 30; "
                    "Gemma 3 does not, and this code does so only if it is configured."
                ),
            ),
        ),
        axes=(windowed_keys(window, everywhere=False), window_axis(window)),
        sizes=fixed,
        settings={
            "norm_eps": config.get("rms_norm_eps", 1e-6),
            "rope_theta": config.get("rope_theta", 1000000.0),
            "rope_local_theta": config.get("rope_local_theta", 10000.0),
            "query_scalar": config.get("query_pre_attn_scalar", 256),
            "group": group,
            "window": window,
        },
        loops=loops,
        enters=enters,
        layer_kinds=(local, everywhere),
        window=Window(size=window, layers=local),
    )


def _scaled_embedding() -> tuple[Node, ...]:
    made = CODE.forward.assigns("inputs_embeds")
    scale = CODE.direct(
        "scale-embedding",
        "The rows times the root of the width.",
        made,
        CODE.at("TextScaledWordEmbedding.forward").returns(),
    )
    return (
        Operation(
            path="embedding/scale",
            name="Scale by the root of the width",
            inputs=("looked-up",),
            outputs=("embedded",),
            equation=r"<embedded> = \sqrt{<#d_model>}\,<looked-up>",
            reference=lambda looked_up, d_model: looked_up * d_model**0.5,
            description="Bring the rows to the size of the stream.",
            explanation=(
                "As in the original transformer, because the two ends share one matrix: as an unembedding its rows must be "
                "small. In bfloat16 the factor itself is rounded first (33.94 becomes 34 at width 1,152), and whoever does not "
                "round it gets other numbers."
            ),
            evidence=scale,
        ),
        _ends.embedded(scale, made),
    )


def _arguments(config: Config) -> Mapping[str, Any]:
    """What the configuration class takes: each kind of layer has its own theta there."""
    ours = ("rope_theta", "rope_local_theta")
    rest = {name: value for name, value in config.items() if name not in ours}
    thetas = {
        "full_attention": config.get("rope_theta", 1000000.0),
        "sliding_attention": config.get("rope_local_theta", 10000.0),
    }
    return {
        **rest,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": value} for kind, value in thetas.items()},
    }


def _attention_part(group: int, window: int, local: Layers, everywhere: Layers) -> tuple[Node, ...]:
    attend = CODE.attend
    queries, keys, values = (attend.assigns(f"{name}_states", nth=1) for name in ("query", "key", "value"))
    return (
        _attention.component(
            CODE,
            "The only place where positions exchange information. Local layers read what is near, global ones everything; "
            f"both have the same heads. {group} query heads share each head of keys and values.",
        ),
        *_attention.projections(
            CODE,
            group,
            places=(queries, keys, values),
            heads_second=True,
            texts=(
                "Before they are normalised: their size does not matter yet.",
                "Before they are normalised and rotated.",
                "Neither normalised nor rotated.",
            ),
        ),
        *head_norm(CODE, "queries", "q_heads", attend.assigns("query_states", nth=2), offset=True, heads_second=True),
        *head_norm(CODE, "keys", "kv_heads", attend.assigns("key_states", nth=2), offset=True, heads_second=True),
        *_rope.rotations(
            CODE,
            queries="query-norm/normalized",
            keys="key-norm/normalized",
            heads_second=True,
            tables=(
                Use(path="rotary/cosines", named="cosines", layers=everywhere),
                Use(path="rotary/sines", named="sines", layers=everywhere),
                Use(path="rotary-local/cosines", named="cosines", layers=local),
                Use(path="rotary-local/sines", named="sines", layers=local),
            ),
        ),
        *_attention.caches(
            CODE,
            group,
            made=(attend.assigns("key_states", nth=4), attend.assigns("value_states", nth=2)),
            heads_second=(True, True),
            window=window,
            everywhere=False,
        ),
        *_attention.scores(
            CODE,
            masks=(
                Use(path="causal-mask", named="mask", layers=everywhere),
                Use(path="sliding-mask", named="mask", layers=local),
            ),
            masked_as=5,
            factor=r"\frac{1}{\sqrt{<#query_scalar>}}",
            reference=lambda similarities, query_scalar: similarities / query_scalar**0.5,
            why=(
                "The factor is a number of the configuration of its own, which for most sizes is the head width; the 27B model "
                "divides by the root of the model's width over heads instead. Gemma 2's soft cap on these scores is gone: "
                "normalised queries and keys took its place."
            ),
        ),
        *_attention.weights(CODE, where=6),
        *_attention.mixing(CODE),
        *_attention.output(CODE),
    )
