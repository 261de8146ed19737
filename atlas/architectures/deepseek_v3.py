"""DeepSeek-V3: keys and values squeezed into one small latent, and many small experts behind a router with groups.

Declared from `modeling_deepseek_v3.py` of transformers, which also runs it. Row vectors; weights are stored [out, in].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from atlas.architectures import _attention, _ends, _experts, _gated, _rope
from atlas.architectures._code import (
    ATTENTION,
    FEED_FORWARD,
    STREAM,
    Code,
    Config,
    names,
    refuse,
    theta,
    weight_names,
    whole,
)
from atlas.architectures._norms import block_norm, final_norm, rms_norm
from atlas.architectures._numeric import Array, linear, sigmoid
from atlas.graph.anchors import Anchor, at
from atlas.graph.axes import Axis
from atlas.graph.nodes import Alias, Architecture, Cache, Component, Layers, Node, Operation, Parameter, Tensor, Use

ID = "deepseek_v3"
CODE = Code("deepseek_v3", "DeepseekV3")
ROUTER, EXPERTS, SHARED = _experts.ROUTER, _experts.EXPERTS, f"{FEED_FORWARD}/shared-expert"
SELF = "model.layers.{layer}.self_attn"
UPDATE = f"{FEED_FORWARD}/feed-forward-update"
SMALL: Config = {
    "vocab_size": 272,
    "hidden_size": 48,
    "intermediate_size": 80,
    "moe_intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_shared_experts": 2,
    "n_routed_experts": 12,
    "routed_scaling_factor": 2.5,
    "kv_lora_rank": 20,
    "q_lora_rank": 28,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "qk_nope_head_dim": 16,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 3,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_interleave": True,
    "tie_word_embeddings": False,
}
"""A model of a size that any machine runs at once: one dense layer, then routed ones."""

AXES = (
    *_experts.AXES,
    Axis(
        name="q_rank", symbol="r_q", words="query latent", meaning="Features of the latent that queries are made from."
    ),
    Axis(
        name="kv_rank", symbol="r", words="latent", meaning="Features of the latent that keys and values are made from."
    ),
    Axis(
        name="latent_width",
        symbol="r + h_r",
        words="latent and position",
        meaning="The latent, and the key of positions.",
    ),
    Axis(
        name="content_dim",
        symbol="h_c",
        words="content",
        meaning="Features of a head's query and key that know no position.",
    ),
    Axis(
        name="rope_dim", symbol="h_r", words="position", meaning="Features of a head's query and key that are rotated."
    ),
    Axis(
        name="qk_dim",
        symbol="h",
        words="head dim",
        meaning="Features of a head's query and key: content, then position.",
    ),
    Axis(name="value_dim", symbol="h_v", words="value", meaning="Features of a head's value."),
    Axis(name="expanded_dim", symbol="h_c + h_v", words="key and value", meaning="Content key and value of one head."),
    Axis(
        name="expanded_width",
        symbol="H(h_c + h_v)",
        words="keys and values",
        meaning="Content keys and values of all heads.",
    ),
    Axis(name="v_width", symbol="Hh_v", words="v width", meaning="The values of all heads side by side."),
    Axis(name="groups", symbol="N", words="groups", word="group", meaning="Groups that the experts are divided into."),
    Axis(
        name="groups_chosen",
        symbol="N_k",
        words="groups a token",
        meaning="Groups that a token's experts may come from.",
    ),
    Axis(name="d_shared", symbol="F_s", words="shared mlp", meaning="Hidden features of the shared expert."),
)


def sizes(config: Config) -> dict[str, int]:
    """The fixed axes."""
    heads = whole(config, "num_attention_heads")
    content, position, value = (whole(config, name) for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    rank, expert = whole(config, "kv_lora_rank"), whole(config, "moe_intermediate_size")
    return {
        "layers": whole(config, "num_hidden_layers"),
        "d_model": whole(config, "hidden_size"),
        "q_heads": heads,
        "q_rank": whole(config, "q_lora_rank"),
        "kv_rank": rank,
        "latent_width": rank + position,
        "content_dim": content,
        "rope_dim": position,
        "pairs": position // 2,
        "qk_dim": content + position,
        "value_dim": value,
        "expanded_dim": content + value,
        "expanded_width": heads * (content + value),
        "q_width": heads * (content + position),
        "v_width": heads * value,
        "d_mlp": whole(config, "intermediate_size"),
        "d_expert": expert,
        "gate_up": 2 * expert,
        "d_shared": expert * whole(config, "n_shared_experts"),
        "experts": whole(config, "n_routed_experts"),
        "experts_per_token": whole(config, "num_experts_per_tok"),
        "groups": whole(config, "n_group"),
        "groups_chosen": whole(config, "topk_group"),
        "vocab": whole(config, "vocab_size"),
        "one": 1,
    }


def kinds(config: Config) -> tuple[Layers, Layers]:
    """Dense and routed layers: the first few are dense."""
    count, dense = whole(config, "num_hidden_layers"), whole(config, "first_k_dense_replace")
    return (
        Layers(name="dense", numbers=tuple(range(dense))),
        Layers(name="routed", numbers=tuple(range(dense, count))),
    )


def declare(config: Config) -> Architecture:
    """The whole declaration for one configuration."""
    for name, wanted in (("attention_bias", False), ("norm_topk_prob", True), ("rope_interleave", True)):
        refuse("DeepSeek-V3", config, name, wanted)
    fixed = sizes(config)
    dense, routed = kinds(config)
    mixture = _experts.Mixture(CODE, router="TopkRouter", block="MoE", layers=routed)
    experts, chosen = fixed["experts"], fixed["experts_per_token"]
    cached = fixed["kv_rank"] + fixed["rope_dim"]
    loops, enters = _ends.JOINED
    layer = CODE.layer
    update = layer.assigns("hidden_states", nth=5)
    return Architecture(
        id=ID,
        name="DeepSeek-V3",
        kind="Mixture of experts",
        attention="Multi-head latent attention",
        summary=(
            "Blocks read normalised copies of one residual stream and add to it: attention, then a feed-forward part. "
            f"Two ideas make a very large model cheap to run. Attention keeps one latent of {fixed['kv_rank']} numbers a "
            f"position, and {fixed['rope_dim']} more that know where it stands; from those the keys and values of all "
            f"{fixed['q_heads']} heads are made again whenever they are needed. In all but the first few layers each token "
            f"goes through {chosen} of {experts} small experts, chosen by a router that looks at groups first, and through one "
            "that all tokens share. Nearly all parameters are the experts', and any one token reads few of them."
        ),
        reference=CODE.reference(config),
        nodes=(
            *_ends.tokens(CODE),
            *_ends.embedding(CODE),
            *_rope.position_ids(CODE),
            *_rope.rotary(
                CODE,
                head="rope_dim",
                why="Only a small part of each query and key is rotated here; the rest knows no position.",
            ),
            *_ends.mask(CODE, made=CODE.forward.assigns("causal_mask")),
            *_ends.block(
                CODE,
                f"{dense.words.capitalize()}; {routed.words}. Attention is alike in all. The first layers are dense because "
                "it was in them that the load of the experts took longest to balance in its makers' trials.",
                description="Two updates of the residual stream: attention, then a dense network or a mixture of experts.",
            ),
            *block_norm(CODE, "attention-norm", "a", "blocks/block-input", 1, "input_layernorm"),
            _attention.component(
                CODE,
                f"Multi-head latent attention: instead of keys and values the cache holds a latent and one rotated key for all "
                f"heads, {cached} numbers a position and layer where full heads would take "
                f"{fixed['q_heads'] * (fixed['qk_dim'] + fixed['value_dim']):,}. The price is that keys and values are made "
                "again from the latents of all positions at every step; fast implementations avoid even that, by moving the "
                "matrix that expands keys over to the queries.",
                description="Each position collects values, made on the spot from the latents of the positions it attends to.",
            ),
            *_queries(),
            *_latents(),
            *_rotations(),
            *_caches(cached),
            *_expansion(),
            *_attention.scores(
                CODE,
                queries="joined-queries",
                keys="keys",
                factor=r"\frac{1}{\sqrt{<#qk_dim>}}",
                reference=lambda similarities, qk_dim: similarities / qk_dim**0.5,
                why=(
                    "By the whole width of a query, content and position together. Where the context is stretched by YaRN a "
                    "further factor sharpens it; this configuration does not stretch it."
                ),
            ),
            *_attention.weights(CODE),
            *_attention.mixing(CODE, values="values", head="value_dim", width="v_width"),
            *_attention.output(CODE, width="v_width"),
            *_ends.residual(
                CODE, "attention", layer.assigns("hidden_states", nth=3), update=f"{ATTENTION}/attention-update"
            ),
            *block_norm(CODE, "feed-forward-norm", "m", "blocks/mid-residual", 4, "post_attention_layernorm"),
            _gated.component(
                CODE,
                "In dense layers one wide SwiGLU network. In routed ones a router, its experts, and a shared expert that every "
                "token goes through: what all tokens need is learned there once, and not by each expert again.",
                description="One network in dense layers; in routed ones a few of many, and one for all.",
            ),
            *_gated.network(CODE, caller=update, update=(UPDATE, "", update), layers=dense),
            *_router(mixture, chosen),
            *_experts.dispatch(
                mixture,
                "Small and many: their hidden width is less than a third of the stream's. Fine-grained experts can be combined "
                "in far more ways than few large ones of the same cost.",
            ),
            *_experts.gated_experts(mixture),
            *_experts.combine(
                mixture,
                weighed=mixture.run.assigns("current_hidden_states", nth=3),
                combined=mixture.whole.call("self.experts"),
            ),
            *_shared(mixture, routed),
            *_sum(mixture, routed, update),
            *_ends.residual(CODE, "feed-forward", layer.assigns("hidden_states", nth=6), update=UPDATE),
            *final_norm(CODE),
            *_ends.unembedding(CODE, tied=bool(config.get("tie_word_embeddings"))),
        ),
        axes=AXES,
        sizes=fixed,
        settings={
            "norm_eps": config.get("rms_norm_eps", 1e-6),
            "latent_eps": 1e-6,
            "rope_theta": theta(config),
            "routed_scaling_factor": config.get("routed_scaling_factor", 2.5),
        },
        loops=loops,
        enters=enters,
        layer_kinds=(dense, routed),
    )


def _matrix(
    leaf: str, name: str, letter: str, shape: tuple[str, str], module: str, gguf: str, texts: tuple[str, str]
) -> Parameter:
    built = CODE.at("Attention.__init__").assigns(f"self.{module}")
    return Parameter(
        path=f"{ATTENTION}/{leaf}",
        name=name,
        symbol=rf"W_{{\mathrm {letter}}}",
        shape=shape,
        weight=f"{SELF}.{module}.weight",
        description=texts[0],
        explanation=texts[1],
        evidence=CODE.context(leaf, f"{module} is a linear map without bias.", built),
        aliases=weight_names(f"{SELF}.{module}.weight", f"blk.{{layer}}.{gguf}.weight"),
        built=built,
    )


def _latent_norm(which: str, source: str, call: Anchor, width: str, module: str, gguf: str) -> tuple[Node, ...]:
    weight = f"{SELF}.{module}.weight"
    return rms_norm(
        CODE,
        f"{ATTENTION}/{which}-norm",
        f"{which.replace('-', ' ').capitalize()} norm",
        "q" if width == "q_rank" else "c",
        f"{ATTENTION}/{source}",
        call,
        CODE.at("Attention.__init__").assigns(f"self.{module}"),
        weight,
        weight_names(weight, f"blk.{{layer}}.{gguf}.weight"),
        (
            f"Bring the {which.replace('-', ' ')} to unit size before it is expanded.",
            "Two matrices in a row, without anything between, are one matrix of low rank, and such a pair trains badly when the "
            "sizes of the two drift apart; the norm keeps them in step. Its epsilon is the class's default.",
        ),
        shape=("batch", "positions", width),
        width=width,
        eps="latent_eps",
    )


def _queries() -> tuple[Node, ...]:
    whole_call = CODE.attend.assigns("q_states", nth=2)
    down, norm = whole_call.call("self.q_a_proj"), whole_call.call("self.q_a_layernorm")
    made = CODE.attend.assigns("q_states", nth=3)
    content, position = CODE.attend.assigns("q_pass"), CODE.attend.assigns("q_rot", nth=1)
    squeezed = CODE.direct("compress-queries", "The inner of three nested calls.", down)
    expanded = CODE.direct("expand-queries", "The outer of three nested calls, cut into heads.", whole_call, made)
    split = CODE.direct("split-queries", "Content first, position last.", content, position)
    return (
        _matrix(
            "query-down-weight", "Query down weight", "DQ", ("q_rank", "d_model"), "q_a_proj", "attn_q_a",
            ("Squeezes the normalised features into the query latent.", "It saves parameters, and memory in training; none is cached."),
        ),
        Operation(
            path=f"{ATTENTION}/compress-queries",
            name="Compress for queries",
            inputs=(Use(path=_attention.NORM, named="x"), Use(path="query-down-weight", named="weight")),
            outputs=("query-latent",),
            equation=rf"<query-latent> = <{_attention.NORM}>\,<query-down-weight>^{{\top}}",
            reference=linear,
            description="One small vector from which the queries of all heads are made.",
            explanation="Queries of so many heads are far wider than the stream; a full matrix would be attention's largest.",
            evidence=squeezed,
        ),
        Tensor(
            path=f"{ATTENTION}/query-latent",
            name="Query latent",
            symbol=r"c_{\mathrm q}",
            shape=("batch", "positions", "q_rank"),
            hook=down,
            description="What the queries of all heads have in common.",
            explanation="Of use in this pass only.",
            evidence=squeezed,
        ),
        *_latent_norm("query-latent", "query-latent", norm, "q_rank", "q_a_layernorm", "attn_q_a_norm"),
        _matrix(
            "query-up-weight", "Query up weight", "UQ", ("q_width", "q_rank"), "q_b_proj", "attn_q_b",
            ("Makes the queries of all heads from the latent.", "The heads one after another along the first axis."),
        ),
        Operation(
            path=f"{ATTENTION}/expand-queries",
            name="Expand queries",
            inputs=(Use(path="query-latent-norm/normalized", named="x"), Use(path="query-up-weight", named="weight")),
            outputs=("queries",),
            equation=r"<queries> = <query-latent-norm/normalized>\,<query-up-weight>^{\top}",
            reference=lambda x, weight, qk_dim: np.moveaxis(linear(x, weight).reshape(*x.shape[:2], -1, qk_dim), 2, 1),
            description="A query for each head, content and position together.",
            explanation="Cut into heads by a view; head j is the j-th slice of h features.",
            evidence=expanded,
        ),
        Tensor(
            path=f"{ATTENTION}/queries",
            name="Queries",
            symbol="Q",
            shape=("batch", "q_heads", "positions", "qk_dim"),
            hook=made,
            description="What each position looks for, one vector a head.",
            explanation="The first part asks for content, the last for a place.",
            evidence=expanded,
            aliases=names("blocks.{layer}.attn.hook_q", "", "[batch, position, head, feature]"),
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/split-queries",
            name="Split queries",
            inputs=("queries",),
            outputs=("content-queries", "position-queries"),
            equation=r"\left[\,<content-queries>;\ <position-queries>\,\right] = <queries>",
            reference=lambda queries, content_dim: (queries[..., :content_dim], queries[..., content_dim:]),
            description="Part content from position.",
            explanation=(
                "Rotation would come between the two matrices that could otherwise be merged, so it is kept to a part of its own: "
                "that is why there are two parts at all."
            ),
            evidence=split,
        ),
        Tensor(
            path=f"{ATTENTION}/content-queries",
            name="Content queries",
            symbol=r"Q_{\mathrm c}",
            shape=("batch", "q_heads", "positions", "content_dim"),
            hook=content,
            description="The part of each query that asks for content.",
            explanation="Never rotated.",
            evidence=split,
            sharded="q_heads",
        ),
        Tensor(
            path=f"{ATTENTION}/position-queries",
            name="Position queries",
            symbol=r"Q_{\mathrm p}",
            shape=("batch", "q_heads", "positions", "rope_dim"),
            hook=position,
            description="The part of each query that will be rotated.",
            explanation="Each head has its own; the keys have one for all heads.",
            evidence=split,
            sharded="q_heads",
        ),
    )  # fmt: skip


def _latents() -> tuple[Node, ...]:
    made = CODE.attend.assigns("compressed_kv")
    latent, position = CODE.attend.assigns("kv_nope", nth=1), CODE.attend.assigns("k_rot", nth=1)
    compressed = CODE.direct("compress", "One call gives latent and position.", made)
    split = CODE.direct("split-latent", "The latent first, the key of positions last.", latent, position)
    return (
        _matrix(
            "latent-weight", "Latent weight", "DKV", ("latent_width", "d_model"), "kv_a_proj_with_mqa", "attn_kv_a_mqa",
            (
                "Squeezes the normalised features into the latent, and makes the key of positions.",
                "Everything that this position will ever tell later ones in this layer goes through it.",
            ),
        ),
        Operation(
            path=f"{ATTENTION}/compress",
            name="Compress for keys and values",
            inputs=(Use(path=_attention.NORM, named="x"), Use(path="latent-weight", named="weight")),
            outputs=("latent-and-position",),
            equation=rf"<latent-and-position> = <{_attention.NORM}>\,<latent-weight>^{{\top}}",
            reference=linear,
            description="One small vector from which keys and values of all heads will be made.",
            explanation="The heart of latent attention: what is cached is this, not what is made of it.",
            evidence=compressed,
        ),
        Tensor(
            path=f"{ATTENTION}/latent-and-position",
            name="Latent and position",
            symbol=r"[c;k_{\mathrm p}]",
            shape=("batch", "positions", "latent_width"),
            hook=made,
            description="Latent and key of positions, side by side.",
            explanation="Neither normalised nor rotated yet.",
            evidence=compressed,
        ),
        Operation(
            path=f"{ATTENTION}/split-latent",
            name="Split latent and position",
            inputs=(Use(path="latent-and-position", named="both"),),
            outputs=("latent", "position-keys"),
            equation=r"\left[\,<latent>;\ <position-keys>\,\right] = <latent-and-position>",
            reference=lambda both, kv_rank: (both[..., :kv_rank], both[..., kv_rank:]),
            description="Part the two.",
            explanation="Moves numbers and computes nothing.",
            evidence=split,
        ),
        Tensor(
            path=f"{ATTENTION}/latent",
            name="Latent",
            symbol="c",
            shape=("batch", "positions", "kv_rank"),
            hook=latent,
            description="What keys and values of all heads have in common.",
            explanation="Before it is normalised.",
            evidence=split,
        ),
        Tensor(
            path=f"{ATTENTION}/position-keys",
            name="Position keys",
            symbol=r"k_{\mathrm p}",
            shape=("batch", "positions", "rope_dim"),
            hook=position,
            description="One key a position that will be rotated, shared by all heads.",
            explanation="As in multi-query attention: one key for all heads, so the cache has to hold it once.",
            evidence=split,
        ),
        *_latent_norm(
            "latent", "latent", CODE.attend.assigns("kv_nope", nth=2), "kv_rank", "kv_a_layernorm", "attn_kv_a_norm"
        ),
    )  # fmt: skip


def _rotations() -> tuple[Node, ...]:
    turned = at("apply_rotary_pos_emb_interleave")
    nodes: list[Node] = []
    for name, one, letter, source, heads, place, several in (
        ("queries", "query", "Q", "position-queries", "q_heads", turned.assigns("q_embed"), True),
        ("keys", "key", "k", "position-keys", "one", turned.assigns("k_embed"), False),
    ):
        evidence = CODE.direct(f"rotate-{name}", "Even features and odd ones are partners.", place) + CODE.context(
            "apply-rotary", "Neighbours are paired; all first partners are put before all second ones.", turned
        )
        nodes += [
            Operation(
                path=f"{ATTENTION}/rotate-{name}",
                name=f"Rotate {name}",
                inputs=(
                    Use(path=source, named="x"),
                    Use(path="rotary/cosines", named="cosines"),
                    Use(path="rotary/sines", named="sines"),
                ),
                outputs=(f"rotated-{name}",),
                equation=(
                    rf"<rotated-{name}>_{{t,i}} = <{source}>_{{t,2i}}\,<rotary/cosines>_{{t,i}} "
                    rf"- <{source}>_{{t,2i+1}}\,<rotary/sines>_{{t,i}},\qquad "
                    rf"<rotated-{name}>_{{t,i+h_r/2}} = <{source}>_{{t,2i+1}}\,<rotary/cosines>_{{t,i}} "
                    rf"+ <{source}>_{{t,2i}}\,<rotary/sines>_{{t,i}}"
                ),
                reference=_interleaved(several),
                description=f"Turn each pair of features of the position part of each {one}.",
                explanation=(
                    "Pairs are neighbours in the weights, (2i, 2i + 1), as in Meta's code; the result is put in another order, "
                    "first partners before second ones. Queries and keys are reordered alike, so their products do not change."
                ),
                evidence=evidence,
            ),
            Tensor(
                path=f"{ATTENTION}/rotated-{name}",
                name=f"Rotated {name}",
                symbol=rf"{letter}_{{\mathrm r}}",
                shape=("batch", heads, "positions", "rope_dim"),
                hook=place,
                description=f"The position part of each {one}, with its position in it.",
                explanation="Their product depends on the distance between the two, and on what they say about places.",
                evidence=evidence,
            ),
        ]
    return tuple(nodes)


def _interleaved(several: bool) -> Callable[..., Any]:
    def turned(x: Array, cosines: Array, sines: Array) -> Array:
        placed = x if several else x[:, None]
        half = placed.shape[-1] // 2
        first, second, cos, sin = (
            placed[..., 0::2],
            placed[..., 1::2],
            cosines[:, None, :, :half],
            sines[:, None, :, :half],
        )
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    return turned


def _caches(cached: int) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for name, title, symbol, width, source, place, one in (
        ("latent", "Latent cache", r"c_{\mathrm c}", "kv_rank", "latent-norm/normalized", CODE.attend.assigns("kv_nope", nth=4), "latents"),
        ("position", "Position cache", r"k_{\mathrm c}", "rope_dim", "rotated-keys", CODE.attend.assigns("k_rot", nth=5), "rotated keys"),
    ):  # fmt: skip
        evidence = CODE.direct(f"write-{name}", "The cache is written, and read, while it is still compressed.", place)
        nodes += [
            Operation(
                path=f"{ATTENTION}/write-{name}",
                name=f"Write {one}",
                inputs=(Use(path=source, named="written"),),
                outputs=(f"{name}-cache",),
                equation=rf"<{name}-cache> = \left[\,\text{{before}};\ <{source}>\,\right]",
                reference=_appended(name == "position"),
                description=f"Put this pass's {one} behind those of the passes before.",
                explanation=f"{cached} numbers a position and layer, for all heads together.",
                evidence=evidence,
            ),
            Cache(
                path=f"{ATTENTION}/{name}-cache",
                name=title,
                symbol=symbol,
                shape=("batch", "one", "keys", width),
                hook=place,
                description=f"The {one} of every position so far, this pass's included.",
                explanation=(
                    "Stored as one head, so that any cache of keys and values can hold it: the latents take the place of keys, "
                    "the rotated keys that of values."
                ),
                evidence=evidence,
                aliases=(
                    Alias(
                        name=f"cache.layers[{{layer}}].{'keys' if name == 'latent' else 'values'}", of="Hugging Face"
                    ),
                ),
            ),
        ]
    return tuple(nodes)


def _appended(heads_second: bool) -> Callable[..., Any]:
    if heads_second:
        return lambda before, written: np.concatenate([before, written], axis=2)
    return lambda before, written: np.concatenate([before, written[:, None]], axis=2)


def _expansion() -> tuple[Node, ...]:
    expand = CODE.at("Attention.expand_kv")
    made = expand.assigns("kv_nope")
    content, values = expand.assigns("k_nope"), expand.assigns("value_states")
    keys, joined = CODE.attend.assigns("key_states"), CODE.attend.assigns("query_states")
    expanded = CODE.direct("expand", "Latents to content keys and values of all heads.", made)
    split = CODE.direct("split-expanded", "Content keys first, values last.", content, values)
    both = CODE.direct("join-queries", "Content first, position last.", joined)
    filled = CODE.context(
        "fill-keys",
        "The two parts are copied into one new tensor.",
        expand.assigns("key_states").through(expand.returns()),
    )
    together = CODE.direct("join-keys", "The expanded keys are returned.", keys) + filled
    return (
        _matrix(
            "key-value-weight", "Key and value weight", "UKV", ("expanded_width", "kv_rank"), "kv_b_proj", "attn_kv_b",
            (
                "Makes the content keys and the values of all heads from a latent.",
                "Head after head, each its key first and then its value. Fast implementations split it in two and merge one "
                "half with the queries, the other with the output projection.",
            ),
        ),
        Operation(
            path=f"{ATTENTION}/expand",
            name="Expand keys and values",
            inputs=(Use(path="latent-cache", named="latents"), Use(path="key-value-weight", named="weight")),
            outputs=("expanded",),
            equation=r"<expanded> = <latent-cache>\,<key-value-weight>^{\top}",
            reference=lambda latents, weight, expanded_dim: np.moveaxis(
                linear(latents[:, 0], weight).reshape(latents.shape[0], latents.shape[2], -1, expanded_dim), 2, 1
            ),
            description="Keys and values of all heads, for every position in the cache.",
            explanation=(
                "Done again in every step, for all positions: more arithmetic than a cache of keys and values would ask for, and "
                "far less to keep and to read."
            ),
            evidence=expanded,
        ),
        Tensor(
            path=f"{ATTENTION}/expanded",
            name="Expanded keys and values",
            symbol=r"[K_{\mathrm c};V]",
            shape=("batch", "q_heads", "keys", "expanded_dim"),
            hook=made,
            description="Content key and value of each head and position.",
            explanation="Gone after the pass: only the latents stay.",
            evidence=expanded,
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/split-expanded",
            name="Split keys and values",
            inputs=("expanded",),
            outputs=("content-keys", "values"),
            equation=r"\left[\,<content-keys>;\ <values>\,\right] = <expanded>",
            reference=lambda expanded, content_dim: (expanded[..., :content_dim], expanded[..., content_dim:]),
            description="Part the two.",
            explanation="Moves numbers and computes nothing.",
            evidence=split,
        ),
        Tensor(
            path=f"{ATTENTION}/content-keys",
            name="Content keys",
            symbol=r"K_{\mathrm c}",
            shape=("batch", "q_heads", "keys", "content_dim"),
            hook=content,
            description="The part of each key that knows no position.",
            explanation="One for each head, all made from one latent.",
            evidence=split,
            sharded="q_heads",
        ),
        Tensor(
            path=f"{ATTENTION}/values",
            name="Values",
            symbol="V",
            shape=("batch", "q_heads", "keys", "value_dim"),
            hook=values,
            description="What each position hands over when it is attended to, for all positions in the cache.",
            explanation="Narrower than queries and keys: a value has no part for positions.",
            evidence=split,
            aliases=names("blocks.{layer}.attn.hook_v", "", "[batch, position, head, feature]"),
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/join-keys",
            name="Join content and position in keys",
            inputs=("content-keys", Use(path="position-cache", named="rotated")),
            outputs=("keys",),
            equation=r"<keys>_{j} = \left[\,<content-keys>_j;\ <position-cache>\,\right]",
            reference=lambda content_keys, rotated: np.concatenate(
                [content_keys, np.broadcast_to(rotated, (*content_keys.shape[:-1], rotated.shape[-1]))], axis=-1
            ),
            description="Give every head's key the one key of positions.",
            explanation="All heads see the same position part; what they make of it is up to their queries.",
            evidence=together,
        ),
        Tensor(
            path=f"{ATTENTION}/keys",
            name="Keys",
            symbol="K",
            shape=("batch", "q_heads", "keys", "qk_dim"),
            hook=keys,
            description="What each position offers to be found by, one vector a head, for all positions in the cache.",
            explanation="Content first, position last, as in the queries.",
            evidence=together,
            aliases=names("blocks.{layer}.attn.hook_k", "", "[batch, position, head, feature]"),
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/join-queries",
            name="Join content and position in queries",
            inputs=("content-queries", "rotated-queries"),
            outputs=("joined-queries",),
            equation=r"<joined-queries> = \left[\,<content-queries>;\ <rotated-queries>\,\right]",
            reference=lambda content_queries, rotated_queries: np.concatenate([content_queries, rotated_queries], axis=-1),
            description="Put the two parts together again.",
            explanation="One dot product then compares both: the sum of a match of contents and a match of places.",
            evidence=both,
        ),
        Tensor(
            path=f"{ATTENTION}/joined-queries",
            name="Joined queries",
            symbol=r"Q_{\mathrm r}",
            shape=("batch", "q_heads", "positions", "qk_dim"),
            hook=joined,
            description="Queries with their position in them.",
            explanation="Only the last part was rotated.",
            evidence=both,
            sharded="q_heads",
        ),
    )  # fmt: skip


def _router(mixture: _experts.Mixture, chosen: int) -> tuple[Node, ...]:
    route = mixture.route
    bias = CODE.at("TopkRouter.__init__").assigns("self.e_score_correction_bias")
    scores, biased = route.assigns("scores"), route.assigns("scores_for_choice", nth=1)
    grouped, best_groups = route.assigns("group_scores"), route.assigns("group_idx").receiver[1]
    eligible, best = route.assigns("scores_for_choice", nth=2), route.assigns("topk_indices").receiver[1]
    picked, shared_out, scaled = (route.assigns("topk_weights", nth=number) for number in (1, 2, 3))
    name = "model.layers.{layer}.mlp.gate.e_score_correction_bias"

    def step(
        leaf: str, title: str, inputs: tuple[str | Use, ...], output: str, equation: str, reference: Callable[..., Any],
        description: str, explanation: str, hook: Anchor, made: tuple[str, str, tuple[str, ...], str, str],
        claim: str, unordered: str | None = None,
    ) -> tuple[Node, Node]:  # fmt: skip
        evidence = CODE.direct(leaf, claim, hook)
        label, symbol, shape, says, means = made
        return (
            Operation(
                path=f"{ROUTER}/{leaf}",
                name=title,
                inputs=inputs,
                outputs=(output,),
                equation=equation,
                reference=reference,
                description=description,
                explanation=explanation,
                evidence=evidence,
            ),
            Tensor(
                path=f"{ROUTER}/{output}",
                name=label,
                symbol=symbol,
                shape=shape,
                hook=hook,
                unordered=unordered,
                description=says,
                explanation=means,
                evidence=evidence,
            ),
        )

    return (
        *_experts.router(
            mixture,
            "Computed in float32 whatever the model's dtype. Scores are sigmoids, one expert no rival of another; balance is "
            "kept by a bias that is nudged during training, up for experts that get too little; little is left for an extra loss to do.",
        ),
        *step(
            "sigmoid", "Sigmoid of the scores", ("router-logits",), "router-scores",
            r"<router-scores> = \frac{1}{1 + e^{-<router-logits>}}", lambda router_logits: sigmoid(router_logits),
            "Bring each score between 0 and 1, on its own.",
            "Unlike softmax it lets a token suit many experts, or none.",
            scores, ("Router scores", "s", ("tokens", "experts"), "How well each expert suits each token, between 0 and 1.",
                     "The weights by which outputs are added come from these."),
            "The sigmoid of the logits.",
        ),
        Parameter(
            path=f"{ROUTER}/expert-bias",
            name="Expert bias",
            symbol="b",
            shape=("experts",),
            weight=name,
            description="Added to the scores when experts are chosen, and only then.",
            explanation=(
                "No gradient reaches it: after each step of training it goes up a little for experts that had too few tokens "
                "and down for those that had too many. A common mistake is to weigh the outputs by the biased scores."
            ),
            evidence=CODE.context("expert-bias", "A buffer, not a parameter that is trained.", bias),
            aliases=weight_names(name, "blk.{layer}.exp_probs_b.bias"),
            built=bias,
        ),
        *step(
            "add-bias", "Add the bias", (Use(path="router-scores", named="scores"), "expert-bias"), "biased-scores",
            r"<biased-scores> = <router-scores> + <expert-bias>", lambda scores, expert_bias: scores + expert_bias,
            "Favour experts that have been getting too little.", "Used for the choice alone.",
            biased, ("Biased scores", r"\tilde s", ("tokens", "experts"), "The scores by which experts are chosen.",
                     "They may leave the range from 0 to 1."),
            "The correction bias is added.",
        ),
        *step(
            "score-groups", "Score the groups", ("biased-scores",), "group-scores",
            r"<group-scores>_{t,n} = \sum \operatorname{top}_2 \left\{ <biased-scores>_{t,e} : e \in n \right\}",
            _group_scores, "A group is worth its two best experts.",
            "Experts of one group are meant for one machine: looking at groups first keeps a token's experts on few machines.",
            grouped, ("Group scores", "G", ("tokens", "groups"), "How well each group suits each token.",
                      "Sums of two scores."),
            "The two best scores of each group are added.",
        ),
        *step(
            "choose-groups", "Choose groups", ("group-scores",), "chosen-groups",
            r"<chosen-groups> = \operatorname{arg\,top}_{<#groups_chosen>} <group-scores>", _top_groups,
            "Keep the best groups of each token.", "In any order: only which they are is used.",
            best_groups, ("Chosen groups", r"\mathbf n", ("tokens", "groups_chosen"), "Which groups each token may use.",
                          "The code asks for them unsorted."),
            "The indices of the best groups.", "groups_chosen",
        ),
        *step(
            "exclude-groups", "Exclude the other groups", ("biased-scores", "chosen-groups"), "eligible-scores",
            r"<eligible-scores>_{t,e} = \begin{cases} <biased-scores>_{t,e} & \text{group of } e \in <chosen-groups>_t \\ "
            r"-\infty & \text{else} \end{cases}", _excluded,
            "Rule out every expert outside the chosen groups.", "A good expert in a poor group is lost to the token.",
            eligible, ("Eligible scores", r"\tilde s'", ("tokens", "experts"), "The scores of experts that may be chosen.",
                       "Minus infinity for all others."),
            "Scores outside the chosen groups become minus infinity.",
        ),
        *step(
            "choose", "Choose the best", ("eligible-scores",), "chosen-experts",
            r"<chosen-experts> = \operatorname{arg\,top}_{<#experts_per_token>} <eligible-scores>", _top_experts,
            f"Keep the {chosen} best of each token.",
            "The discontinuity of the model: the least change of a score may swap one expert for another.",
            best, ("Chosen experts", r"\mathbf e", ("tokens", "experts_per_token"), "Which experts each token goes to.",
                   "Numbers of experts, in no particular order: the code asks for them unsorted."),
            "The indices of the best.", "experts_per_token",
        ),
        *step(
            "pick-scores", "Pick the scores", (Use(path="router-scores", named="scores"), "chosen-experts"), "picked-scores",
            r"<picked-scores>_{t,c} = <router-scores>_{t,\,e_{t,c}}",
            lambda scores, chosen_experts: np.take_along_axis(scores, chosen_experts.astype(int), axis=1),
            "The plain scores of the chosen, without the bias.", "The bias decides who is asked, not how much it counts.",
            picked, ("Picked scores", r"\hat s", ("tokens", "experts_per_token"), "The scores of the chosen experts.",
                     "Between 0 and 1."),
            "Gathered from the scores before the bias.",
        ),
        *step(
            "normalize", "Normalize", (Use(path="picked-scores", named="scores"),), "normalized-scores",
            r"<normalized-scores>_{t,c} = \frac{<picked-scores>_{t,c}}{\sum_d <picked-scores>_{t,d} + 10^{-20}}",
            lambda scores: scores / (scores.sum(axis=-1, keepdims=True) + 1e-20),
            "Make the scores of the chosen sum to one.", "In place; the tiny constant guards against a sum of zero.",
            shared_out, ("Normalized scores", r"\bar s", ("tokens", "experts_per_token"), "Shares of the chosen experts.",
                         "Each row sums to one."),
            "Divided by their sum.",
        ),
        *step(
            "scale-weights", "Scale the weights", (Use(path="normalized-scores", named="scores"),), "routing-weights",
            r"<routing-weights> = <#routed_scaling_factor>\,<normalized-scores>",
            lambda scores, routed_scaling_factor: scores * routed_scaling_factor,
            "Make the routed part as large as it should be beside the shared one.",
            "The shared expert is added with weight one; without this factor all the chosen together would weigh no more than it.",
            scaled, ("Routing weights", "w", ("tokens", "experts_per_token"), "How much each chosen expert counts.",
                     "Each row sums to the factor."),
            "Times the scaling factor.",
        ),
    )  # fmt: skip


def _group_scores(biased_scores: Array, groups: int) -> Array:
    grouped = np.sort(biased_scores.reshape(biased_scores.shape[0], groups, -1), axis=-1)
    result: Array = grouped[..., -2:].sum(axis=-1)
    return result


def _top_groups(group_scores: Array, groups_chosen: int) -> Array:
    return np.argsort(-group_scores, axis=-1, kind="stable")[:, :groups_chosen]


def _top_experts(eligible_scores: Array, experts_per_token: int) -> Array:
    return np.argsort(-eligible_scores, axis=-1, kind="stable")[:, :experts_per_token]


def _excluded(biased_scores: Array, chosen_groups: Array, groups: int) -> Array:
    allowed = np.zeros((biased_scores.shape[0], groups), bool)
    np.put_along_axis(allowed, chosen_groups.astype(int), True, axis=1)
    return np.where(np.repeat(allowed, biased_scores.shape[1] // groups, axis=1), biased_scores, -np.inf)


def _shared(mixture: _experts.Mixture, routed: Layers) -> tuple[Node, ...]:
    call = mixture.whole.call("self.shared_experts")
    return (
        Component(
            path=SHARED,
            name="Shared expert",
            description="A network that every token goes through, besides those that are chosen for it.",
            explanation=(
                "In form and here also in width one of the experts, but always on. It takes over what all tokens need, so that the routed "
                "experts are free to differ."
            ),
            evidence=CODE.context("shared-expert", "Called on the same input as the router.", call),
            module="model.layers.{layer}.mlp.shared_experts",
            layers=routed,
        ),
        *_gated.network(
            CODE,
            path=SHARED,
            caller=call,
            module="mlp.shared_experts",
            width="d_shared",
            update=("shared-update", r"\Delta_s", call),
            gguf="_shexp",
        ),
    )


def _sum(mixture: _experts.Mixture, routed: Layers, update: Anchor) -> tuple[Node, ...]:
    shaped, total = mixture.whole.assigns("hidden_states", nth=2), mixture.whole.assigns("hidden_states", nth=3)
    restored = CODE.direct("restore-shape", "The tokens as sequences again.", shaped)
    added = CODE.direct("add-shared", "The shared expert's output is added.", total)
    called = CODE.direct("mlp-update", "What the block's second branch gives, dense or routed.", update)
    return (
        Operation(
            path=f"{FEED_FORWARD}/restore-shape",
            name="Restore the sequences",
            inputs=(Use(path="experts/combined", named="rows"), Use(path=_experts.NORM, lends=True)),
            outputs=("routed-update",),
            equation=r"<routed-update>_{b,t} = <experts/combined>_{bT+t}",
            reference=lambda rows, positions: rows.reshape(-1, positions, rows.shape[-1]),
            description="Lay the tokens out as sequences again.",
            explanation="Moves nothing and computes nothing.",
            evidence=restored,
            layers=routed,
        ),
        Tensor(
            path=f"{FEED_FORWARD}/routed-update",
            name="Routed update",
            symbol=r"\Delta_r",
            shape=STREAM,
            hook=shaped,
            description="What the chosen experts together give for each position.",
            explanation="Weighed already.",
            evidence=restored,
            layers=routed,
        ),
        Operation(
            path=f"{FEED_FORWARD}/add-shared",
            name="Add the shared expert",
            inputs=("routed-update", Use(path="shared-expert/shared-update", named="shared")),
            outputs=("feed-forward-update",),
            equation=r"<feed-forward-update> = <routed-update> + <shared-expert/shared-update>",
            reference=lambda routed_update, shared: routed_update + shared,
            description="Add what all tokens share.",
            explanation="With weight one, whatever the router says.",
            place=total,
            evidence=added,
            layers=routed,
        ),
        Tensor(
            path=UPDATE,
            name="Feed-forward update",
            symbol=r"\Delta_{\mathrm{mlp}}",
            shape=STREAM,
            hook=update,
            description="What the second branch adds to the residual stream.",
            explanation="In dense layers from one network, in routed ones from the chosen experts and the shared one.",
            evidence=called,
            aliases=names("blocks.{layer}.hook_mlp_out", "mlp (output)"),
        ),
    )
