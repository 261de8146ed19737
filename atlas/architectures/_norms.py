"""Normalisation as models of transformers compute it: RMSNorm in steps, LayerNorm as one fused call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from atlas.architectures._code import ATTENTION, STREAM, Code, names, weight_names
from atlas.architectures._numeric import Array
from atlas.graph.anchors import Anchor
from atlas.graph.evidence import Evidence
from atlas.graph.nodes import Alias, Component, Node, Operation, Parameter, Tensor, Use

Texts = tuple[str, str]  # what it is for, and why it is there
ATTENTION_NORM: Texts = (
    "Normalise what attention reads.",
    "Normalising what a branch reads, not the sum, keeps a clean path for gradients through the whole depth.",
)
FEED_FORWARD_NORM: Texts = (
    "Normalise what the feed-forward network reads.",
    "Its gain is its own, so the two branches may weigh the same features differently.",
)


def rms_norm(
    code: Code,
    path: str,
    name: str,
    letter: str,
    source: str,
    call: Anchor,
    built: Anchor,
    weight: str,
    aliases: tuple[Alias, ...],
    texts: Texts,
    *,
    lens: str = "",
    shape: tuple[str, ...] = STREAM,
    width: str = "d_model",
    offset: bool = False,
    late_cast: bool = False,
    eps: str = "norm_eps",
) -> tuple[Node, ...]:
    """One RMSNorm over the last axis of `shape`. `call` is the module's call in its owner, `letter` marks its symbols.

    `offset`: the gain is kept as its distance from 1, as Gemma does. `late_cast`: the gain is applied in float32.
    """
    inner = code.at("RMSNorm.forward")
    root, product = inner.assigns("hidden_states", nth=2).right.inside(call), inner.returns()
    if offset:
        root = code.at("RMSNorm._norm").returns().right.inside(call)
    whole = code.at("RMSNorm._norm").through(inner.returns()) if offset else inner
    definition = code.context("rms-norm", "RMSNorm: normalise in float32, then multiply by the gain.", whole)
    gain = r"\left(1 + <gain>\right)" if offset else "<gain>"
    return (
        Component(
            path=path,
            name=name,
            description=texts[0],
            explanation=(
                "Root-mean-square normalisation (Zhang and Sennrich, 2019): no mean is subtracted and no bias added. "
                + texts[1]
            ),
            evidence=code.context(f"{path}-built", "A norm of its own, with its own gain.", built) + definition,
            module=weight.removesuffix(".weight"),
        ),
        Parameter(
            path=f"{path}/gain",
            name="Gain",
            symbol=rf"\gamma_{{\mathrm {letter}}}",
            shape=(width,),
            weight=weight,
            description=f"One learned factor a feature{', less one' if offset else ''}.",
            explanation=(
                "Kept as its distance from 1, so weight decay pulls towards leaving the features alone, not towards "
                "erasing them. A converter that forgets to add the 1 gives a model that says nothing but noise."
                if offset
                else "Applied in float32, before the cast back to the model's dtype."
                if late_cast
                else "Applied after the cast back from float32, so it multiplies in the model's own dtype."
            ),
            evidence=definition,
            aliases=aliases,
            built=built,
        ),
        Operation(
            path=f"{path}/rms",
            name="Reciprocal root mean square",
            inputs=(Use(path=source, named="x"),),
            outputs=("reciprocal-rms",),
            equation=(
                rf"<reciprocal-rms> = \left(\frac{{1}}{{<#{width}>}}\sum_{{i}} <{source}>_i^{{\,2}} + <#{eps}>\right)^{{-1/2}}"
            ),
            reference=_reciprocal(eps),
            description="How much to shrink each row, from its own features alone.",
            explanation=(
                "Squares, mean and root are taken in float32 whatever the model's dtype, since bfloat16 would lose most "
                "terms of so long a sum. The small constant is inside the root and keeps a row of zeros finite."
            ),
            evidence=code.direct(f"{path}-rms", "The reciprocal root of the mean square plus epsilon.", root)
            + definition,
        ),
        Tensor(
            path=f"{path}/reciprocal-rms",
            name="Reciprocal RMS",
            symbol=rf"r_{{\mathrm {letter}}}",
            shape=(*shape[:-1], "one"),
            hook=root,
            description="One number a row: the inverse of the size of its features.",
            explanation="Where one feature is far larger than all others, it sets this number nearly alone.",
            evidence=code.direct(f"{path}-reciprocal", "The reciprocal root, before the product.", root) + definition,
            aliases=names(
                f"{lens}.hook_scale" if lens else "", "", "TransformerLens keeps the root, not its reciprocal"
            ),
        ),
        Operation(
            path=f"{path}/scale",
            name="Scale by the gain",
            inputs=(Use(path=source, named="x"), "reciprocal-rms", "gain"),
            outputs=("normalized",),
            equation=rf"<normalized> = \left(<{source}> \cdot <reciprocal-rms>\right) \odot {gain}",
            reference=_offset_scaled if offset else _scaled,
            description="Bring each row to unit size, then weigh each feature.",
            explanation=(
                "What reads the result sees directions, not sizes: twice the input gives the same output (but for epsilon)."
            ),
            evidence=code.direct(f"{path}-scale", "The normalised features times the gain.", call, product)
            + definition,
        ),
        Tensor(
            path=f"{path}/normalized",
            name="Normalized features",
            symbol=rf"n_{{\mathrm {letter}}}",
            shape=shape,
            hook=call,
            description="The normalised copy, gain included.",
            explanation="After the gain. Tools that fold the gain into the weights that follow show the value before it.",
            evidence=code.direct(f"{path}-normalized", "The output of the norm, gain included.", call) + definition,
            aliases=names(f"{lens}.hook_normalized" if lens else ""),
        ),
    )


def _reciprocal(eps: str) -> Callable[..., Any]:
    if eps == "norm_eps":
        return lambda x, norm_eps: (np.mean(x**2, axis=-1, keepdims=True) + norm_eps) ** -0.5
    return lambda x, latent_eps: (np.mean(x**2, axis=-1, keepdims=True) + latent_eps) ** -0.5


def _scaled(x: Array, reciprocal_rms: Array, gain: Array) -> Array:
    result: Array = x * reciprocal_rms * gain
    return result


def _offset_scaled(x: Array, reciprocal_rms: Array, gain: Array) -> Array:
    result: Array = x * reciprocal_rms * (1.0 + gain)
    return result


def block_norm(
    code: Code,
    leaf: str,
    letter: str,
    source: str,
    nth: int,
    module: str,
    *,
    texts: Texts | None = None,
    offset: bool = False,
    late_cast: bool = False,
    gguf: str = "",
    lens: str = "",
) -> tuple[Node, ...]:
    """One of a block's norms; `nth` counts what `hidden_states` is assigned in the block."""
    weight = f"model.layers.{{layer}}.{module}.weight"
    first = leaf == "attention-norm"
    lens = lens or ("ln1" if first else "ln2")
    return rms_norm(
        code,
        f"blocks/{leaf}",
        leaf.replace("-", " ").capitalize().replace("Feed forward", "Feed-forward"),
        letter,
        source,
        code.layer.assigns("hidden_states", nth=nth),
        code.at(f"{code.block}.__init__").assigns(f"self.{module}"),
        weight,
        weight_names(
            weight,
            f"blk.{{layer}}.{gguf or ('attn_norm' if first else 'ffn_norm')}.weight",
            f"blocks.{{layer}}.{lens}.w",
        ),
        texts or (ATTENTION_NORM if first else FEED_FORWARD_NORM),
        lens=f"blocks.{{layer}}.{lens}",
        offset=offset,
        late_cast=late_cast,
    )


