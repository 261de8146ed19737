"""gpt-oss: attention sinks, every other layer local, experts with a clamped SwiGLU, a context stretched by YaRN.

Declared from `modeling_gpt_oss.py` of transformers, which also runs it. Row vectors; weights are stored [out, in], but
those of the experts [in, out].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from atlas.architectures import _attention, _ends, _experts, _gated, _rope
from atlas.architectures._code import (
    ATTENTION,
    FEED_FORWARD,
    SCORES,
    Code,
    Config,
    family_sizes,
    names,
    refuse,
    shared,
    theta,
    weight_names,
    whole,
    window_axis,
    windowed_keys,
)
from atlas.architectures._norms import block_norm, final_norm
from atlas.architectures._numeric import Array, sigmoid, softmax
from atlas.graph.anchors import at
from atlas.graph.nodes import Architecture, Layers, Node, Operation, Parameter, Tensor, Use, Window

ID = "gpt_oss"
CODE = Code("gpt_oss", "GptOss")
MIXTURE = _experts.Mixture(CODE, router="TopKRouter", block="MLP", gate="mlp.router", sum="next_states")
ROUTER, EXPERTS = _experts.ROUTER, _experts.EXPERTS
YARN = ("factor", "beta_fast", "beta_slow", "truncate", "original_max_position_embeddings")
SMALL: Config = {
    "vocab_size": 272,
    "hidden_size": 40,
    "intermediate_size": 36,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 150000.0,
    "sliding_window": 8,
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "swiglu_alpha": 1.702,
    "swiglu_limit": 1.5,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
"""A model of a size that any machine runs at once: its window and its clamp low enough to be met."""


def sizes(config: Config) -> dict[str, int]:
    """The fixed axes; the hidden width of the configuration is that of one expert."""
    fixed = family_sizes(config)
    width = fixed.pop("d_mlp")
    return {
        **fixed,
        "experts": whole(config, "num_local_experts"),
        "experts_per_token": whole(config, "num_experts_per_tok"),
        "d_expert": width,
        "gate_up": 2 * width,
    }


def declare(config: Config) -> Architecture:
    """The whole declaration for one configuration."""
    refuse("gpt-oss", config, "attention_bias", True)
    refuse("gpt-oss", config, "truncate", False)
    fixed = sizes(config)
    group, window = fixed["q_heads"] // fixed["kv_heads"], whole(config, "sliding_window", 128)
    factor, old = float(config.get("factor") or 32.0), float(config.get("original_max_position_embeddings") or 4096)
    local = Layers(name="local", numbers=tuple(range(0, fixed["layers"], 2)))
    everywhere = Layers(name="global", numbers=tuple(range(1, fixed["layers"], 2)))
    experts, chosen = fixed["experts"], fixed["experts_per_token"]
    loops, enters = _ends.JOINED
    layer = CODE.layer
    return Architecture(
        id=ID,
        name="gpt-oss",
        kind="Mixture of experts",
        attention="Grouped-query attention with sinks, local and global",
        summary=(
            "Blocks read normalised copies of one residual stream and add to it: attention, then a mixture of experts. Every "
            f"other layer sees {window:,} positions and no more, which halves the cache of a long text; the layers between see "
            "everything. Each head has a sink, a learned score that takes part in softmax and has no value, so a head that finds "
            f"nothing can attend to nothing. In every layer a router picks {chosen} of {experts} experts, whose gates are clamped "
            "and whose biases are their own: nearly all parameters are theirs, and few are read for any one token. Rotary "
            f"frequencies are stretched by YaRN from {int(old):,} positions to {int(old * factor):,}."
        ),
        reference=CODE.reference(_arguments(config)),
        nodes=(
            *_ends.tokens(CODE),
            *_ends.embedding(CODE),
            *_rope.position_ids(CODE),
            *_rope.rotary(
                CODE,
                law=_yarn_law(),
                folded=True,
                amplitude="rope_amplitude",
                why="All layers share one table, local and global alike.",
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
                "Layers take turns: even ones are local, odd ones global. They differ in the mask that they are handed and in "
                "what their caches keep; form and parameters are the same.",
                description="Two updates of the residual stream: attention, then a mixture of experts.",
            ),
            *block_norm(CODE, "attention-norm", "a", "blocks/block-input", 1, "input_layernorm", late_cast=True),
            *_attention_part(group, window, local, everywhere),
            *_ends.residual(
                CODE, "attention", layer.assigns("hidden_states", nth=3), update=f"{ATTENTION}/attention-update"
            ),
            *block_norm(
                CODE,
                "feed-forward-norm",
                "m",
                "blocks/mid-residual",
                4,
                "post_attention_layernorm",
                late_cast=True,
                gguf="post_attention_norm",
            ),
            _gated.component(
                CODE,
                f"Of {experts} small networks each token goes through {chosen}. Nearly all parameters of the model are here: "
                "published in four bits each, they let the whole of it fit on one accelerator.",
                description="A router and its experts, applied to each position alone.",
            ),
            *_router(chosen),
            *_experts.dispatch(
                MIXTURE,
                "As wide as the stream and no wider: many small experts, of which several are added up, rather than few large "
                "ones. Each has biases of its own.",
            ),
            *_clamped_experts(),
            *_experts.combine(
                MIXTURE,
                weighed=MIXTURE.run.assigns("weighted_output"),
                combined=MIXTURE.whole.assigns("hidden_states", nth=2),
                shaped=MIXTURE.whole.assigns("hidden_states", nth=3),
            ),
            *_ends.residual(
                CODE,
                "feed-forward",
                layer.assigns("hidden_states", nth=6),
                update=f"{FEED_FORWARD}/feed-forward-update",
            ),
            *final_norm(CODE, late_cast=True),
            *_ends.unembedding(CODE, tied=bool(config.get("tie_word_embeddings"))),
        ),
        axes=(*_experts.AXES, windowed_keys(window, everywhere=False), window_axis(window)),
        sizes=fixed,
        settings={
            "norm_eps": config.get("rms_norm_eps", 1e-5),
            "rope_theta": theta(config),
            "rope_factor": factor,
            "rope_amplitude": 0.1 * math.log(factor) + 1.0,
            "old_context": old,
            "beta_fast": config.get("beta_fast", 32.0),
            "beta_slow": config.get("beta_slow", 1.0),
            "swiglu_alpha": config.get("swiglu_alpha", 1.702),
            "swiglu_limit": config.get("swiglu_limit", 7.0),
            "group": group,
            "window": window,
        },
        loops=loops,
        enters=enters,
        layer_kinds=(local, everywhere),
        window=Window(size=window, layers=local),
    )


def _arguments(config: Config) -> Mapping[str, Any]:
    """What the configuration class takes: YaRN's numbers in a dictionary of their own."""
    rest = {name: value for name, value in config.items() if name not in (*YARN, "rope_theta", "rope_parameters")}
    yarn = {name: config[name] for name in YARN if name in config}
    return {**rest, "rope_parameters": {"rope_type": "yarn", "rope_theta": theta(config), **yarn}}


