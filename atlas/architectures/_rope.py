"""Rotary positions as models of transformers compute them: cosines and sines once a pass, halves of a head as pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from atlas.architectures._code import ATTENTION, Code, names
from atlas.architectures._numeric import Array
from atlas.graph.anchors import Anchor, at
from atlas.graph.evidence import Evidence
from atlas.graph.nodes import Component, Node, Operation, Tensor, Use

HALVES = (
    "Feature i of a head is paired with feature i + h/2. Meta's code pairs neighbours; Hugging Face permutes the rows of "
    "query and key weights when it converts a model, so both give the same products of queries and keys."
)


@dataclass(frozen=True)
class Law:
    """How the frequencies follow from the configuration."""

    equation: str
    reference: Callable[..., Any]
    explanation: str
    evidence: tuple[Evidence, ...] = ()


def position_ids(code: Code) -> tuple[Node, ...]:
    """The numbers of this pass's positions."""
    made = code.forward.assigns("position_ids", nth=2)
    counted = code.direct(
        "position-ids", "A range that goes on where the cache ends.", code.forward.assigns("position_ids", nth=1), made
    )
    return (
        Operation(
            path="number-positions",
            name="Number the positions",
            inputs=(Use(path="token-ids", lends=True),),
            outputs=("position-ids",),
            equation=r"<position-ids>_t = t_0 + t",
            reference=lambda start_pos, positions: start_pos + np.arange(positions)[None],
            description="Count on from the positions that are in the cache.",
            explanation=(
                r"$t_0$ is the number of positions before this pass: 0 in a prefill, the length so far in a decode step. "
                "Only how many tokens there are is used, not which."
            ),
            evidence=counted,
        ),
        Tensor(
            path="position-ids",
            name="Position ids",
            symbol=r"\mathbf{p}",
            shape=("one", "positions"),
            hook=made,
            description="Where each token of this pass stands in the sequence, from 0.",
            explanation=(
                "One row for the whole batch. Where sequences of a batch are padded to one length, the caller has to give "
                "other numbers; nothing else in the code knows about padding but the mask."
            ),
            evidence=counted,
            aliases=names("", "position_ids"),
        ),
    )


