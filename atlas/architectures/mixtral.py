"""Mixtral: Mistral's attention, and instead of one feed-forward network eight experts, two of them for each token.

Declared from `modeling_mixtral.py` of transformers, which also runs it. Row vectors; weights are stored [out, in].
"""

from __future__ import annotations

import numpy as np

from atlas.architectures import _attention, _ends, _experts, _gated, _rope
from atlas.architectures._code import (
    ATTENTION,
    FEED_FORWARD,
    Code,
    Config,
    family_sizes,
    names,
    theta,
    whole,
    windowed_keys,
)
from atlas.architectures._norms import block_norm, final_norm
from atlas.architectures._numeric import Array, softmax
from atlas.graph.nodes import Architecture, Node, Operation, Tensor, Use, Window

ID = "mixtral"
CODE = Code("mixtral", "Mixtral")
MIXTURE = _experts.Mixture(CODE, router="TopKRouter", block="SparseMoeBlock")
ROUTER = _experts.ROUTER
SMALL: Config = {
    "vocab_size": 272,
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": None,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "sliding_window": None,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
}
"""A model of a size that any machine runs at once."""


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
    fixed = sizes(config)
    group = fixed["q_heads"] // fixed["kv_heads"]
    window = config.get("sliding_window")
    size = None if window is None else int(window)
    chosen, experts = fixed["experts_per_token"], fixed["experts"]
    loops, enters = _ends.JOINED
    return Architecture(
        id=ID,
        name="Mixtral",
        kind="Mixture of experts",
        attention="Grouped-query attention" + (", sliding window" if size else ""),
        summary=(
            f"Mistral's block with {experts} feed-forward networks in place of one. Attention is shared by all tokens, several "
            "query heads to each head of keys and values. A small router looks at each token and "
            f"picks {chosen} of the networks, in every layer anew; their outputs are added, weighed by how sure the router was. So "
            f"the model has the parameters of all {experts} and the cost of {chosen}: all must be in memory, few are read for any "
            "one token. A batch reads more of them than a single text, since its tokens choose differently."
        ),
        reference=CODE.reference(config),
        nodes=(
            *_ends.tokens(CODE),
            *_ends.embedding(CODE),
            *_rope.position_ids(CODE),
            *_rope.rotary(
                CODE, why="Mixtral uses a theta of a million, for a context of 32,768 positions without a window."
            ),
            *_ends.mask(CODE, made=CODE.forward.assigns("causal_mask"), windowed=size is not None),
            *_ends.block(
                CODE,
                "Attention is the same for every token; the feed-forward part is a choice. Each layer routes on its own.",
                description="Two updates of the residual stream: attention, then a mixture of experts.",
            ),
            *block_norm(CODE, "attention-norm", "a", "blocks/block-input", 1, "input_layernorm"),
            _attention.component(
                CODE,
                "The only place where positions exchange information, and the larger part of what all tokens share. "
                f"{group} query heads share each head of keys and values.",
            ),
            *_attention.projections(CODE, group),
            *_rope.rotations(CODE),
            *_attention.caches(CODE, group, window=size),
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
                f"Of {experts} networks each token goes through {chosen}. The name misleads: experts do not divide the world "
                "into subjects. What they specialise in, as far as anyone has seen, is more like kinds of token.",
                description="A router and its experts, applied to each position alone.",
            ),
            *_router(chosen),
            *_experts.dispatch(
                MIXTURE,
                "Each is a SwiGLU network of its own. How evenly tokens spread over them is not given by the architecture; it "
                "is taught by an extra loss in training, which this code computes only on request.",
            ),
            *_experts.gated_experts(MIXTURE),
            *_experts.combine(
                MIXTURE,
                weighed=MIXTURE.run.assigns("current_hidden_states", nth=3),
                combined=MIXTURE.whole.assigns("hidden_states", nth=3),
                shaped=MIXTURE.whole.assigns("hidden_states", nth=4),
            ),
            *_ends.residual(
                CODE,
                "feed-forward",
                CODE.layer.assigns("hidden_states", nth=6),
                update=f"{FEED_FORWARD}/feed-forward-update",
            ),
            *final_norm(CODE),
            *_ends.unembedding(CODE, tied=bool(config.get("tie_word_embeddings"))),
        ),
        axes=(*_experts.AXES, *((windowed_keys(size, everywhere=True),) if size else ())),
        sizes=fixed,
        settings={
            "norm_eps": config.get("rms_norm_eps", 1e-5),
            "rope_theta": theta(config),
            "group": group,
            **({"window": size} if size else {}),
        },
        loops=loops,
        enters=enters,
        window=Window(size=size) if size else None,
    )


