"""The gated feed-forward network of a dense block: gate, up, their product, down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atlas.architectures._code import FEED_FORWARD, STREAM, Code, names, weight_names
from atlas.architectures._numeric import Array, linear, silu
from atlas.graph.anchors import Anchor
from atlas.graph.evidence import Evidence
from atlas.graph.nodes import Component, Layers, Node, Operation, Parameter, Tensor, Use

Activation = tuple[str, str, Callable[..., Any], str]  # its name, its TeX with the gate's light, numpy, what it is like

SILU: Activation = (
    "SiLU",
    r"\operatorname{SiLU}(<gate>) = \frac{<gate>}{1 + e^{-<gate>}}",
    lambda gate: silu(gate),
    "SiLU is the input times its own logistic sigmoid: near zero for clearly negative inputs, close to the input for large "
    "ones, with a dip to -0.278 at -1.28, so a closed gate leaks a little and its gradient does not vanish.",
)


def component(code: Code, explanation: str, description: str = "") -> Component:
    """The feed-forward network as a part of a block."""
    return Component(
        path=FEED_FORWARD,
        name="Feed-forward",
        description=description or "A gated two-layer network, applied to each position alone.",
        explanation=explanation,
        evidence=code.context("mlp-call", "The block calls it on normalised input.", code.layer),
        module="model.layers.{layer}.mlp",
    )


def network(
    code: Code,
    *,
    path: str = FEED_FORWARD,
    source: str = "blocks/feed-forward-norm/normalized",
    activation: Activation = SILU,
    caller: Anchor | None = None,
    module: str = "mlp",
    width: str = "d_mlp",
    update: tuple[str, str, Anchor] | None = None,
    layers: Layers | None = None,
    gguf: str = "",
    also: tuple[Evidence, ...] = (),
) -> tuple[Node, ...]:
    """Gate, up, product and down. `caller` is the one call that these are of, where the class runs in several places.

    `update` is the path of what comes out (relative), its symbol, and where that is; by default the network's own.
    `also` is further evidence of the activation.
    """
    place = code.at("MLP.forward").assigns("down_proj")

    def of(anchor: Anchor) -> Anchor:
        return anchor if caller is None else anchor.inside(caller)

    product, activated = of(place.arg(0)), of(place.arg(0).left)
    result, symbol, made = update or ("feed-forward-update", r"\Delta_{\mathrm{mlp}}", of(place))
    whole = code.context("mlp", "The activated gate times up, projected down.", place)
    title, tex, reference, likeness = activation
    prefix = f"model.layers.{{layer}}.{module}"
    nodes: list[Node] = []
    for name, letter, where, text, why in (
        (
            "gate",
            "g",
            of(place.call("self.gate_proj")),
            "The gate before its activation.",
            "Negative entries nearly close a hidden feature, positive ones open it in proportion.",
        ),
        (
            "up",
            "u",
            of(place.call("self.up_proj")),
            "What the gate lets through, or holds back.",
            "It passes through no activation, so the product is linear in it.",
        ),
    ):
        evidence = code.direct(f"project-{name}", f"{name}_proj of the normalised features.", where) + whole
        nodes += [
            _weight(code, path, name, module, width, layers, gguf),
            Operation(
                path=f"{path}/project-{name}",
                name="Project the gate" if name == "gate" else "Project up",
                inputs=(Use(path=source, named="x"), Use(path=f"{path}/{name}-weight", named="weight")),
                outputs=(name,),
                equation=rf"<{name}> = <{source}>\,<{name}-weight>^{{\top}}",
                reference=linear,
                description=f"One matrix product gives the {name} of all hidden features.",
                explanation="Gate and up read the same features and are often computed as one product.",
                evidence=evidence,
                layers=layers,
            ),
            Tensor(
                path=f"{path}/{name}",
                name=name.capitalize(),
                symbol=letter,
                shape=("batch", "positions", width),
                hook=where,
                description=text,
                explanation=why,
                evidence=evidence,
                aliases=names(
                    f"blocks.{{layer}}.mlp.{'hook_pre' if name == 'gate' else 'hook_pre_linear'}",
                    f"{module}.{name}_proj (output)",
                ),
                sharded=width,
                layers=layers,
            ),
        ]
    active = code.direct("activate", f"{title} of the gate.", activated) + whole + also
    gated = code.direct("gated", "The activated gate times up.", product) + whole
    down = code.direct("mlp-update", "The gated features, projected down.", of(place))
    nodes += [
        Operation(
            path=f"{path}/activate",
            name="Activate the gate",
            inputs=("gate",),
            outputs=("activated-gate",),
            equation=rf"<activated-gate> = {tex}",
            reference=reference,
            description=f"{title}, the gate's nonlinearity.",
            explanation=likeness,
            evidence=active,
            layers=layers,
        ),
        Tensor(
            path=f"{path}/activated-gate",
            name="Activated gate",
            symbol=r"\sigma_g",
            shape=("batch", "positions", width),
            hook=activated,
            description="How far each hidden feature is open.",
            explanation="No probability and no switch: it is unbounded above and may be slightly negative.",
            evidence=active,
            aliases=names("", f"{module}.act_fn (output)"),
            sharded=width,
            layers=layers,
        ),
        Operation(
            path=f"{path}/multiply",
            name="Multiply gate and up",
            inputs=("activated-gate", "up"),
            outputs=("gated",),
            equation=r"<gated> = <activated-gate> \odot <up>",
            reference=_product,
            description="Let each hidden feature through as far as its gate is open.",
            explanation="A product of two readings of the same stream, so the network can respond to this *and* that.",
            evidence=gated,
            layers=layers,
        ),
        Tensor(
            path=f"{path}/gated",
            name="Gated features",
            symbol="m",
            shape=("batch", "positions", width),
            hook=product,
            description="The hidden features that are written back.",
            explanation="What interpretability work calls the neurons of a gated network.",
            evidence=gated,
            aliases=names("blocks.{layer}.mlp.hook_post", f"{module}.down_proj (input)"),
            sharded=width,
            layers=layers,
        ),
        _weight(code, path, "down", module, width, layers, gguf),
        Operation(
            path=f"{path}/project-down",
            name="Project down",
            inputs=(Use(path="gated", named="x"), Use(path="down-weight", named="weight")),
            outputs=(result,),
            equation=rf"<{result}> = <gated>\,<down-weight>^{{\top}}",
            reference=linear,
            place=None if update is None else of(place),
            description="Write the hidden features in the language of the residual stream.",
            explanation="A sum of one column a hidden feature, each weighed by its gated value.",
            evidence=down,
            layers=layers,
        ),
    ]
    if update is None:
        nodes.append(update_tensor(made, down, f"{prefix} (output)"))
    elif "/" not in result:
        nodes.append(
            Tensor(
                path=f"{path}/{result}",
                name=result.replace("-", " ").capitalize(),
                symbol=symbol,
                shape=STREAM,
                hook=made,
                description="What this network gives for each position.",
                explanation="Computed from this position alone.",
                evidence=code.direct(result, "What the call gives.", made) + whole,
                layers=layers,
            )
        )
    return tuple(nodes)


def update_tensor(hook: Anchor, evidence: tuple[Evidence, ...], alias: str, *, normed: bool = False) -> Tensor:
    """What the feed-forward network adds to the stream, or hands to a norm that comes before the sum."""
    return Tensor(
        path=f"{FEED_FORWARD}/feed-forward-update",
        name="Feed-forward update",
        symbol=r"\Delta_{\mathrm{mlp}}",
        shape=STREAM,
        hook=hook,
        description=(
            "What the network gives, before it is normalised and added."
            if normed
            else "What the feed-forward network adds to the residual stream."
        ),
        explanation="Computed from this position alone; only the stream that it read was mixed by attention.",
        evidence=evidence,
        aliases=names("blocks.{layer}.hook_mlp_out", alias),
    )


def _product(activated_gate: Array, up: Array) -> Array:
    result: Array = activated_gate * up
    return result


def _weight(code: Code, path: str, name: str, module: str, width: str, layers: Layers | None, gguf: str) -> Parameter:
    built = code.at("MLP.__init__").assigns(f"self.{name}_proj")
    weight = f"model.layers.{{layer}}.{module}.{name}_proj.weight"
    lens = {"gate": "W_gate", "up": "W_in", "down": "W_out"}[name]
    return Parameter(
        path=f"{path}/{name}-weight",
        name=f"{name.capitalize()} weight",
        symbol={"gate": r"W_{\mathrm G}", "up": r"W_{\mathrm{up}}", "down": r"W_{\mathrm D}"}[name],
        shape=("d_model", width) if name == "down" else (width, "d_model"),
        weight=weight,
        description=(
            "Maps the gated features back to model width."
            if name == "down"
            else f"Projects the normalised features to the {name} of each hidden feature."
        ),
        explanation=(
            "Each column is what one hidden feature writes to the stream."
            if name == "down"
            else "Each row is the direction that one hidden feature reads."
        ),
        evidence=code.context(f"{name}-weight", f"{name}_proj is a linear map without bias.", built),
        aliases=weight_names(
            weight, f"blk.{{layer}}.ffn_{name}{gguf}.weight", "" if gguf else f"blocks.{{layer}}.mlp.{lens}"
        ),
        built=built,
        sharded=width,
        layers=layers,
    )