def rotary(
    code: Code,
    *,
    path: str = "rotary",
    name: str = "Rotary positions",
    letter: str = "",
    theta: str = "rope_theta",
    kind: str = "",
    law: Law | None = None,
    folded: bool = False,
    amplitude: str = "",
    head: str = "head_dim",
    why: str = "",
) -> tuple[Node, ...]:
    """Frequencies, angles, cosines and sines, for the features of the axis `head`.

    `kind` picks one kind of layer where the code loops over them. `law` gives the frequencies where they are not plain
    powers of theta. `folded`: one cosine a pair, where others repeat it for both halves. `amplitude` names the setting
    that cosines and sines are multiplied by, if any.
    """

    def picked(anchor: Anchor) -> Anchor:
        return anchor.where("layer_type", kind) if kind else anchor

    inner = code.at("RotaryEmbedding.forward")
    plain = code.at("RotaryEmbedding.compute_default_rope_parameters").assigns("inv_freq")
    built = code.at("RotaryEmbedding.__init__")
    if kind:
        plain = picked(built.assigns("curr_inv_freq"))
    elif law is not None:
        plain = built.assigns("inv_freq")
    angles, cosines, sines = (picked(inner.assigns("freqs")), picked(inner.returns()[0]), picked(inner.returns()[1]))
    table = code.context(
        "rotary-table", "Frequencies from theta, then angles, cosines and sines.", built.through(inner)
    )
    width = "pairs" if folded else head
    scaled = rf" \cdot <#{amplitude}>" if amplitude else ""
    omega = rf"\omega_{{\mathrm {letter}}}" if letter else r"\omega"
    used, made = "inverse-frequencies", law or plain_law(theta)
    set_here = (
        code.direct(f"{path}-frequencies", "Computed once, as the model is built.", plain) + table + made.evidence
    )
    nodes: list[Node] = [
        Component(
            path=path,
            name=name,
            description="The angles by which queries and keys are turned, as cosines and sines.",
            explanation=(
                "Rotary position embedding (Su et al., 2021) turns each pair of features of a query and of a key by an "
                "angle in proportion to its position, so that their product depends on how far apart they stand. Computed "
                "once a pass and handed to every block. " + why
            ).strip(),
            evidence=table,
            module="model.rotary_emb",
        ),
        Operation(
            path=f"{path}/set-frequencies",
            name="Set the frequencies",
            inputs=(),
            outputs=(used,),
            equation=made.equation,
            reference=made.reference,
            description="How fast each pair of features turns: from the configuration alone.",
            explanation=made.explanation,
            evidence=set_here,
        ),
        Tensor(
            path=f"{path}/{used}",
            name="Inverse frequencies",
            symbol=omega,
            shape=("pairs",),
            hook=plain,
            when="build",
            description="The angle, in radians a position, by which each pair of features turns.",
            explanation=(
                "Pair 0 turns by one radian a position; the last hardly moves over the whole context. Fast pairs tell "
                "neighbours apart, slow ones let contents be compared at any distance. The name is historical: these are "
                "frequencies, the inverses of wavelengths."
            ),
            evidence=set_here,
            aliases=names("", "rotary_emb.inv_freq"),
        ),
    ]
    reference: Callable[..., Any] = lambda position_ids, frequencies: position_ids[..., None] * frequencies  # noqa: E731
    nodes += [
        Operation(
            path=f"{path}/turn",
            name="Multiply positions by frequencies",
            inputs=("position-ids", Use(path=used, named="frequencies")),
            outputs=("angles",),
            equation=rf"<angles>_{{t,i}} = <position-ids>_t\,<{used}>_i",
            reference=reference,
            description="An angle for each position and pair.",
            explanation=(
                "In float32 whatever the model's dtype: at position 100,000 a bfloat16 angle would be wrong by many turns."
            ),
            evidence=code.direct(f"{path}-turn", "Positions times frequencies, in float32.", angles) + table,
        ),
        Tensor(
            path=f"{path}/angles",
            name="Angles",
            symbol=rf"\phi_{{\mathrm {letter}}}" if letter else r"\phi",
            shape=("one", "positions", "pairs"),
            hook=angles,
            description="How far each pair of features is turned at each position, in radians.",
            explanation="Not reduced to one turn: the cosine does that.",
            evidence=code.direct(f"{path}-angles", "Positions times frequencies, in float32.", angles) + table,
        ),
        Operation(
            path=f"{path}/rotate",
            name="Cosines and sines",
            inputs=("angles",),
            outputs=("cosines", "sines"),
            equation=(
                rf"<cosines>_{{t,i}} = \cos <angles>_{{t,\,i \bmod h/2}}{scaled},\qquad "
                rf"<sines>_{{t,i}} = \sin <angles>_{{t,\,i \bmod h/2}}{scaled}"
                if not folded
                else rf"<cosines>_{{t,i}} = \cos <angles>_{{t,i}}{scaled},\qquad <sines>_{{t,i}} = \sin <angles>_{{t,i}}{scaled}"
            ),
            reference=_circle(folded, amplitude),
            description="What a rotation by each angle needs.",
            explanation=(
                "One for each pair of features."
                if folded
                else "Written out for both features of a pair, the halves alike, so that one product serves a whole head."
            )
            + (
                " Both are made longer by one factor, so queries and keys grow and attention sharpens; that goes with a "
                "context stretched beyond the one first trained on."
                if amplitude
                else ""
            ),
            evidence=code.direct(f"{path}-rotate", "Cosine and sine, cast to the model's dtype.", cosines, sines)
            + table,
        ),
        Tensor(
            path=f"{path}/cosines",
            name="Cosines",
            symbol=rf"C_{{\mathrm {letter}}}" if letter else "C",
            shape=("one", "positions", width),
            hook=cosines,
            description="Cosines of the angles of this pass's positions.",
            explanation="A decode step has a single row. One copy serves all layers, heads and sequences of the batch.",
            evidence=code.direct(f"{path}-cosines", "The cosines are returned.", cosines) + table,
            aliases=names("", "position_embeddings[0]"),
        ),
        Tensor(
            path=f"{path}/sines",
            name="Sines",
            symbol=rf"\Sigma_{{\mathrm {letter}}}" if letter else r"\Sigma",
            shape=("one", "positions", width),
            hook=sines,
            description="Sines of the angles of this pass's positions.",
            explanation="Zero in the row of position 0: the first token's queries and keys are not turned at all.",
            evidence=code.direct(f"{path}-sines", "The sines are returned.", sines) + table,
            aliases=names("", "position_embeddings[1]"),
        ),
    ]
    return tuple(nodes)