def final_norm(code: Code, *, offset: bool = False, late_cast: bool = False) -> tuple[Node, ...]:
    """The norm after the last block."""
    return rms_norm(
        code,
        "final-norm",
        "Final norm",
        "f",
        "blocks/block-output",
        code.forward.assigns("hidden_states", nth=3),
        code.built.assigns("self.norm"),
        "model.norm.weight",
        weight_names("model.norm.weight", "output_norm.weight", "ln_final.w"),
        (
            "Normalise the stream once more before it is read out.",
            "Without it the size of the stream, which grows from block to block, would set how sure the model is.",
        ),
        lens="ln_final",
        offset=offset,
        late_cast=late_cast,
    )


def head_norm(
    code: Code, name: str, heads: str, call: Anchor, *, offset: bool = False, heads_second: bool = False
) -> tuple[Node, ...]:
    """The RMSNorm over each head of queries or of keys, one gain for all heads."""
    one, letter = ("query", "q") if name == "queries" else ("key", "k")
    weight = f"model.layers.{{layer}}.self_attn.{letter}_norm.weight"
    return rms_norm(
        code,
        f"{ATTENTION}/{one}-norm",
        f"{one.capitalize()} norm",
        letter,
        f"{ATTENTION}/{name}",
        call,
        code.at("Attention.__init__").assigns(f"self.{letter}_norm"),
        weight,
        weight_names(weight, f"blk.{{layer}}.attn_{letter}_norm.weight"),
        (
            f"Bring every {one} of every head to unit size.",
            "Over the features of one head, and with one gain for all heads. It bounds the products of queries and keys: "
            "without it a few heads of a long training run drift towards scores in the hundreds, where softmax is one-hot "
            "and bfloat16 has no digits left.",
        ),
        shape=("batch", heads, "positions", "head_dim") if heads_second else ("batch", "positions", heads, "head_dim"),
        width="head_dim",
        offset=offset,
    )