def _yarn_law() -> _rope.Law:
    return _rope.Law(
        equation=(
            r"<inverse-frequencies>_i = \left(1 - s_i\right)\theta^{-2i/h} + s_i\,\frac{\theta^{-2i/h}}{<#rope_factor>},\qquad "
            r"s_i = \operatorname{clip}\!\left(\frac{i - d_{<#beta_fast>}}{d_{<#beta_slow>} - d_{<#beta_fast>}},\,0,\,1\right),\quad "
            r"d_\beta = \frac{h \ln\!\left(<#old_context> / 2\pi\beta\right)}{2 \ln <#rope_theta>}"
        ),
        reference=_yarn,
        explanation=(
            "YaRN (Peng et al., 2023). A pair that turns more than 32 times within the context first trained on keeps its "
            "speed: it has seen every angle. One that turns less than once is slowed down by the whole factor, so that the longer context "
            "shows it no new angles. Between the two, pairs are blended."
        ),
        evidence=shared(
            "yarn",
            "Frequencies by YaRN, and the factor of cosines and sines.",
            "modeling_rope_utils.py",
            at("_compute_yarn_parameters"),
        ),
    )


def _yarn(
    rope_theta: float, pairs: int, rope_factor: float, beta_fast: float, beta_slow: float, old_context: float
) -> Array:
    width = 2 * pairs
    low, high = (
        width * math.log(old_context / (beta * 2 * math.pi)) / (2 * math.log(rope_theta))
        for beta in (beta_fast, beta_slow)
    )
    low, high = max(low, 0.0), min(high, width - 1.0)
    plain = rope_theta ** (-2 * np.arange(pairs) / width)
    slowed = np.clip((np.arange(pairs) - low) / (high - low), 0.0, 1.0)
    result: Array = plain * (1.0 - slowed) + plain / rope_factor * slowed
    return result