def plain_law(theta: str) -> Law:
    """Powers of theta, as Su et al. (2021) have them."""

    def powers(base: float, pairs: int) -> Array:
        result: Array = base ** (-np.arange(pairs) / pairs)
        return result

    return Law(
        equation=rf"<inverse-frequencies>_i = \theta^{{-2i/h}},\qquad \theta = <#{theta}>,\ h = 2 \cdot <#pairs>",
        reference=(
            (lambda rope_theta, pairs: powers(rope_theta, pairs))
            if theta == "rope_theta"
            else (lambda rope_local_theta, pairs: powers(rope_local_theta, pairs))
        ),
        explanation=(
            "A geometric series from one radian a position to nearly one in theta positions. A larger theta slows all pairs but "
            "the first, for contexts that are longer."
        ),
    )


def _circle(folded: bool, amplitude: str) -> Callable[..., Any]:
    def both(angles: Array, factor: float) -> tuple[Array, Array]:
        every = angles if folded else np.concatenate([angles, angles], axis=-1)
        return np.cos(every) * factor, np.sin(every) * factor

    if amplitude:
        return lambda angles, rope_amplitude: both(angles, rope_amplitude)
    return lambda angles: both(angles, 1.0)


def rotations(
    code: Code,
    *,
    queries: str = "queries",
    keys: str = "keys",
    tables: tuple[Use, ...] = (
        Use(path="rotary/cosines", named="cosines"),
        Use(path="rotary/sines", named="sines"),
    ),
    made: tuple[Anchor, Anchor] | None = None,
    heads_second: bool = False,
    folded: bool = False,
    definition: Anchor | None = None,
) -> tuple[Node, ...]:
    """Queries and keys turned. `heads_second`: what comes in has its heads before its positions already.

    `made` is where the two come to be. The tables of cosines and sines come first (cosines), then second (sines).
    """
    whole = definition or at("apply_rotary_pos_emb")
    places = made or (whole.assigns("q_embed"), whole.assigns("k_embed"))
    cos, sin = tables[0].path, tables[1].path
    others = "".join(
        rf"\quad \text{{({table.layers.name} layers: }} <{table.path}>, <{other.path}>\text{{)}},"
        for table, other in zip(tables[2::2], tables[3::2], strict=True)
        if table.layers is not None
    )
    nodes: list[Node] = []
    for name, one, letter, source, heads, place, lens in (
        ("queries", "query", "Q", queries, "q_heads", places[0], "q"),
        ("keys", "key", "K", keys, "kv_heads", places[1], "k"),
    ):
        evidence = code.direct(
            f"rotate-{name}", "Each feature times its cosine, plus its partner times the sine.", place
        ) + code.context("apply-rotary", "Halves of a head are paired, and the first half's partner is negated.", whole)
        partner, at_pair = rf"<{source}>_{{t,\,(i + h/2) \bmod h}}", r"i \bmod h/2" if folded else "i"
        nodes += [
            Operation(
                path=f"{ATTENTION}/rotate-{name}",
                name=f"Rotate {name}",
                inputs=(Use(path=source, named="x"), *tables),
                outputs=(f"rotated-{name}",),
                equation=(
                    rf"<rotated-{name}>_{{t,i}} = <{source}>_{{t,i}}\,<{cos}>_{{t,\,{at_pair}}} "
                    rf"\pm {partner}\,<{sin}>_{{t,\,{at_pair}}},{others}"
                    r"\qquad \pm = \begin{cases} - & i < h/2 \\ + & i \ge h/2 \end{cases}"
                ),
                reference=_turned(heads_second),
                description=f"Turn each pair of features of each {one} by the angle of its position.",
                explanation=f"{HALVES} The length of a {one} does not change.",
                evidence=evidence,
            ),
            Tensor(
                path=f"{ATTENTION}/rotated-{name}",
                name=f"Rotated {name}",
                symbol=rf"{letter}_{{\mathrm r}}",
                shape=("batch", heads, "positions", "head_dim"),
                hook=place,
                description=f"{name.capitalize()} with their position in them.",
                explanation=(
                    "The product of a rotated query with a rotated key depends on their contents and on the distance "
                    "between them, and on nothing else."
                ),
                evidence=evidence,
                aliases=names(f"blocks.{{layer}}.attn.hook_rot_{lens}", "", "[batch, position, head, feature]"),
                sharded=heads,
            ),
        ]
    return tuple(nodes)


def _turned(heads_second: bool) -> Callable[..., Any]:
    def turned(x: Array, cosines: Array, sines: Array) -> Array:
        placed = x if heads_second else np.moveaxis(x, 1, 2)
        half = placed.shape[-1] // 2
        first, second = placed[..., :half], placed[..., half:]
        cos, sin = cosines[:, None, :, :half], sines[:, None, :, :half]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    return turned
