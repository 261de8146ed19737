"""Mixtures of experts as transformers' eager code runs them: one expert after another, each on the tokens that chose it.

The code loops over the experts that were chosen at all. The values of its turns are put together along their first axis,
*assignments*: one row for each token and each expert that it chose, expert after expert, and within an expert choice by
choice, then token by token. Knows no router: how experts are chosen is each architecture's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from atlas.architectures._code import FEED_FORWARD, STREAM, Code, names, weight_names
from atlas.architectures._gated import SILU
from atlas.architectures._numeric import Array, contract
from atlas.graph.anchors import Anchor
from atlas.graph.axes import Axis
from atlas.graph.nodes import Component, Layers, Node, Operation, Parameter, Tensor, Use

ROUTER, EXPERTS = f"{FEED_FORWARD}/router", f"{FEED_FORWARD}/experts"
NORM = "blocks/feed-forward-norm/normalized"
AXES = (
    Axis(
        name="tokens",
        symbol="BT",
        words="tokens",
        word="token",
        meaning="Positions of all sequences of the batch in one row: what is routed does not care where it stands.",
        running={"full": "BT", "prefill": "BP", "decode": "B"},
        product=("batch", "positions"),
    ),
    Axis(
        name="assignments",
        symbol="BTk",
        words="assignments",
        word="assignment",
        meaning="One for each token and each expert that it chose, expert after expert.",
        running={"full": "BTk", "prefill": "BPk", "decode": "Bk"},
        product=("batch", "positions", "experts_per_token"),
    ),
    Axis(name="experts", symbol="E", words="experts", word="expert", meaning="Feed-forward networks to choose from."),
    Axis(
        name="experts_per_token",
        symbol="k",
        words="experts a token",
        word="expert a token",
        meaning="How many experts each token is sent to.",
    ),
    Axis(name="d_expert", symbol="F_e", words="expert mlp", meaning="Hidden features of one expert."),
    Axis(name="gate_up", symbol="2F_e", words="gate and up", meaning="Gate and up of one expert, in one matrix."),
)


@dataclass(frozen=True)
class Mixture:
    """Where a model keeps its router and experts: `router`, `experts` and `block` are classes (without their prefix)."""

    code: Code
    router: str
    block: str
    experts: str = "Experts"
    layers: Layers | None = None
    gate: str = "mlp.gate"
    sum: str = "final_hidden_states"

    @property
    def route(self) -> Anchor:
        """The pass through the router."""
        return self.code.at(f"{self.router}.forward")

    @property
    def run(self) -> Anchor:
        """The pass through the experts."""
        return self.code.at(f"{self.experts}.forward")

    @property
    def whole(self) -> Anchor:
        """The pass through router and experts."""
        return self.code.at(f"{self.block}.forward")


def router(mixture: Mixture, explanation: str, *, bias: bool = False) -> tuple[Node, ...]:
    """The router as a component, its weight, and its scores of all experts."""
    code, route = mixture.code, mixture.route
    made = route.assigns("router_logits")
    built = code.at(f"{mixture.router}.__init__")
    evidence = code.direct("router-logits", "One direction an expert, against each token.", made)
    weight = f"model.layers.{{layer}}.{mixture.gate}"
    inputs: list[str | Use] = [Use(path=NORM, named="x"), "weight"]
    nodes: list[Node] = [
        Component(
            path=ROUTER,
            name="Router",
            description="Choose a few experts for each token, and how much each counts.",
            explanation=explanation,
            evidence=code.context("router", "The router, from scores to choices.", route),
            module=f"model.layers.{{layer}}.{mixture.gate}",
            layers=mixture.layers,
        ),
        Parameter(
            path=f"{ROUTER}/weight",
            name="Router weight",
            symbol=r"W_{\mathrm R}",
            shape=("experts", "d_model"),
            weight=f"{weight}.weight",
            description="One direction of the stream for each expert.",
            explanation="Tiny, and it decides where nearly all other parameters of the block are used.",
            evidence=code.context("router-weight", "One row an expert.", built.assigns("self.weight")),
            aliases=weight_names(f"{weight}.weight", "blk.{layer}.ffn_gate_inp.weight"),
            built=built.assigns("self.weight"),
        ),
    ]
    if bias:
        inputs.append("bias")
        nodes.append(
            Parameter(
                path=f"{ROUTER}/bias",
                name="Router bias",
                symbol=r"b_{\mathrm R}",
                shape=("experts",),
                weight=f"{weight}.bias",
                description="Added to each expert's score.",
                explanation="Lets an expert be chosen more often whatever the token.",
                evidence=code.context("router-bias", "One number an expert.", built.assigns("self.bias")),
                aliases=weight_names(f"{weight}.bias", "blk.{layer}.ffn_gate_inp.bias"),
                built=built.assigns("self.bias"),
            )
        )
    nodes += [
        Operation(
            path=f"{ROUTER}/score",
            name="Score the experts",
            inputs=tuple(inputs),
            outputs=("router-logits",),
            equation=rf"<router-logits> = <{NORM}>\,<weight>^{{\top}}" + (" + <bias>" if bias else ""),
            reference=_biased_scores if bias else _scores,
            description="The dot product of each token with each expert's direction.",
            explanation="The batch is laid out as one row of tokens first: from here on it does not matter where one stands.",
            evidence=evidence,
        ),
        Tensor(
            path=f"{ROUTER}/router-logits",
            name="Router logits",
            symbol="r",
            shape=("tokens", "experts"),
            hook=made,
            description="How well each expert suits each token.",
            explanation="Only which are largest, and by how much, is used.",
            evidence=evidence,
            aliases=names("", "router_logits"),
        ),
    ]
    return tuple(nodes)


def _scores(x: Array, weight: Array) -> Array:
    result: Array = x.reshape(-1, x.shape[-1]) @ weight.T
    return result


def _biased_scores(x: Array, weight: Array, bias: Array) -> Array:
    result: Array = _scores(x, weight) + bias
    return result


def dispatch(mixture: Mixture, explanation: str) -> tuple[Node, ...]:
    """The experts as a component, who goes where, and the rows that each expert reads."""
    code, run = mixture.code, mixture.run
    token, choice = run.assigns("token_idx"), run.assigns("top_k_pos")
    gathered = run.assigns("current_state")
    sent = code.direct("dispatch", "For one expert: which tokens chose it, and in which place.", token)
    taken = code.direct("gather", "The rows of the tokens that chose this expert.", gathered)
    loop = code.context("expert-loop", "One expert after another, those that nobody chose left out.", run.loop())
    return (
        Component(
            path=EXPERTS,
            name="Experts",
            repeat="experts",
            plural="experts",
            description="Feed-forward networks of one form, of which each token passes through a few.",
            explanation=explanation,
            evidence=loop,
            module="model.layers.{layer}.mlp.experts",
            layers=mixture.layers,
        ),
        Operation(
            path=f"{EXPERTS}/dispatch",
            name="Send tokens to experts",
            inputs=(Use(path=f"{ROUTER}/chosen-experts", named="chosen"),),
            outputs=("token-index", "choice-index"),
            equation=(
                rf"\left(<token-index>, <choice-index>\right) = \text{{the }} a\text{{-th }} (t, c) "
                rf"\text{{ in order of }} \left(<{ROUTER}/chosen-experts>_{{t,c}},\, c,\, t\right)"
            ),
            reference=_dispatched,
            description="Sort all choices by expert.",
            explanation=(
                "The eager code loops over experts and asks for each who chose it; rows of all turns are shown one after "
                "another. Fused kernels sort once and multiply in groups, which gives the same."
            ),
            evidence=sent + loop,
        ),
        Tensor(
            path=f"{EXPERTS}/token-index",
            name="Token of each assignment",
            symbol="t_a",
            shape=("assignments",),
            hook=token,
            joined=True,
            description="Which token each row of the experts' values belongs to.",
            explanation="Every token appears as often as it has experts.",
            evidence=sent,
        ),
        Tensor(
            path=f"{EXPERTS}/choice-index",
            name="Choice of each assignment",
            symbol="c_a",
            shape=("assignments",),
            hook=choice,
            joined=True,
            description="Whether the expert was the token's first choice (0), its second, and so on.",
            explanation="Says which of the token's routing weights the row is multiplied by.",
            evidence=sent,
        ),
        Operation(
            path=f"{EXPERTS}/gather",
            name="Gather the tokens",
            inputs=(Use(path=NORM, named="x"), "token-index"),
            outputs=("expert-inputs",),
            equation=rf"<expert-inputs>_a = <{NORM}>_{{<token-index>}}",
            reference=lambda x, token_index: x.reshape(-1, x.shape[-1])[token_index],
            description="Copy each token's features to every expert that it chose.",
            explanation="In a model spread over machines this is the all-to-all: tokens travel, weights stay.",
            evidence=taken,
        ),
        Tensor(
            path=f"{EXPERTS}/expert-inputs",
            name="Expert inputs",
            symbol=r"\hat n",
            shape=("assignments", "d_model"),
            hook=gathered,
            joined=True,
            description="What each expert reads: the normalised features of the tokens that chose it.",
            explanation="How many rows an expert gets is a matter of the text: some get most, some none.",
            evidence=taken,
        ),
    )


def _dispatched(chosen: Array) -> tuple[Array, Array]:
    tokens, choices = [], []
    for expert in np.unique(chosen):
        choice, token = np.nonzero((chosen == expert).T)
        tokens.append(token)
        choices.append(choice)
    return np.concatenate(tokens), np.concatenate(choices)


def by_expert(x: Array, chosen: Array, weight: Array) -> Array:
    """x_a W_e for each row a and its expert e, the weight of each expert stored [in, out]."""
    order = np.sort(chosen.ravel())  # as the rows are: by expert
    return np.concatenate([x[order == expert] @ weight[expert] for expert in np.unique(order)])


def gated_experts(mixture: Mixture, gguf: bool = True) -> tuple[Node, ...]:
    """SwiGLU in each expert, gate and up in one matrix [experts, gate and up, d_model]."""
    code, run = mixture.code, mixture.run
    built = code.at(f"{mixture.experts}.__init__")
    fused = run.assigns("gate")
    product, down = run.assigns("current_hidden_states", nth=1), run.assigns("current_hidden_states", nth=2)
    both = code.direct("expert-gate-up", "One product gives gate and up of one expert.", fused)
    active = code.direct("expert-activate", "The activation of the gate.", product.left)
    gated = code.direct("expert-gated", "The activated gate times up.", product)
    out = code.direct("expert-down", "The down projection of one expert.", down)
    prefix = "model.layers.{layer}.mlp.experts"
    chosen = Use(path=f"{ROUTER}/chosen-experts", named="chosen")
    return (
        Parameter(
            path=f"{EXPERTS}/gate-up-weight",
            name="Gate and up weights",
            symbol=r"W_{\mathrm{GU}}",
            shape=("experts", "gate_up", "d_model"),
            weight=f"{prefix}.gate_up_proj",
            description="For each expert, the matrix that gives its gate and its up.",
            explanation=(
                "Two thirds of the experts' parameters. Published checkpoints keep a matrix an expert; the library "
                "stacks them when it loads."
            ),
            evidence=code.context(
                "gate-up-weight", "Stacked along the first axis.", built.assigns("self.gate_up_proj")
            ),
            aliases=weight_names(
                f"{prefix}.gate_up_proj", "blk.{layer}.ffn_gate_exps.weight, ffn_up_exps.weight" if gguf else ""
            ),
            built=built.assigns("self.gate_up_proj"),
        ),
        Operation(
            path=f"{EXPERTS}/project-gate-up",
            name="Project gate and up",
            inputs=(Use(path="expert-inputs", named="x"), chosen, Use(path="gate-up-weight", named="weight")),
            outputs=("gate", "up"),
            equation=r"\left[\,<gate>_a;\ <up>_a\,\right] = <expert-inputs>_a\,<gate-up-weight>_{e_a}^{\top}",
            reference=_halves,
            description="Each row times the matrix of its own expert.",
            explanation=(
                r"$e_a$ is the expert of assignment a. A decode step reads only the matrices of the experts chosen, which is "
                "why a model with many times the parameters is not many times slower."
            ),
            evidence=both,
        ),
        Tensor(
            path=f"{EXPERTS}/gate",
            name="Gate",
            symbol="g",
            shape=("assignments", "d_expert"),
            hook=fused,
            joined=True,
            description="The gate before its activation, for each token and expert.",
            explanation="The first half of the product.",
            evidence=both,
        ),
        Tensor(
            path=f"{EXPERTS}/up",
            name="Up",
            symbol="u",
            shape=("assignments", "d_expert"),
            hook=run.assigns("up"),
            joined=True,
            description="What the gate lets through, or holds back.",
            explanation="The second half of the product.",
            evidence=code.direct("expert-up", "One product gives gate and up of one expert.", run.assigns("up")),
        ),
        Operation(
            path=f"{EXPERTS}/activate",
            name="Activate the gate",
            inputs=("gate",),
            outputs=("activated-gate",),
            equation=rf"<activated-gate> = {SILU[1]}",
            reference=SILU[2],
            description="SiLU, the gate's nonlinearity.",
            explanation=SILU[3],
            evidence=active,
        ),
        Tensor(
            path=f"{EXPERTS}/activated-gate",
            name="Activated gate",
            symbol=r"\sigma_g",
            shape=("assignments", "d_expert"),
            hook=product.left,
            joined=True,
            description="How far each hidden feature of the expert is open.",
            explanation="Unbounded above, and slightly negative where it is nearly closed.",
            evidence=active,
        ),
        Operation(
            path=f"{EXPERTS}/multiply",
            name="Multiply gate and up",
            inputs=("activated-gate", "up"),
            outputs=("gated",),
            equation=r"<gated> = <activated-gate> \odot <up>",
            reference=lambda activated_gate, up: activated_gate * up,
            description="Let each hidden feature through as far as its gate is open.",
            explanation="An expert is a dense block's network, no more.",
            evidence=gated,
        ),
        Tensor(
            path=f"{EXPERTS}/gated",
            name="Gated features",
            symbol="m",
            shape=("assignments", "d_expert"),
            hook=product,
            joined=True,
            description="The hidden features that each expert writes back.",
            explanation="Features of different experts are strangers: feature 7 of one has nothing to do with feature 7 of another.",
            evidence=gated,
        ),
        Parameter(
            path=f"{EXPERTS}/down-weight",
            name="Down weights",
            symbol=r"W_{\mathrm D}",
            shape=("experts", "d_model", "d_expert"),
            weight=f"{prefix}.down_proj",
            description="For each expert, the matrix that maps its hidden features back to model width.",
            explanation="Each column is what one hidden feature of one expert writes.",
            evidence=code.context(
                "experts-down-weight", "Stacked along the first axis.", built.assigns("self.down_proj")
            ),
            aliases=weight_names(f"{prefix}.down_proj", "blk.{layer}.ffn_down_exps.weight" if gguf else ""),
            built=built.assigns("self.down_proj"),
        ),
        Operation(
            path=f"{EXPERTS}/project-down",
            name="Project down",
            inputs=(Use(path="gated", named="x"), chosen, Use(path="down-weight", named="weight")),
            outputs=("expert-outputs",),
            equation=r"<expert-outputs>_a = <gated>_a\,<down-weight>_{e_a}^{\top}",
            reference=lambda x, chosen, weight: by_expert(x, chosen, np.swapaxes(weight, 1, 2)),
            description="Each row times the matrix of its own expert.",
            explanation="What the expert has to say about this token, not yet weighed.",
            evidence=out,
        ),
        Tensor(
            path=f"{EXPERTS}/expert-outputs",
            name="Expert outputs",
            symbol="o",
            shape=("assignments", "d_model"),
            hook=down,
            joined=True,
            description="What each expert gives for each token that chose it.",
            explanation="Before the routing weight.",
            evidence=out,
        ),
    )


def _halves(x: Array, chosen: Array, weight: Array) -> tuple[Array, Array]:
    gate, up = np.split(by_expert(x, chosen, np.swapaxes(weight, 1, 2)), 2, axis=-1)
    return gate, up


def combine(
    mixture: Mixture, *, weighed: Anchor, combined: Anchor, shaped: Anchor | None = None, output: str = "combined"
) -> tuple[Node, ...]:
    """Rows weighed and summed for each token: `combined` [tokens, d_model], and `shaped` like the stream, if it is."""
    code = mixture.code
    scale = code.direct("weigh", "Each row times the token's routing weight for this expert.", weighed)
    total = code.direct("combine", "What the experts give is summed for each token.", combined)
    total += code.context(
        "index-add", "Rows are added in place, expert after expert.", mixture.run.call(f"{mixture.sum}.index_add_")
    )
    nodes: list[Node] = [
        Operation(
            path=f"{EXPERTS}/weigh",
            name="Weigh by the routing weights",
            inputs=(
                Use(path="expert-outputs", named="rows"),
                Use(path=f"{ROUTER}/routing-weights", named="weights"),
                "token-index",
                "choice-index",
            ),
            outputs=("weighed-outputs",),
            equation=(
                rf"<weighed-outputs>_a = <{ROUTER}/routing-weights>_{{<token-index>,\,<choice-index>}}\,<expert-outputs>_a"
            ),
            reference=lambda rows, weights, token_index, choice_index: (
                rows * weights[token_index, choice_index][:, None]
            ),
            description="Let each expert count as much as the router says.",
            explanation="The only way in which the router's numbers enter the result, and so the only way for it to learn.",
            evidence=scale,
        ),
        Tensor(
            path=f"{EXPERTS}/weighed-outputs",
            name="Weighed outputs",
            symbol="o_w",
            shape=("assignments", "d_model"),
            hook=weighed,
            joined=True,
            description="What each expert contributes to each of its tokens.",
            explanation="Compare sizes across a token's experts to see which of them mattered.",
            evidence=scale,
        ),
        Operation(
            path=f"{EXPERTS}/combine",
            name="Sum for each token",
            inputs=("weighed-outputs", "token-index", Use(path=NORM, lends=True)),
            outputs=(output,),
            equation=rf"<{output}>_t = \sum_{{a:\, <token-index> = t}} <weighed-outputs>_a",
            reference=_summed,
            description="Add up what a token's experts have given.",
            explanation=(
                "Added in place, expert after expert, so in bfloat16 the last digits depend on the order of experts, and on "
                "nothing else in the batch."
            ),
            evidence=total,
        ),
        Tensor(
            path=f"{EXPERTS}/{output}",
            name="Combined outputs",
            symbol=r"\Delta_e",
            shape=("tokens", "d_model"),
            hook=combined,
            description="What all chosen experts together give for each token.",
            explanation="One row a token again.",
            evidence=total,
        ),
    ]
    if shaped is not None:
        update = code.direct("mlp-update", "The tokens as sequences again.", shaped)
        nodes += [
            Operation(
                path=f"{FEED_FORWARD}/restore-shape",
                name="Restore the sequences",
                inputs=(Use(path=f"experts/{output}", named="rows"), Use(path=NORM, lends=True)),
                outputs=("feed-forward-update",),
                equation=rf"<feed-forward-update>_{{b,t}} = <experts/{output}>_{{bT+t}}",
                reference=lambda rows, positions: rows.reshape(-1, positions, rows.shape[-1]),
                description="Lay the tokens out as sequences again.",
                explanation="Moves nothing and computes nothing.",
                evidence=update,
                layers=mixture.layers,
            ),
            Tensor(
                path=f"{FEED_FORWARD}/feed-forward-update",
                name="Feed-forward update",
                symbol=r"\Delta_{\mathrm{mlp}}",
                shape=STREAM,
                hook=shaped,
                description="What the mixture adds to the residual stream.",
                explanation="Computed from each position alone; only the stream that was read was mixed by attention.",
                evidence=update,
                aliases=names("blocks.{layer}.hook_mlp_out", "mlp (output)"),
            ),
        ]
    return tuple(nodes)


def _summed(weighed_outputs: Array, token_index: Array) -> Array:
    tokens = np.arange(int(token_index.max()) + 1)
    return contract("a t, a d -> t d", (token_index[:, None] == tokens).astype(float), weighed_outputs)