def _attention_part(group: int, window: int, local: Layers, everywhere: Layers) -> tuple[Node, ...]:
    eager = _attention.EAGER
    sinks = CODE.at("Attention.__init__").assigns("self.sinks")
    dropped = eager.assigns("scores")
    evidence = CODE.direct(
        "attn-softmax", "Softmax over keys and sink; the sink's share is dropped.", eager.assigns("probs"), dropped
    ) + CODE.context(
        "attn-sinks",
        "The sinks are one more column of scores.",
        eager.assigns("sinks").through(eager.assigns("combined_logits", nth=2)),
    )
    turned = at("_apply_rotary_emb")
    return (
        _attention.component(
            CODE,
            "The only place where positions exchange information. "
            f"{group} query heads share each head of keys and values. Heads together are wider than the stream. A head may "
            "also attend to nothing: that is what its sink is for.",
        ),
        *_attention.projections(CODE, group, bias=True, sinks=True),
        *_rope.rotations(CODE, folded=True, definition=turned, made=(
            at("apply_rotary_pos_emb").assigns("q_embed"), at("apply_rotary_pos_emb").assigns("k_embed")
        )),
        *_attention.caches(CODE, group, window=window, everywhere=False),
        *_attention.scores(
            CODE,
            masks=(
                Use(path="causal-mask", named="mask", layers=everywhere),
                Use(path="sliding-mask", named="mask", layers=local),
            ),
        ),
        Parameter(
            path=f"{ATTENTION}/sinks",
            name="Sinks",
            symbol=r"\sigma",
            shape=("q_heads",),
            weight="model.layers.{layer}.self_attn.sinks",
            description="One learned score a head, for attending to nothing.",
            explanation=(
                "Models without it learn to park attention on the first token, whose value they make small; gpt-oss gives that "
                "habit a place of its own, so the first token is free to mean something."
            ),
            evidence=CODE.context("sinks", "One number a query head.", sinks),
            aliases=weight_names("model.layers.{layer}.self_attn.sinks", "blk.{layer}.attn_sinks.weight"),
            built=sinks,
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/softmax",
            name="Softmax over keys and sink",
            inputs=(Use(path="masked-similarities", named="similarities"), "sinks"),
            outputs=("attention-weights",),
            equation=(
                r"<attention-weights>_{j,t,u} = \frac{e^{\,<masked-similarities>_{j,t,u}}}"
                r"{e^{\,<sinks>_j} + \sum_{v} e^{\,<masked-similarities>_{j,t,v}}}"
            ),
            reference=_softmax_with_sinks,
            description="Turn each query's similarities into weights; what the sink takes is lost.",
            explanation=(
                "The sink is put beside the keys as one more score, and its share is thrown away. The largest score is "
                "subtracted first, which changes nothing but keeps exponentials finite. In the model's own dtype."
            ),
            evidence=evidence,
        ),
        Tensor(
            path=f"{ATTENTION}/attention-weights",
            name="Attention weights",
            symbol="A",
            shape=SCORES,
            hook=dropped,
            description="For each head and query, how its attention is divided over the keys.",
            explanation=(
                "A row sums to less than one: what is missing went to the sink. A head whose rows are near zero says nothing "
                "here, which in other models could only be said by attending to a token that means nothing."
            ),
            evidence=evidence,
            aliases=names("blocks.{layer}.attn.hook_pattern", "attentions[{layer}]"),
            sharded="q_heads",
        ),
        *_attention.mixing(CODE),
        *_attention.output(CODE, bias=True),
    )  # fmt: skip


