"""Attention from projections to update, as `eager_attention_forward` of transformers computes it, in steps.

Functions that return nodes; what differs between models is an argument, down to the sentences that say why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from atlas.architectures._code import ATTENTION, SCORES, STREAM, Code, names, weight_names
from atlas.architectures._numeric import Array, contract, linear, shifted, softmax
from atlas.graph.anchors import Anchor, at
from atlas.graph.nodes import Alias, Cache, Component, Node, Operation, Parameter, Tensor, Use

EAGER = at("eager_attention_forward")
NORM = "blocks/attention-norm/normalized"
LOWEST = (
    "The mask holds zeros and the lowest finite number of the dtype, not minus infinity: it comes to the same after "
    "softmax, and a row in which everything is masked gives equal weights instead of no numbers at all."
)


def component(
    code: Code, explanation: str, description: str = "", module: str = "model.layers.{layer}.self_attn"
) -> Component:
    """Attention as a part of a block."""
    return Component(
        path=ATTENTION,
        name="Attention",
        description=description or "Each position collects values from the positions it attends to.",
        explanation=explanation,
        evidence=code.context("attention-call", "The block calls attention on normalised input.", code.layer),
        module=module,
    )


def projections(
    code: Code,
    group: int,
    *,
    bias: bool = False,
    sinks: bool = False,
    places: tuple[Anchor, Anchor, Anchor] | None = None,
    heads_second: bool = False,
    texts: tuple[str, str, str] | None = None,
) -> tuple[Node, ...]:
    """Queries, keys and values: a linear map each, cut into heads [batch, positions, heads, head_dim].

    `places` are where the three are cut; `heads_second`: with heads before positions there. `texts` explain the three,
    and `sinks` says whether weights over the keys sum to less than one.
    """
    source = NORM
    made = places or tuple(
        code.attend.assigns(name, nth=1).receiver for name in ("query_states", "key_states", "value_states")
    )
    shares = f"There are {group} times fewer heads of keys than of queries. " if group > 1 else ""
    texts = texts or (
        "Only the product of a query with a key has a meaning of its own: one may be multiplied by any invertible matrix if "
        "the other is multiplied by its inverse.",
        f"{shares}Not yet rotated; the cache keeps the rotated ones.",
        "Values are never rotated: what is handed over does not depend on where it came from.",
    )
    nodes: list[Node] = []
    for letter, name, one, heads, width, module, gguf, place, text in (
        ("Q", "queries", "query", "q_heads", "q_width", "q_proj", "attn_q", made[0], texts[0]),
        ("K", "keys", "key", "kv_heads", "kv_width", "k_proj", "attn_k", made[1], texts[1]),
        ("V", "values", "value", "kv_heads", "kv_width", "v_proj", "attn_v", made[2], texts[2]),
    ):
        built = code.at("Attention.__init__").assigns(f"self.{module}")
        claim = f"{name.capitalize()} are a linear map of the normalised features, cut into heads."
        evidence = code.direct(f"project-{name}", claim, place)
        weight = f"model.layers.{{layer}}.self_attn.{module}"
        inputs: list[str | Use] = [Use(path=source, named="normalized"), Use(path=f"{one}-weight", named="weight")]
        nodes.append(
            Parameter(
                path=f"{ATTENTION}/{one}-weight",
                name=f"{one.capitalize()} weight",
                symbol=rf"W_{{\mathrm {letter}}}",
                shape=(width, "d_model"),
                weight=f"{weight}.weight",
                description=f"Projects the normalised features to the {name} of all heads at once.",
                explanation="Stored [out, in], the heads one after another along the first axis.",
                evidence=code.context(f"{one}-weight", f"{module} is a linear map.", built),
                aliases=weight_names(
                    f"{weight}.weight", f"blk.{{layer}}.{gguf}.weight", f"blocks.{{layer}}.attn.W_{letter}"
                ),
                built=built,
                sharded=width,
            )
        )
        if bias:
            inputs.append(Use(path=f"{one}-bias", named="bias"))
            nodes.append(
                Parameter(
                    path=f"{ATTENTION}/{one}-bias",
                    name=f"{one.capitalize()} bias",
                    symbol=rf"b_{{\mathrm {letter}}}",
                    shape=(width,),
                    weight=f"{weight}.bias",
                    description=f"Added to the {name} of every position.",
                    explanation=_bias_text(name, sinks),
                    evidence=code.context(f"{one}-bias", f"{module} is built with a bias.", built),
                    aliases=weight_names(
                        f"{weight}.bias", f"blk.{{layer}}.{gguf}.bias", f"blocks.{{layer}}.attn.b_{letter}"
                    ),
                    built=built,
                    sharded=width,
                )
            )
        nodes += [
            Operation(
                path=f"{ATTENTION}/project-{name}",
                name=f"Project {name}",
                inputs=tuple(inputs),
                outputs=(name,),
                equation=rf"<{name}> = <{source}>\,<{one}-weight>^{{\top}}" + (rf" + <{one}-bias>" if bias else ""),
                reference=_projected(bias, heads_second),
                description=f"One matrix product gives the {name} of all heads.",
                explanation=(
                    ("" if bias else "No bias. ")
                    + "The result is cut into heads by a view: head j is the j-th slice of h features. In a decode step one "
                    "row is multiplied, so the time goes into reading the matrix."
                ),
                evidence=evidence,
            ),
            Tensor(
                path=f"{ATTENTION}/{name}",
                name=name.capitalize(),
                symbol=letter,
                shape=("batch", heads, "positions", "head_dim")
                if heads_second
                else ("batch", "positions", heads, "head_dim"),
                hook=place,
                description={
                    "queries": "What each position looks for, one vector a head.",
                    "keys": "What each position offers to be found by, one vector a key head.",
                    "values": "What each position hands over when it is attended to.",
                }[name],
                explanation=text,
                evidence=evidence,
                aliases=names(f"blocks.{{layer}}.attn.hook_{letter.lower()}", f"self_attn.{module} (output)"),
                sharded=heads,
            ),
        ]
    return tuple(nodes)


def _bias_text(name: str, sinks: bool) -> str:
    """What a bias is for. With `sinks` the weights over the keys sum to less than one."""
    return {
        "queries": "With it a query may ask for something whatever its token is: a fixed question of each head.",
        "keys": (
            "Rotated, a constant part of all keys becomes a preference for certain distances. Without rotation it would only "
            "raise or lower all keys against the sink."
            if sinks
            else "Before rotation a constant in all keys would change nothing, since softmax ignores what a whole row has in "
            "common; rotated, it becomes a preference for certain distances."
        ),
        "values": (
            "The mixture carries as much of it as the keys have of the weights: what the sink takes is missing here too, so a "
            "bias after mixing would not do the same."
            if sinks
            else "Weights sum to one, so the mixture carries it unchanged: the same could be said by a bias after mixing."
        ),
    }[name]


def _projected(bias: bool, heads_second: bool) -> Callable[..., Any]:
    def cut(flat: Array, head_dim: int) -> Array:
        heads = flat.reshape(*flat.shape[:2], -1, head_dim)
        return np.moveaxis(heads, 2, 1) if heads_second else heads

    if bias:
        return lambda normalized, weight, bias, head_dim: cut(shifted(normalized, weight, bias), head_dim)
    return lambda normalized, weight, head_dim: cut(linear(normalized, weight), head_dim)


def caches(
    code: Code,
    group: int,
    *,
    keys: str = "rotated-keys",
    values: str = "values",
    made: tuple[Anchor, Anchor] | None = None,
    heads_second: tuple[bool, bool] = (True, False),
    repeated: bool = True,
    window: int | None = None,
    everywhere: bool = True,
    why: str = "",
) -> tuple[Node, ...]:
    """The writes, the caches [batch, kv_heads, keys, head_dim], and their heads repeated for the queries.

    `heads_second` says of keys and of values whether they come in with their heads before their positions.
    """
    places = made or (code.attend.assigns("key_states", nth=3), code.attend.assigns("value_states", nth=2))
    nodes: list[Node] = []
    forgets = ""
    if window is not None:
        where = "" if everywhere else "In a local layer "
        start = "what" if not everywhere else "What"
        forgets = (
            f" {where}{start} is further back than {window - 1:,} positions is dropped after each pass, so the cache stops "
            "growing; a prefill still sees all of its own positions here, and the mask hides those out of reach."
        )
    for name, one, letter, source, place, second in (
        ("key", "keys", "K", keys, places[0], heads_second[0]),
        ("value", "values", "V", values, places[1], heads_second[1]),
    ):
        evidence = code.direct(f"write-{one}", f"This pass's {one} are put behind those of the passes before.", place)
        nodes += [
            Operation(
                path=f"{ATTENTION}/write-{one}",
                name=f"Write {one}",
                inputs=(Use(path=source, named="written"),),
                outputs=(f"{name}-cache",),
                equation=rf"<{name}-cache> = \left[\,\text{{before}};\ <{source}>\,\right]",
                reference=_appended(second),
                description=f"Put this pass's {one} behind those of the passes before.",
                explanation=(
                    "The cache is a new, longer tensor after every pass, not a buffer that is written in place. Without it "
                    "each step would compute the keys and values of all positions again." + why
                ),
                evidence=evidence,
            ),
            Cache(
                path=f"{ATTENTION}/{name}-cache",
                name=f"{name.capitalize()} cache",
                symbol=rf"{letter}_{{\mathrm c}}",
                shape=("batch", "kv_heads", "keys", "head_dim"),
                hook=place,
                description=f"The {one} of every position so far, this pass's included.",
                explanation=(
                    "As attention reads it, after this pass's write. In *full sequence* it holds this pass alone."
                    + forgets
                ),
                evidence=evidence,
                aliases=(Alias(name=f"cache.layers[{{layer}}].{one}", of="Hugging Face"),),
                sharded="kv_heads",
            ),
        ]
        if not repeated:
            continue
        spread = EAGER.assigns(f"{name}_states")
        lines = code.direct(f"repeat-{one}", "Each head is repeated for the query heads that share it.", spread)
        lines += code.context("repeat-kv", "Repeated in place, head by head, not tiled.", at("repeat_kv"))
        nodes += [
            Operation(
                path=f"{ATTENTION}/repeat-{one}",
                name=f"Repeat {one}",
                inputs=(Use(path=f"{name}-cache", named="cache"),),
                outputs=(f"repeated-{one}",),
                equation=rf"<repeated-{one}>_{{j,u}} = <{name}-cache>_{{\lfloor j / <#group> \rfloor,\,u}}",
                reference=lambda cache, group: np.repeat(cache, group, axis=1),
                description="Give every query head a head to read.",
                explanation=(
                    f"Query head j reads head floor(j / {group}): each is repeated {group} times in place, not tiled. Nothing "
                    "is learned here, and fast kernels skip the copy."
                    if group > 1
                    else "One head a query head: nothing is repeated, and the code hands its argument on."
                ),
                evidence=lines,
            ),
            Tensor(
                path=f"{ATTENTION}/repeated-{one}",
                name=f"Repeated {one}",
                symbol=rf"\bar {letter}",
                shape=("batch", "q_heads", "keys", "head_dim"),
                hook=spread,
                description=f"The cached {one}, one head for each query head.",
                explanation=f"Numbers as in the cache; {group} heads at a time are equal."
                if group > 1
                else "Equal to the cache.",
                evidence=lines,
                sharded="q_heads",
            ),
        ]
    return tuple(nodes)


def _appended(heads_second: bool) -> Callable[..., Any]:
    if heads_second:
        return lambda before, written: np.concatenate([before, written], axis=2)
    return lambda before, written: np.concatenate([before, np.moveaxis(written, 1, 2)], axis=2)


def scores(
    code: Code,
    *,
    queries: str = "rotated-queries",
    keys: str = "repeated-keys",
    masks: tuple[Use, ...] = (Use(path="causal-mask", named="mask"),),
    masked_as: int = 2,
    factor: str = r"\frac{1}{\sqrt{<#head_dim>}}",
    reference: Callable[..., Any] = lambda similarities, head_dim: similarities / head_dim**0.5,
    why: str = "",
) -> tuple[Node, ...]:
    """Similarities, scaled, and masked. `masked_as` counts the assignments of `attn_weights`."""
    scaled, masked = EAGER.assigns("attn_weights", nth=1), EAGER.assigns("attn_weights", nth=masked_as)
    compared = code.direct("attn-similarity", "Every query with every key, head by head.", scaled.left)
    scaling = code.direct("attn-scale", "The products are multiplied by the scaling factor.", scaled)
    masking = code.direct("attn-mask", "The mask is added.", masked)
    shown = masks[0].path
    return (
        Operation(
            path=f"{ATTENTION}/compare",
            name="Compare queries with keys",
            inputs=(Use(path=queries, named="queries"), Use(path=keys, named="keys")),
            outputs=("similarities",),
            equation=rf"<similarities> = <{queries}>\,<{keys}>^{{\top}}",
            reference=lambda queries, keys: contract("b n t h, b n u h -> b n t u", queries, keys),
            description="The dot product of every query with every key.",
            explanation=(
                "The part whose cost grows with the square of the context in a prefill, and in proportion to it in a decode "
                "step. The eager code stores the whole table; fused kernels compute it in pieces and never do."
            ),
            evidence=compared,
        ),
        Tensor(
            path=f"{ATTENTION}/similarities",
            name="Similarities",
            symbol="S",
            shape=SCORES,
            hook=scaled.left,
            description="How well each query matches each key, before scaling.",
            explanation="Those that the mask will hide are computed too. Only differences within a row matter.",
            evidence=compared,
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/scale-similarities",
            name="Scale similarities",
            inputs=("similarities",),
            outputs=("scaled-similarities",),
            equation=rf"<scaled-similarities> = {factor}\,<similarities>",
            reference=reference,
            description="Hold the size of what enters softmax steady, whatever the head width.",
            explanation=why
            or (
                "A dot product of two vectors of h independent features of unit variance has variance h; dividing by its root "
                "brings it back to 1. Without that, wide heads would push softmax towards one-hot weights, where gradients "
                "vanish."
            ),
            evidence=scaling,
        ),
        Tensor(
            path=f"{ATTENTION}/scaled-similarities",
            name="Scaled similarities",
            symbol=r"S_{\mathrm s}",
            shape=SCORES,
            hook=scaled,
            description="Similarities after scaling; not yet masked.",
            explanation="In the model's own dtype. Often called scores or attention logits.",
            evidence=scaling,
            aliases=names("blocks.{layer}.attn.hook_attn_scores", "", "TransformerLens shows them after masking"),
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/apply-mask",
            name="Apply the mask",
            inputs=("scaled-similarities", *masks),
            outputs=("masked-similarities",),
            equation=rf"<masked-similarities> = <scaled-similarities> + <{shown}>"
            + "".join(rf"\ \text{{or}}\ <{use.path}>" for use in masks[1:]),
            reference=lambda scaled_similarities, mask: scaled_similarities + mask,
            description="Add a number too low to matter wherever a query may not look.",
            explanation=f"{LOWEST} In a decode step the mask is there too, and hides nothing that is in the cache.",
            evidence=masking,
        ),
        Tensor(
            path=f"{ATTENTION}/masked-similarities",
            name="Masked similarities",
            symbol=r"S_{\mathrm m}",
            shape=SCORES,
            hook=masked,
            description="Scaled similarities, beyond all reach where a query may not look.",
            explanation="The masked entries are finite numbers near -3.4e38, so they dominate statistics of the whole.",
            evidence=masking,
            aliases=names("blocks.{layer}.attn.hook_attn_scores"),
            sharded="q_heads",
        ),
    )


def weights(code: Code, *, where: int = 3, upcast: bool = True) -> tuple[Node, ...]:
    """Softmax over keys. `where` counts the assignments of `attn_weights`."""
    soft = EAGER.assigns("attn_weights", nth=where)
    evidence = code.direct("attn-softmax", "Softmax along the keys.", soft)
    return (
        Operation(
            path=f"{ATTENTION}/softmax",
            name="Softmax over keys",
            inputs=(Use(path="masked-similarities", named="x"),),
            outputs=("attention-weights",),
            equation=(
                r"<attention-weights>_{t,u} = \frac{e^{\,<masked-similarities>_{t,u}}}{\sum_{v} e^{\,<masked-similarities>_{t,v}}}"
            ),
            reference=softmax,
            description="Turn each query's similarities into weights that sum to one.",
            explanation=(
                ("Taken in float32 and cast back. " if upcast else "Taken in the model's own dtype. ")
                + "The weights must go somewhere: where nothing matches, trained models learn to park them on the first token."
            ),
            evidence=evidence,
        ),
        _weights(code, soft, "Each row sums to one."),
    )


def _weights(code: Code, hook: Anchor, sums: str) -> Tensor:
    return Tensor(
        path=f"{ATTENTION}/attention-weights",
        name="Attention weights",
        symbol="A",
        shape=SCORES,
        hook=hook,
        description="For each head and query, how its attention is divided over the keys.",
        explanation=(
            f"{sums} A large weight says that a value is read, not that it matters: the value may be small, or the output "
            "projection may ignore it."
        ),
        evidence=code.direct("attention-weights", "The weights by which values are mixed.", hook),
        aliases=names("blocks.{layer}.attn.hook_pattern", "attentions[{layer}]"),
        sharded="q_heads",
    )


def mixing(
    code: Code,
    *,
    values: str = "repeated-values",
    head: str = "head_dim",
    width: str = "q_width",
    merged: Anchor | None = None,
) -> tuple[Node, ...]:
    """Values mixed by the weights, and the heads put side by side."""
    mixed = EAGER.assigns("attn_output", nth=1)
    side = merged or code.attend.assigns("attn_output", nth=2)
    mix = code.direct("attn-mix", "The weights of each query times the values.", mixed)
    merge = code.direct("attn-merge", "Heads are put side by side.", side)
    merge += code.context("attn-transpose", "Positions before heads again.", EAGER.assigns("attn_output", nth=2))
    return (
        Operation(
            path=f"{ATTENTION}/mix-values",
            name="Mix values",
            inputs=("attention-weights", Use(path=values, named="values")),
            outputs=("head-outputs",),
            equation=rf"<head-outputs> = <attention-weights>\,<{values}>",
            reference=lambda attention_weights, values: contract(
                "b n t u, b n u h -> b n t h", attention_weights, values
            ),
            description="The values, weighed, for each head and query.",
            explanation=(
                "No weight is negative: the result lies between the values (and the origin, where the weights sum to less "
                "than one), and a head that attends to one key copies its value."
            ),
            evidence=mix,
        ),
        Tensor(
            path=f"{ATTENTION}/head-outputs",
            name="Head outputs",
            symbol="Z",
            shape=("batch", "q_heads", "queries", head),
            hook=mixed,
            description="What each head has collected, before the heads are joined.",
            explanation="Up to here everything happens in each head alone.",
            evidence=mix,
            aliases=names("blocks.{layer}.attn.hook_z", "", "[batch, query, head, feature] in TransformerLens"),
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/merge-heads",
            name="Merge heads",
            inputs=("head-outputs",),
            outputs=("merged-heads",),
            equation=r"<merged-heads>_{t,\,jh+i} = <head-outputs>_{j,t,i}",
            reference=lambda head_outputs: np.moveaxis(head_outputs, 1, 2).reshape(
                head_outputs.shape[0], head_outputs.shape[2], -1
            ),
            description="Put the heads side by side.",
            explanation="Moves numbers and computes nothing. Head j fills features jh to jh + h - 1.",
            evidence=merge,
        ),
        Tensor(
            path=f"{ATTENTION}/merged-heads",
            name="Merged heads",
            symbol=r"Z_{\mathrm m}",
            shape=("batch", "positions", width),
            hook=side,
            description="All heads of a position in one vector.",
            explanation="Its width is q heads x head dim, which need not be that of the stream.",
            evidence=merge,
            aliases=names("", "self_attn.o_proj (input)"),
            sharded=width,
        ),
    )


def output(code: Code, *, bias: bool = False, width: str = "q_width", made: Anchor | None = None) -> tuple[Node, ...]:
    """The output projection."""
    update = made or code.attend.assigns("attn_output", nth=3)
    built = code.at("Attention.__init__").assigns("self.o_proj")
    weight = "model.layers.{layer}.self_attn.o_proj"
    evidence = code.direct("attn-update", "The output projection of the merged heads.", update)
    inputs = [Use(path="merged-heads", named="x"), Use(path="output-weight", named="weight")]
    nodes: list[Node] = [
        Parameter(
            path=f"{ATTENTION}/output-weight",
            name="Output weight",
            symbol=r"W_{\mathrm O}",
            shape=("d_model", width),
            weight=f"{weight}.weight",
            description="Maps the merged heads back to model width.",
            explanation="Its columns fall into heads, so the product is a sum over heads: each writes to the stream on its own.",
            evidence=code.context("output-weight", "o_proj is a linear map.", built),
            aliases=weight_names(f"{weight}.weight", "blk.{layer}.attn_output.weight", "blocks.{layer}.attn.W_O"),
            built=built,
            sharded=width,
        )
    ]
    if bias:
        inputs.append(Use(path="output-bias", named="bias"))
        nodes.append(
            Parameter(
                path=f"{ATTENTION}/output-bias",
                name="Output bias",
                symbol=r"b_{\mathrm O}",
                shape=("d_model",),
                weight=f"{weight}.bias",
                description="Added to the update of every position.",
                explanation="What a layer writes whatever it has read.",
                evidence=code.context("output-bias", "o_proj is built with a bias.", built),
                aliases=weight_names(f"{weight}.bias", "blk.{layer}.attn_output.bias", "blocks.{layer}.attn.b_O"),
                built=built,
            )
        )
    nodes += [
        Operation(
            path=f"{ATTENTION}/output-projection",
            name="Output projection",
            inputs=tuple(inputs),
            outputs=("attention-update",),
            equation=r"<attention-update> = <merged-heads>\,<output-weight>^{\top}"
            + (" + <output-bias>" if bias else ""),
            reference=shifted if bias else linear,
            description="Write what the heads have collected in the language of the residual stream.",
            explanation="A sum of one term a head, which is what makes it possible to ask how much a single head added.",
            evidence=evidence,
        ),
        update_tensor(code, update, evidence_key="attn-update"),
    ]
    return tuple(nodes)


def update_tensor(code: Code, hook: Anchor, *, evidence_key: str, normed: bool = False) -> Tensor:
    """What attention adds to the stream, or hands to a norm that comes before the sum."""
    return Tensor(
        path=f"{ATTENTION}/attention-update",
        name="Attention update",
        symbol=r"\Delta_{\mathrm{attn}}",
        shape=STREAM,
        hook=hook,
        description=(
            "What attention gives, before it is normalised and added."
            if normed
            else "What attention adds to the stream."
        ),
        explanation="An addition, not a replacement: the stream before it is kept.",
        evidence=code.direct(evidence_key, "The output projection of the merged heads.", hook),
        aliases=names("blocks.{layer}.hook_attn_out", "self_attn (output)"),
    )