def _router(chosen: int) -> tuple[Node, ...]:
    route = MIXTURE.route
    soft, top, indices = (
        route.assigns("router_probs"),
        route.assigns("router_top_value", nth=1),
        route.assigns("router_indices"),
    )
    scaled = route.assigns("router_top_value", nth=2)
    likely = CODE.direct("router-softmax", "Softmax over all experts, in float32.", soft)
    best = CODE.direct("router-top", f"The {chosen} largest.", top)
    weights = CODE.direct("router-renormalize", "Divided by their sum, in place.", scaled)
    return (
        *_experts.router(
            MIXTURE,
            "A single matrix, one row an expert. Its choice is discrete, so no gradient flows through it: it learns only "
            "through the weights by which outputs are multiplied, and an expert that is never chosen never learns.",
        ),
        Operation(
            path=f"{ROUTER}/softmax",
            name="Softmax over experts",
            inputs=(Use(path="router-logits", named="x"),),
            outputs=("router-probabilities",),
            equation=r"<router-probabilities>_{t,e} = \frac{e^{\,<router-logits>_{t,e}}}{\sum_{f} e^{\,<router-logits>_{t,f}}}",
            reference=softmax,
            description="Turn each token's scores into shares that sum to one.",
            explanation="Over all experts, before the choice; softmax after it would give the same weights in the end.",
            evidence=likely,
        ),
        Tensor(
            path=f"{ROUTER}/router-probabilities",
            name="Router probabilities",
            symbol="p",
            shape=("tokens", "experts"),
            hook=soft,
            description="How each token would be divided over all experts.",
            explanation="The loss that balances experts is computed from these in training.",
            evidence=likely,
        ),
        Operation(
            path=f"{ROUTER}/choose",
            name="Choose the best",
            inputs=("router-probabilities",),
            outputs=("top-probabilities", "chosen-experts"),
            equation=(
                r"\left(<top-probabilities>, <chosen-experts>\right) = \operatorname{top}_{<#experts_per_token>} <router-probabilities>"
            ),
            reference=_top,
            description=f"Keep the {chosen} largest of each token.",
            explanation="The discontinuity of the model: the least change of a score may swap one expert for another.",
            evidence=best,
        ),
        Tensor(
            path=f"{ROUTER}/top-probabilities",
            name="Top probabilities",
            symbol=r"\hat p",
            shape=("tokens", "experts_per_token"),
            hook=top,
            description="The shares of the experts chosen, largest first.",
            explanation="They do not sum to one: the rest would have gone to experts that are not asked.",
            evidence=best,
        ),
        Tensor(
            path=f"{ROUTER}/chosen-experts",
            name="Chosen experts",
            symbol=r"\mathbf e",
            shape=("tokens", "experts_per_token"),
            hook=indices,
            description="Which experts each token goes to, the best first.",
            explanation="Numbers of experts, not amounts: the difference between 3 and 4 means nothing.",
            evidence=CODE.direct("chosen-experts", "The indices of the largest.", indices),
            aliases=names("", "router_indices"),
        ),
        Operation(
            path=f"{ROUTER}/renormalize",
            name="Renormalize",
            inputs=("top-probabilities",),
            outputs=("routing-weights",),
            equation=r"<routing-weights>_{t,c} = \frac{<top-probabilities>_{t,c}}{\sum_{d} <top-probabilities>_{t,d}}",
            reference=lambda top_probabilities: top_probabilities / top_probabilities.sum(axis=-1, keepdims=True),
            description="Make the shares of the chosen sum to one.",
            explanation="So the size of the update does not depend on how much of the softmax the chosen have.",
            evidence=weights,
        ),
        Tensor(
            path=f"{ROUTER}/routing-weights",
            name="Routing weights",
            symbol="w",
            shape=("tokens", "experts_per_token"),
            hook=scaled,
            description="How much each chosen expert counts.",
            explanation="Each row sums to one.",
            evidence=weights,
            aliases=names("", "router_scores"),
        ),
    )


def _top(router_probabilities: Array, experts_per_token: int) -> tuple[Array, Array]:
    order = np.argsort(-router_probabilities, axis=-1, kind="stable")[:, :experts_per_token]
    return np.take_along_axis(router_probabilities, order, axis=-1), order