def _softmax_with_sinks(similarities: Array, sinks: Array) -> Array:
    column = np.broadcast_to(sinks[None, :, None, None], (*similarities.shape[:-1], 1))
    return softmax(np.concatenate([similarities, column], axis=-1))[..., :-1]


def _router(chosen: int) -> tuple[Node, ...]:
    route = MIXTURE.route
    top, indices, scores = (
        route.assigns("router_top_value"),
        route.assigns("router_indices"),
        route.assigns("router_scores"),
    )
    best = CODE.direct("router-top", f"The {chosen} largest.", top)
    weights = CODE.direct("router-softmax", "Softmax over the chosen alone.", scores)
    return (
        *_experts.router(
            MIXTURE,
            "One row an expert, with a bias. The choice comes before the softmax here, so only the chosen are compared with "
            "each other.",
            bias=True,
        ),
        Operation(
            path=f"{ROUTER}/choose",
            name="Choose the best",
            inputs=("router-logits",),
            outputs=("top-logits", "chosen-experts"),
            equation=r"\left(<top-logits>, <chosen-experts>\right) = \operatorname{top}_{<#experts_per_token>} <router-logits>",
            reference=_top,
            description=f"Keep the {chosen} largest scores of each token.",
            explanation="The discontinuity of the model: the least change of a score may swap one expert for another.",
            evidence=best,
        ),
        Tensor(
            path=f"{ROUTER}/top-logits",
            name="Top logits",
            symbol=r"\hat r",
            shape=("tokens", "experts_per_token"),
            hook=top,
            description="The scores of the experts chosen, largest first.",
            explanation="Those of the others play no part from here on.",
            evidence=best,
        ),
        Tensor(
            path=f"{ROUTER}/chosen-experts",
            name="Chosen experts",
            symbol=r"\mathbf e",
            shape=("tokens", "experts_per_token"),
            hook=indices,
            description="Which experts each token goes to, the best first.",
            explanation="Numbers of experts, not amounts.",
            evidence=CODE.direct("chosen-experts", "The indices of the largest.", indices),
            aliases=names("", "router_indices"),
        ),
        Operation(
            path=f"{ROUTER}/softmax",
            name="Softmax over the chosen",
            inputs=(Use(path="top-logits", named="x"),),
            outputs=("routing-weights",),
            equation=r"<routing-weights>_{t,c} = \frac{e^{\,<top-logits>_{t,c}}}{\sum_d e^{\,<top-logits>_{t,d}}}",
            reference=softmax,
            description="How much each of the chosen counts.",
            explanation="The same as softmax over all experts with the chosen scaled up to one, as Mixtral does it.",
            evidence=weights,
        ),
        Tensor(
            path=f"{ROUTER}/routing-weights",
            name="Routing weights",
            symbol="w",
            shape=("tokens", "experts_per_token"),
            hook=scores,
            description="How much each chosen expert counts.",
            explanation="Each row sums to one.",
            evidence=weights,
            aliases=names("", "router_scores"),
        ),
    )


def _top(router_logits: Array, experts_per_token: int) -> tuple[Array, Array]:
    order = np.argsort(-router_logits, axis=-1, kind="stable")[:, :experts_per_token]
    return np.take_along_axis(router_logits, order, axis=-1), order


def _stack(
    leaf: str, name: str, symbol: str, shape: tuple[str, ...], weight: str, gguf: str, texts: tuple[str, str]
) -> Parameter:
    """A parameter of all experts, stacked along the first axis."""
    built = CODE.at("Experts.__init__").assigns(f"self.{weight}")
    full = f"model.layers.{{layer}}.mlp.experts.{weight}"
    return Parameter(
        path=f"{EXPERTS}/{leaf}",
        name=name,
        symbol=symbol,
        shape=shape,
        weight=full,
        description=texts[0],
        explanation=texts[1],
        evidence=CODE.context(f"expert-{leaf}", "One for each expert, stacked along the first axis.", built),
        aliases=weight_names(full, gguf),
        built=built,
    )