def layer_norm(
    code: Code,
    path: str,
    name: str,
    letter: str,
    source: str,
    call: Anchor,
    built: Anchor,
    weights: tuple[str, str],
    aliases: tuple[tuple[Alias, ...], tuple[Alias, ...]],
    texts: Texts,
    *,
    lens: str = "",
) -> tuple[Node, ...]:
    """One LayerNorm with gain and bias, as a single call of torch."""
    normalised = code.direct(f"{path}-normalize", "One call of LayerNorm.", call)
    where: tuple[Evidence, ...] = code.context(f"{path}-built", "A LayerNorm of its own, with gain and bias.", built)
    return (
        Component(
            path=path,
            name=name,
            description=texts[0],
            explanation=(
                "Layer normalisation (Ba, Kiros and Hinton, 2016): each position is centred, brought to unit variance, "
                "then stretched and shifted feature by feature. " + texts[1]
            ),
            evidence=where,
            module=weights[0].removesuffix(".weight"),
        ),
        Parameter(
            path=f"{path}/gain",
            name="Gain",
            symbol=rf"\gamma_{{\mathrm {letter}}}",
            shape=("d_model",),
            weight=weights[0],
            description="One learned factor a feature.",
            explanation="It can be folded into the weights that read the result, together with the bias.",
            evidence=where,
            aliases=aliases[0],
            built=built,
        ),
        Parameter(
            path=f"{path}/bias",
            name="Bias",
            symbol=rf"\beta_{{\mathrm {letter}}}",
            shape=("d_model",),
            weight=weights[1],
            description="One learned shift a feature.",
            explanation="Later models leave it out, and the subtraction of the mean with it (see RMSNorm).",
            evidence=where,
            aliases=aliases[1],
            built=built,
        ),
        Operation(
            path=f"{path}/normalize",
            name="Normalize",
            inputs=(Use(path=source, named="x"), "gain", "bias"),
            outputs=("normalized",),
            equation=(
                rf"<normalized> = \frac{{<{source}> - \mu}}{{\sqrt{{\sigma^2 + <#norm_eps>}}}} \odot <gain> + <bias>,"
                rf"\qquad \mu = \frac{{1}}{{<#d_model>}}\sum_i <{source}>_i,\quad "
                rf"\sigma^2 = \frac{{1}}{{<#d_model>}}\sum_i \left(<{source}>_i - \mu\right)^2"
            ),
            reference=_layer_normalized,
            description="Centre each position, bring it to unit variance, stretch and shift.",
            explanation=(
                "One fused call, so mean and variance are never stored. The variance is the population's, with the "
                "constant inside the root. Subtracting the mean removes one direction of the stream: what is written "
                "along the all-ones vector can never be read again."
            ),
            evidence=normalised + where,
        ),
        Tensor(
            path=f"{path}/normalized",
            name="Normalized features",
            symbol=rf"n_{{\mathrm {letter}}}",
            shape=STREAM,
            hook=call,
            description="The normalised copy of the residual stream, gain and bias included.",
            explanation="After gain and bias; TransformerLens folds both away by default and shows the value before them.",
            evidence=normalised + where,
            aliases=names(f"{lens}.hook_normalized" if lens else ""),
        ),
    )


def _layer_normalized(x: Array, gain: Array, bias: Array, norm_eps: float) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    result: Array = centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + norm_eps) * gain + bias
    return result