def _clamped_experts() -> tuple[Node, ...]:
    run, gate = MIXTURE.run, CODE.at("Experts._apply_gate")
    fused, out = run.assigns("gate_up"), run.assigns("out")
    product = gate.assigns("gated_output")
    chosen = Use(path=f"{ROUTER}/chosen-experts", named="chosen")
    whole_gate = CODE.context("apply-gate", "Even columns are the gate, odd ones up; both are clamped.", gate)
    both = CODE.direct("expert-gate-up", "One product gives gate and up of one expert, with a bias.", fused)
    down = CODE.direct("expert-down", "The down projection of one expert, with a bias.", out)
    nodes: list[Node] = [
        _stack(
            "gate-up-weight", "Gate and up weights", r"W_{\mathrm{GU}}", ("experts", "d_model", "gate_up"), "gate_up_proj",
            "blk.{layer}.ffn_gate_exps.weight, ffn_up_exps.weight",
            (
                "For each expert, the matrix that gives its gate and its up.",
                "Stored [in, out], gate and up interleaved: even columns are the gate. Published in MXFP4, about four bits a "
                "number in blocks of 32 that share a scale.",
            ),
        ),
        _stack(
            "gate-up-bias", "Gate and up biases", r"b_{\mathrm{GU}}", ("experts", "gate_up"), "gate_up_proj_bias",
            "blk.{layer}.ffn_gate_exps.bias, ffn_up_exps.bias",
            ("Added to gate and up of each expert.", "Interleaved like the columns of the weight."),
        ),
        Operation(
            path=f"{EXPERTS}/project-gate-up",
            name="Project gate and up",
            inputs=(
                Use(path="expert-inputs", named="x"), chosen,
                Use(path="gate-up-weight", named="weight"), Use(path="gate-up-bias", named="bias"),
            ),
            outputs=("gate-up",),
            equation=r"<gate-up>_a = <expert-inputs>_a\,<gate-up-weight>_{e_a} + <gate-up-bias>_{e_a}",
            reference=_biased_by_expert,
            description="Each row times the matrix of its own expert.",
            explanation=r"$e_a$ is the expert of assignment a.",
            evidence=both,
        ),
        Tensor(
            path=f"{EXPERTS}/gate-up",
            name="Gate and up",
            symbol="[g,u]",
            shape=("assignments", "gate_up"),
            hook=fused,
            joined=True,
            description="Gate and up of each token and expert, interleaved.",
            explanation="Features 2i and 2i + 1 belong together.",
            evidence=both,
        ),
    ]  # fmt: skip
    for number, name, symbol, equation, text in (
        (
            0, "gate", "g", r"<gate>_i = \min\!\left(<gate-up>_{2i},\ <#swiglu_limit>\right)",
            "Clamped from above only: a closed gate may be closed as firmly as it likes.",
        ),
        (
            1, "up", "u", r"<up>_i = \operatorname{clip}\!\left(<gate-up>_{2i+1},\ -<#swiglu_limit>,\ <#swiglu_limit>\right)",
            "Clamped on both sides, so that no product of gate and up can be beyond the reach of few-bit numbers.",
        ),
    ):  # fmt: skip
        split, clamped = gate.assigns(name, nth=1), gate.assigns(name, nth=2)
        evidence = CODE.direct(f"expert-{name}", f"Every second column is the {name}, clamped.", split, clamped)
        nodes += [
            Operation(
                path=f"{EXPERTS}/clamp-{name}",
                name=f"Take and clamp the {name}" if number == 0 else "Take and clamp up",
                inputs=(Use(path="gate-up", named="fused"),),
                outputs=(name,),
                equation=equation,
                reference=_clamped(number),
                description=f"Every second feature is the {name}; what is too large is cut off.",
                explanation=text,
                evidence=evidence + whole_gate,
            ),
            Tensor(
                path=f"{EXPERTS}/{name}",
                name=name.capitalize(),
                symbol=symbol,
                shape=("assignments", "d_expert"),
                hook=clamped,
                joined=True,
                description=f"The {name} of each hidden feature, clamped.",
                explanation="Values at the limit are those that were cut.",
                evidence=evidence,
            ),
        ]
    active = CODE.direct("expert-activate", "The gate times a steep sigmoid of itself.", gate.assigns("glu"))
    gated = CODE.direct("expert-gated", "Up plus one, times the activated gate.", product)
    nodes += [
        Operation(
            path=f"{EXPERTS}/activate",
            name="Activate the gate",
            inputs=("gate",),
            outputs=("activated-gate",),
            equation=r"<activated-gate> = \frac{<gate>}{1 + e^{-<#swiglu_alpha>\,<gate>}}",
            reference=lambda gate, swiglu_alpha: gate * sigmoid(swiglu_alpha * gate),
            description="SiLU with a steeper sigmoid.",
            explanation="With 1.702 it is the sigmoid approximation of GELU, known from the paper that introduced GELU.",
            evidence=active + whole_gate,
        ),
        Tensor(
            path=f"{EXPERTS}/activated-gate",
            name="Activated gate",
            symbol=r"\sigma_g",
            shape=("assignments", "d_expert"),
            hook=gate.assigns("glu"),
            joined=True,
            description="How far each hidden feature of the expert is open.",
            explanation="At most the limit of the clamp, and slightly negative where it is nearly closed.",
            evidence=active,
        ),
        Operation(
            path=f"{EXPERTS}/multiply",
            name="Multiply by up plus one",
            inputs=("activated-gate", "up"),
            outputs=("gated",),
            equation=r"<gated> = \left(<up> + 1\right) \odot <activated-gate>",
            reference=lambda activated_gate, up: (up + 1.0) * activated_gate,
            description="Let each hidden feature through as far as its gate is open, and a little more.",
            explanation=(
                "The one makes the gate itself the starting point, and up a correction of it: an expert whose up is zero is "
                "still a network with an activation."
            ),
            evidence=gated + whole_gate,
        ),
        Tensor(
            path=f"{EXPERTS}/gated",
            name="Gated features",
            symbol="m",
            shape=("assignments", "d_expert"),
            hook=product,
            joined=True,
            description="The hidden features that each expert writes back.",
            explanation="Bounded by the clamps: no more than the limit times the limit plus one.",
            evidence=gated,
        ),
        _stack(
            "down-weight", "Down weights", r"W_{\mathrm D}", ("experts", "d_expert", "d_model"), "down_proj",
            "blk.{layer}.ffn_down_exps.weight",
            (
                "For each expert, the matrix that maps its hidden features back to model width.",
                "Stored [in, out]. Published in MXFP4 like the other.",
            ),
        ),
        _stack(
            "down-bias", "Down biases", r"b_{\mathrm D}", ("experts", "d_model"), "down_proj_bias",
            "blk.{layer}.ffn_down_exps.bias",
            ("Added to what each expert gives.", "Weighed by the routing weight like the rest."),
        ),
        Operation(
            path=f"{EXPERTS}/project-down",
            name="Project down",
            inputs=(
                Use(path="gated", named="x"), chosen,
                Use(path="down-weight", named="weight"), Use(path="down-bias", named="bias"),
            ),
            outputs=("expert-outputs",),
            equation=r"<expert-outputs>_a = <gated>_a\,<down-weight>_{e_a} + <down-bias>_{e_a}",
            reference=_biased_by_expert,
            description="Each row times the matrix of its own expert.",
            explanation="What the expert has to say about this token, not yet weighed.",
            evidence=down,
        ),
        Tensor(
            path=f"{EXPERTS}/expert-outputs",
            name="Expert outputs",
            symbol="o",
            shape=("assignments", "d_model"),
            hook=out,
            joined=True,
            description="What each expert gives for each token that chose it.",
            explanation="Before the routing weight.",
            evidence=down,
        ),
    ]  # fmt: skip
    return tuple(nodes)


def _biased_by_expert(x: Array, chosen: Array, weight: Array, bias: Array) -> Array:
    result: Array = _experts.by_expert(x, chosen, weight) + bias[np.sort(chosen.ravel())]
    return result


def _clamped(number: int) -> Any:
    if number == 0:
        return lambda fused, swiglu_limit: np.minimum(fused[..., 0::2], swiglu_limit)
    return lambda fused, swiglu_limit: np.clip(fused[..., 1::2], -swiglu_limit, swiglu_limit)
