"""Llama: pre-normalised decoder with rotary positions, grouped-query attention and a SwiGLU feed-forward network.

Declared from `models/llama3/model.py` of meta-llama/llama-models, which also runs it, and cited in the earlier
`llama/model.py` of meta-llama/llama3. Row vectors; weights are stored [out, in].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from atlas.architectures._numeric import Array, contract, silu, softmax
from atlas.graph.anchors import Anchor, at
from atlas.graph.axes import View
from atlas.graph.evidence import Evidence, EvidenceKind, SourceRef
from atlas.graph.nodes import (
    Alias,
    Architecture,
    Cache,
    Component,
    Node,
    Operation,
    Parameter,
    Reference,
    Tensor,
    Use,
)

ID = "llama"
RUNS = SourceRef(source="llama-models", path="models/llama3/model.py")
EARLIER = SourceRef(source="llama3", path="llama/model.py")
Config = Mapping[str, int | float | bool | None]

ATTENTION, FEED_FORWARD = "blocks/attention", "blocks/feed-forward"
FORWARD, BLOCK, ATTEND = at("Transformer.forward"), at("TransformerBlock.forward"), at("Attention.forward")
SWIGLU, NORM = at("FeedForward.forward"), at("RMSNorm.forward")
RESIDUALS = (
    at("TransformerBlock.__init__").assigns("self.attention_norm").through(at("TransformerBlock.forward").returns())
)
STREAM = ("batch", "positions", "d_model")
SCORES = ("batch", "q_heads", "queries", "keys")
SEVERAL: tuple[View, ...] = ("full", "prefill")
NO_MASK = (
    "The reference builds a mask only where a pass has more than one position. A single query may attend to "
    "every key in the cache, so there is nothing to hide."
)


def d_mlp(dim: int, multiple_of: int, multiplier: float | None) -> int:
    """The hidden width of the feed-forward network, as `FeedForward.__init__` rounds it.

    Two thirds of 4 dim (the third matrix of a gated unit is paid for by narrower ones), times the multiplier,
    up to a multiple of `multiple_of`.
    """
    width = int(2 * (4 * dim) / 3)
    if multiplier is not None:
        width = int(multiplier * width)
    return multiple_of * ((width + multiple_of - 1) // multiple_of)


def sizes(config: Config) -> dict[str, int]:
    """The fixed axes, from Meta's configuration names (dim, n_layers, n_heads, n_kv_heads, vocab_size, ...)."""
    dim, heads, kv_heads = (
        int(config["dim"] or 0),
        int(config["n_heads"] or 0),
        int(config["n_kv_heads"] or 0),
    )
    multiplier = config.get("ffn_dim_multiplier")
    head_dim = dim // heads
    return {
        "layers": int(config["n_layers"] or 0),
        "d_model": dim,
        "q_heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "d_mlp": d_mlp(dim, int(config["multiple_of"] or 1), None if multiplier is None else float(multiplier)),
        "vocab": int(config["vocab_size"] or 0),
        "pairs": head_dim // 2,
        "one": 1,
        "q_width": heads * head_dim,
        "kv_width": kv_heads * head_dim,
    }


def declare(config: Config) -> Architecture:
    """The whole declaration for one configuration (`use_scaled_rope` decides whether frequencies are scaled)."""
    scaled = bool(config.get("use_scaled_rope"))
    fixed = sizes(config)
    group = fixed["q_heads"] // fixed["kv_heads"]
    return Architecture(
        id=ID,
        name="Llama",
        kind="Dense decoder",
        attention="Grouped-query attention" if group > 1 else "Multi-head attention",
        summary=(
            "A stack of identical blocks reads and writes one residual stream. Each block adds two updates to it: "
            "attention, which moves information between positions, and a gated feed-forward network, which works "
            "on each position alone. Both read a normalised copy of the stream, so the stream itself is only ever "
            "added to. Positions enter as rotations of queries and keys, and several query heads share each pair "
            "of key and value heads, which is what keeps the cache small. The last normalised features are "
            "compared with one learned direction a token, and the result scores every token as the next."
        ),
        reference=Reference(runner="llama", file=RUNS, block="TransformerBlock", forward="Transformer.forward"),
        nodes=(
            *_embedding(),
            *_rotary(scaled),
            *_mask(),
            *_block(),
            *_attention(group),
            *_feed_forward(),
            *_unembedding(),
        ),
        sizes=fixed,
        settings={
            "norm_eps": config.get("norm_eps"),
            "rope_theta": config.get("rope_theta"),
            "use_scaled_rope": scaled,
            "group": group,
            **({"rope_factor": 8, "old_context": 8192, "low_factor": 1, "high_factor": 4} if scaled else {}),
        },
        loops=(("blocks/block-output", "blocks/block-input"),),
        enters=(("embedding/embedded", "blocks/block-input"),),
    )


# --- evidence and aliases, said shortly


def _cited(
    key: str, claim: str, *anchors: Anchor, earlier: bool = True, kind: EvidenceKind = "direct"
) -> tuple[Evidence, ...]:
    """The same claim in the file that runs and, where its lines are locked, in the earlier one."""
    ours = Evidence(id=key, kind=kind, claim=claim, file=RUNS, anchors=anchors)
    if not earlier:
        return (ours,)
    return (ours, Evidence(id=f"{key}-llama3", kind=kind, claim=claim, file=EARLIER, anchors=anchors))


def _context(key: str, claim: str, *anchors: Anchor, earlier: bool = True) -> tuple[Evidence, ...]:
    return _cited(key, claim, *anchors, earlier=earlier, kind="contextual")


def _hook_names(lens: str = "", hugging_face: str = "", layout: str = "") -> tuple[Alias, ...]:
    """Names in TransformerLens and in Hugging Face's implementation."""
    found = []
    if lens:
        found.append(Alias(name=lens, of="TransformerLens", layout=layout))
    if hugging_face:
        found.append(Alias(name=hugging_face, of="Hugging Face"))
    return tuple(found)


def _weight_names(meta: str, hugging_face: str, gguf: str, lens: str = "", permuted: bool = False) -> tuple[Alias, ...]:
    layout = "rows permuted: row 2i + j of a head here is row j h/2 + i there" if permuted else ""
    names = [
        Alias(name=meta, of="Meta"),
        Alias(name=hugging_face, of="Hugging Face", layout=layout),
        Alias(name=gguf, of="GGUF"),
    ]
    if lens:
        names.append(Alias(name=lens, of="TransformerLens", layout="transposed, and one matrix a head"))
    return tuple(names)


BLOCK_RESIDUALS = _context(
    "block-residuals",
    "Each of two separately normalised branches is added to its own residual input.",
    RESIDUALS,
)
MODEL = _context(
    "model",
    "Embedding and unembedding are separate modules, the blocks are built one by one, and a last RMSNorm precedes "
    "the logits.",
    at("Transformer.__init__")
    .assigns("self.tok_embeddings")
    .through(at("Transformer.__init__").assigns("self.output")),
    FORWARD.loop().through(FORWARD.returns()),
)


# --- the parts, in order of data flow


def _embedding() -> tuple[Node, ...]:
    built = at("Transformer.__init__").assigns("self.tok_embeddings")
    made = FORWARD.assigns("h", nth=1)
    claim = "Each token id picks one row of the embedding matrix."
    return (
        Tensor(
            path="token-ids",
            name="Token ids",
            symbol=r"\mathbf{t}",
            shape=("batch", "positions"),
            hook=FORWARD.argument("tokens"),
            description="The tokens of this pass, as rows of the vocabulary.",
            explanation=(
                "The tokenizer cuts text into pieces that it knows and numbers them. The numbers carry no order or "
                "distance: 504 is not nearer to 505 than to 40,000. In decode there is one, the token chosen last."
            ),
            evidence=_cited(
                "token-ids", "The forward pass takes token ids.", FORWARD.argument("tokens"), earlier=False
            ),
            aliases=_hook_names("tokens", "input_ids"),
        ),
        Component(
            path="embedding",
            name="Embedding",
            description="One learned vector a token: where the residual stream begins.",
            explanation=(
                "A look-up, not a computation: no multiplication, and only the rows that are asked for are read. "
                "Llama does not scale the result, unlike Gemma or the original transformer."
            ),
            evidence=_context("embedding-built", "The embedding is a table of vocab_size rows.", built),
            module="tok_embeddings",
        ),
        Parameter(
            path="embedding/weight",
            name="Embedding matrix",
            symbol=r"W_{\mathrm E}",
            shape=("vocab", "d_model"),
            weight="tok_embeddings.weight",
            description="One row of model width for each token.",
            explanation=(
                "Where embedding and unembedding are tied (SmolLM2, Llama 3.2 1B and 3B) the same matrix is used "
                "at both ends, and counts once."
            ),
            evidence=_context("embedding-weight", "The table has vocab_size rows of width dim.", built),
            aliases=_weight_names(
                "tok_embeddings.weight", "model.embed_tokens.weight", "token_embd.weight", "embed.W_E"
            ),
            built=built,
            sharded="vocab",
        ),
        Operation(
            path="embedding/look-up",
            name="Look up",
            inputs=("token-ids", "weight"),
            outputs=("embedded",),
            equation=r"<embedded> = <weight>\left[\,<token-ids>\,\right]",
            reference=lambda token_ids, weight: weight[token_ids],
            description="Pick the row of each token.",
            explanation=(
                "Equal to multiplying a one-hot vector by the matrix, at the cost of reading a row. A token gets the "
                "same vector wherever it stands: position enters later, as a rotation inside attention."
            ),
            evidence=_cited("look-up", claim, made),
        ),
        Tensor(
            path="embedding/embedded",
            name="Embedded tokens",
            symbol="x_0",
            shape=STREAM,
            hook=made,
            description="The residual stream as it enters the first block.",
            explanation=(
                "Every later value of the residual stream is this plus what the blocks have added, so the token "
                "that stands at a position stays directly readable deep into the model."
            ),
            evidence=_cited("embedded", claim, made),
            aliases=_hook_names("hook_embed", "hidden_states[0]"),
        ),
    )


def _rotary(scaled: bool) -> tuple[Node, ...]:
    frequencies = at("precompute_freqs_cis").assigns("freqs", nth=1)
    scaling = at("precompute_freqs_cis").assigns("freqs", nth=2)
    table = at("precompute_freqs_cis").assigns("freqs_cis")
    rotations = FORWARD.assigns("freqs_cis")
    used = "scaled-frequencies" if scaled else "inverse-frequencies"
    all_of_it = _context("rotary-table", "Frequencies, angles and unit complex numbers.", at("precompute_freqs_cis"))
    nodes: list[Node] = [
        Component(
            path="rotary",
            name="Rotary positions",
            description="The angles by which queries and keys are turned, one a position and pair of features.",
            explanation=(
                "Rotary position embedding (Su et al., 2021) turns each pair of features of a query and of a key by an "
                "angle in proportion to its position. A dot product of two turned vectors depends on the difference of "
                "their angles only, so attention sees how far apart two tokens are, not where they stand. The table is "
                "computed when the model is built and shared by all layers."
            ),
            evidence=all_of_it,
        ),
        Tensor(
            path="rotary/inverse-frequencies",
            name="Inverse frequencies",
            symbol=r"\omega",
            shape=("pairs",),
            hook=frequencies,
            when="build",
            description="The angle, in radians a position, by which each pair of features turns.",
            explanation=(
                r"$\omega_i = \theta^{-2i/h}$ with $\theta = <#rope_theta>$ and $h = <#head_dim>$. Pair 0 turns by one "
                "radian a position; the last hardly moves over the whole context. Fast pairs tell neighbours apart, "
                "slow ones carry what should be compared at any distance. The name is historical: these are "
                "frequencies, the inverses of wavelengths."
            ),
            evidence=_cited(
                "frequencies", "Powers of theta, one for each pair of features.", frequencies, earlier=False
            )
            + all_of_it,
            aliases=_hook_names("", "rotary_emb.inv_freq"),
        ),
    ]
    if scaled:
        nodes += [
            Operation(
                path="rotary/scale-frequencies",
                name="Scale frequencies",
                inputs=("inverse-frequencies",),
                outputs=("scaled-frequencies",),
                equation=(
                    r"<scaled-frequencies>_i = \begin{cases}"
                    r"<inverse-frequencies>_i & \lambda_i < <#old_context>/<#high_factor> \\[2pt]"
                    r"<inverse-frequencies>_i / <#rope_factor> & \lambda_i > <#old_context>/<#low_factor> \\[2pt]"
                    r"(1 - s_i)\,\dfrac{<inverse-frequencies>_i}{<#rope_factor>} + s_i\,<inverse-frequencies>_i"
                    r" & \text{between}"
                    r"\end{cases}\qquad \lambda_i = \frac{2\pi}{<inverse-frequencies>_i},\quad "
                    r"s_i = \frac{<#old_context>/\lambda_i - <#low_factor>}{<#high_factor> - <#low_factor>}"
                ),
                reference=_scale_frequencies,
                description="Slow the slow pairs down by a factor of eight, so that a longer context fits.",
                explanation=(
                    "Llama 3.1 was trained on from 8,192 positions to 131,072. A pair whose wavelength is longer than "
                    "the old context had never gone round once, so angles beyond it would be new to the model; "
                    "dividing its frequency by 8 brings the new positions into the range it knows. Pairs that turn at "
                    "least 4 times within the old context keep their frequency, since they have already seen every "
                    "angle and tell neighbours apart. Between the two, the frequencies are blended."
                    "\n\n"
                    r"With $h = 128$ and $\theta = 500000$, pairs 0 to 28 are kept, 29 to 34 are blended and 35 to 63 "
                    r"are divided. The number of turns within the old context, $<#old_context>\,\omega / 2\pi$, is "
                    "mapped to s so that 1 turn gives 0 and 4 turns give 1. This is the only difference between the "
                    "code of Llama 3 and of Llama 3.1."
                ),
                evidence=_cited(
                    "scale-frequencies",
                    "Frequencies are kept, blended or divided by 8, by their wavelength.",
                    at("apply_scaling"),
                    scaling,
                    earlier=False,
                ),
            ),
            Tensor(
                path="rotary/scaled-frequencies",
                name="Scaled frequencies",
                symbol=r"\omega'",
                shape=("pairs",),
                hook=scaling,
                when="build",
                description="The frequencies that Llama 3.1 uses in place of the plain ones.",
                explanation=(
                    "Computed once, when the model is built. A GGUF file of Llama 3.1 carries the ratio as "
                    "`rope_freqs.weight` instead of the rule."
                ),
                evidence=_cited(
                    "scaled-frequencies",
                    "The scaling is applied if the configuration asks for it.",
                    scaling,
                    earlier=False,
                ),
                aliases=(
                    Alias(name="rope_freqs.weight", of="GGUF", layout="the ratio of plain to scaled frequencies"),
                ),
            ),
        ]
    reference: Callable[..., Any] = (
        (lambda scaled_frequencies, start_pos, positions: _unit_circle(scaled_frequencies, start_pos, positions))
        if scaled
        else (lambda inverse_frequencies, start_pos, positions: _unit_circle(inverse_frequencies, start_pos, positions))
    )
    nodes += [
        Operation(
            path="rotary/rotate",
            name="Turn positions into rotations",
            inputs=(used,),
            outputs=("rotations",),
            equation=rf"<rotations>_{{t,i}} = e^{{\mathrm i\,(t_0 + t)\,<{used}>_i}}",
            reference=reference,
            description="A unit complex number for each position and pair.",
            explanation=(
                r"$t_0$ is the number of positions before this pass: 0 in a prefill, the length so far in a decode "
                "step. Angles are computed in float32 and kept as complex64, so multiplying by one of these numbers "
                "turns a pair of features without changing its length."
            ),
            evidence=_cited(
                "rotate",
                "Positions times frequencies, as unit complex numbers.",
                table,
                rotations,
                earlier=False,
            )
            + all_of_it,
        ),
        Tensor(
            path="rotary/rotations",
            name="Rotations",
            symbol="R",
            shape=("positions", "pairs"),
            hook=rotations,
            complex=True,
            description="The part of the table that this pass needs: its own positions.",
            explanation=(
                "Complex numbers of length one. A decode step takes a single row. There is no batch axis: all "
                "sequences of a batch stand at the same positions."
            ),
            evidence=_cited(
                "rotations", "Rows start_pos to start_pos + seqlen of the table.", rotations, earlier=False
            ),
            aliases=_hook_names("", "position_embeddings (cos, sin)"),
        ),
    ]
    return tuple(nodes)


def _unit_circle(frequencies: Array, start_pos: int, positions: int) -> Array:
    turned: Array = np.exp(1j * np.outer(start_pos + np.arange(positions), frequencies))
    return turned


def _scale_frequencies(
    inverse_frequencies: Array, rope_factor: float, old_context: float, low_factor: float, high_factor: float
) -> Array:
    wavelength = 2 * np.pi / inverse_frequencies
    blend = (old_context / wavelength - low_factor) / (high_factor - low_factor)
    between = (1 - blend) * inverse_frequencies / rope_factor + blend * inverse_frequencies
    slow = np.where(wavelength > old_context / low_factor, inverse_frequencies / rope_factor, between)
    return np.where(wavelength < old_context / high_factor, inverse_frequencies, slow)


def _mask() -> tuple[Node, ...]:
    made = FORWARD.assigns("mask", nth=5)
    claim = "Minus infinity above the diagonal, shifted by the positions before this pass."
    built = _cited("mask", claim, FORWARD.assigns("mask", nth=2), FORWARD.assigns("mask", nth=3), made, earlier=False)
    return (
        Operation(
            path="build-mask",
            name="Build the causal mask",
            inputs=(Use(path="token-ids", lends=True),),
            outputs=("causal-mask",),
            equation=(r"<causal-mask>_{t,u} = \begin{cases} 0 & u \le t_0 + t \\ -\infty & u > t_0 + t \end{cases}"),
            reference=lambda start_pos, positions: np.triu(
                np.full((positions, start_pos + positions), -np.inf), k=start_pos + 1
            ),
            views=SEVERAL,
            absent=NO_MASK,
            description="Forbid each position to look at those after it.",
            explanation=(
                "Only the number of tokens is used, not which they are. The mask is added before softmax, where minus "
                "infinity becomes a weight of exactly zero. Without it a model trained to predict the next token could "
                "simply read it."
            ),
            evidence=built,
        ),
        Tensor(
            path="causal-mask",
            name="Causal mask",
            symbol="M",
            shape=("queries", "keys"),
            hook=made,
            views=SEVERAL,
            absent=NO_MASK,
            description="Zero where a query may attend, minus infinity where it may not.",
            explanation="One mask serves all layers, heads and sequences of the batch.",
            evidence=built,
            aliases=_hook_names("", "attention_mask"),
        ),
    )


def _norm(
    path: str, name: str, symbol: str, source: str, call: Anchor, built: Anchor, weights: tuple[Alias, ...],
    weight: str, lens: tuple[str, str], description: str, why: str,
) -> tuple[Node, ...]:  # fmt: skip
    """One RMSNorm: reciprocal root mean square, then a learned gain. `call` is the module's call in its owner."""
    root = at("RMSNorm._norm").returns().right.inside(call)
    whole = at("RMSNorm._norm").through(NORM.returns())
    definition = _context("rms-norm", "RMSNorm: normalise in float32, cast back, then multiply by the gain.", whole)
    gain, reciprocal = rf"\gamma_{{\mathrm {symbol}}}", rf"r_{{\mathrm {symbol}}}"
    return (
        Component(
            path=path,
            name=name,
            description=description,
            explanation=(
                "Root-mean-square normalisation (Zhang and Sennrich, 2019): like LayerNorm, but no mean is subtracted "
                "and no bias added. " + why
            ),
            evidence=_cited(f"{path}-built", "An RMSNorm of its own.", built, earlier=False, kind="contextual")
            + definition,
            module=weight.removesuffix(".weight"),
        ),
        Parameter(
            path=f"{path}/gain",
            name="Gain",
            symbol=gain,
            shape=("d_model",),
            weight=weight,
            description="One learned factor a feature.",
            explanation="Applied after the cast back from float32, so it multiplies in the model's own dtype.",
            evidence=definition,
            aliases=weights,
            built=built,
        ),
        Operation(
            path=f"{path}/rms",
            name="Reciprocal root mean square",
            inputs=(Use(path=source, named="x"),),
            outputs=("reciprocal-rms",),
            equation=(
                rf"<reciprocal-rms> = \left(\frac{{1}}{{<#d_model>}}\sum_{{i}} <{source}>_i^{{\,2}}"
                r" + <#norm_eps>\right)"
                r"^{-1/2}"
            ),
            reference=lambda x, norm_eps: (np.mean(x**2, axis=-1, keepdims=True) + norm_eps) ** -0.5,
            description="How much to shrink each position, from its own features alone.",
            explanation=(
                "Squares, mean and root are taken in float32 whatever the model's dtype: in bfloat16 the sum of "
                "thousands of squares would lose most of its terms. The small constant stands inside the root and "
                "keeps a zero vector finite."
            ),
            evidence=_cited(f"{path}-rms", "The reciprocal root of the mean square plus epsilon.", root, earlier=False)
            + definition,
        ),
        Tensor(
            path=f"{path}/reciprocal-rms",
            name="Reciprocal RMS",
            symbol=reciprocal,
            shape=("batch", "positions", "one"),
            hook=root,
            description="One number a position: the inverse of the size of its features.",
            explanation=(
                "Massive entries make themselves felt here. A single feature of 22,500 among 576 sets the mean square "
                "almost alone, and every other feature of that position comes out close to zero."
            ),
            evidence=_cited(
                f"{path}-reciprocal",
                "The reciprocal root is computed before the product.",
                root,
                earlier=False,
            )
            + definition,
            aliases=_hook_names(lens[0], "", "TransformerLens keeps the root itself, not its reciprocal"),
        ),
        Operation(
            path=f"{path}/scale",
            name="Scale by the gain",
            inputs=(Use(path=source, named="x"), "reciprocal-rms", "gain"),
            outputs=("normalized",),
            equation=rf"<normalized> = \left(<{source}> \cdot <reciprocal-rms>\right) \odot <gain>",
            reference=lambda x, reciprocal_rms, gain: x * reciprocal_rms * gain,
            description="Bring each position to unit size, then weigh each feature.",
            explanation=(
                "The branch reads this copy; the residual stream itself is left as it is. Doubling the stream leaves "
                "the result unchanged (but for epsilon), so a branch sees directions, not sizes."
            ),
            evidence=_cited(
                f"{path}-scale",
                "The normalised features times the gain.",
                call,
                NORM.returns(),
                earlier=False,
            )
            + definition,
        ),
        Tensor(
            path=f"{path}/normalized",
            name="Normalized features",
            symbol=rf"n_{{\mathrm {symbol}}}",
            shape=STREAM,
            hook=call,
            description="The normalised copy of the residual stream, gain included.",
            explanation="After the gain. Tools that fold the gain into the next weights show the value before it.",
            evidence=_cited(f"{path}-normalized", "The output of the norm, gain included.", call, earlier=False)
            + definition,
            aliases=_hook_names(lens[1], ""),
        ),
    )


def _block() -> tuple[Node, ...]:
    attention_norm = BLOCK.assigns("h").call("self.attention_norm")
    return (
        Component(
            path="blocks",
            name="Transformer block",
            plural="independent transformer blocks",
            repeat="layers",
            description="Two updates of the residual stream: attention, then the feed-forward network.",
            explanation=(
                "All blocks have the same form and each has weights of its own. The stream passes straight through; a "
                "block can only add to it, so the stream after layer n is the embedding plus all updates so far. That "
                "does not make blocks independent: each reads what those before it have written."
            ),
            evidence=BLOCK_RESIDUALS + MODEL,
            module="layers.{layer}",
        ),
        Tensor(
            path="blocks/block-input",
            name="Block input",
            symbol="x_n",
            shape=STREAM,
            hook=BLOCK.argument("x"),
            description="The residual stream as this block finds it.",
            explanation=(
                "For layer 0 it is the embedding; for every other layer the output of the block before. It is all that "
                "a block knows of the layers below, the cache of its own keys and values aside."
            ),
            evidence=_cited("block-input", "The block takes the stream as its argument.", BLOCK.argument("x"), earlier=False)
            + BLOCK_RESIDUALS,
            aliases=_hook_names("blocks.{layer}.hook_resid_pre", "hidden_states[{layer}]"),
        ),
        *_norm(
            "blocks/attention-norm", "Attention norm", "a", "blocks/block-input", attention_norm,
            at("TransformerBlock.__init__").assigns("self.attention_norm"),
            _weight_names("layers.{layer}.attention_norm.weight", "model.layers.{layer}.input_layernorm.weight",
                          "blk.{layer}.attn_norm.weight", "blocks.{layer}.ln1.w"),
            "layers.{layer}.attention_norm.weight",
            ("blocks.{layer}.ln1.hook_scale", "blocks.{layer}.ln1.hook_normalized"),
            "Normalise what attention reads.",
            "Normalising before the branch rather than after the sum keeps a clean path for gradients through the "
            "whole depth; with the norm after the sum, models this deep are hard to get to train at all.",
        ),
    )  # fmt: skip


def _attention(group: int) -> tuple[Node, ...]:
    norm = "blocks/attention-norm/normalized"
    repeated = repr(group)
    mid = BLOCK.assigns("h")
    update = ATTEND.returns()
    projected = ATTEND.assigns("xq", nth=1)
    projection = at("Attention.__init__").assigns("self.wo")
    nodes: list[Node] = [
        Component(
            path=ATTENTION,
            name="Attention",
            description="Each position collects values from the positions it attends to.",
            explanation=(
                "The only place where positions exchange information. A query asks, keys answer, and the values of "
                f"the positions whose keys match best are mixed. {repeated} query heads share each key and value head, "
                f"so the cache is {repeated} times smaller than with one pair of heads a query."
                if group > 1
                else "The only place where positions exchange information. A query asks, keys answer, and the values "
                "of the positions whose keys match best are mixed."
            ),
            evidence=_context("attention-call", "The block calls attention on normalised input.", mid),
            module="layers.{layer}.attention",
        )
    ]
    for letter, name, one, heads, module, gguf, hf in (
        ("Q", "queries", "query", "q_heads", "wq", "attn_q", "q_proj"),
        ("K", "keys", "key", "kv_heads", "wk", "attn_k", "k_proj"),
        ("V", "values", "value", "kv_heads", "wv", "attn_v", "v_proj"),
    ):
        variable = f"x{letter.lower()}"
        made = ATTEND.assigns(variable, nth=2)
        width = "q_width" if heads == "q_heads" else "kv_width"
        claim = f"{name.capitalize()} are a bias-free projection of the normalised features, cut into heads."
        built = at("Attention.__init__").assigns(f"self.{module}")
        evidence = _cited(f"project-{name}", claim, made) + _context(
            f"projected-{name}", f"One call of {module}.", projected if variable == "xq" else ATTEND.assigns(variable, nth=1),
            earlier=variable == "xq",
        )  # fmt: skip
        texts = {
            "queries": (
                "What each position looks for, one vector a head.",
                "Not yet rotated: position comes in the next step. Only the product of a query with a key has a meaning "
                "of its own; either may be multiplied by any invertible matrix if the other is multiplied by its inverse.",
            ),
            "keys": (
                "What each position offers to be found by, one vector a key head.",
                f"There are {group} times fewer key heads than query heads. Not yet rotated; the cache keeps the rotated ones."
                if group > 1
                else "Not yet rotated; the cache keeps the rotated ones.",
            ),
            "values": (
                "What each position hands over when it is attended to.",
                "Values are never rotated: what is handed over does not depend on where it came from.",
            ),
        }[name]
        nodes += [
            Parameter(
                path=f"{ATTENTION}/{one}-weight",
                name=f"{one.capitalize()} weight",
                symbol=rf"W_{{\mathrm {letter}}}",
                shape=(width, "d_model"),
                weight=f"layers.{{layer}}.attention.{module}.weight",
                description=f"Projects the normalised features to {name} of all heads at once.",
                explanation=(
                    "Stored [out, in], the heads one after another along the first axis."
                    + (
                        " Within a head Meta's rows are in the order of interleaved pairs (2i, 2i + 1); Hugging Face's "
                        "are permuted, since its code pairs feature i with i + h/2. Only the product of query and key is "
                        "the same in both."
                        if name != "values"
                        else ""
                    )
                ),
                evidence=_context(f"{one}-weight", f"{module} is a linear map without bias.", built, earlier=False),
                aliases=_weight_names(
                    f"layers.{{layer}}.attention.{module}.weight",
                    f"model.layers.{{layer}}.self_attn.{hf}.weight",
                    f"blk.{{layer}}.{gguf}.weight",
                    f"blocks.{{layer}}.attn.W_{letter}",
                    permuted=name != "values",
                ),
                built=built,
                sharded=width,
            ),
            Operation(
                path=f"{ATTENTION}/project-{name}",
                name=f"Project {name}",
                inputs=(Use(path=norm, named="normalized"), f"{one}-weight"),
                outputs=(name,),
                equation=rf"<{name}> = <{norm}>\,<{one}-weight>^{{\top}}",
                reference=_projection(f"{one}_weight"),
                description=f"One matrix product gives the {name} of all heads.",
                explanation=(
                    "No bias. The result is cut into heads by a view: head j is the j-th slice of h features. In decode "
                    "one row is multiplied, so the time goes into reading the matrix, not into arithmetic."
                ),
                evidence=evidence,
            ),
            Tensor(
                path=f"{ATTENTION}/{name}",
                name=name.capitalize(),
                symbol=letter,
                shape=("batch", "positions", heads, "head_dim"),
                hook=made,
                description=texts[0],
                explanation=texts[1],
                evidence=evidence,
                aliases=_hook_names(f"blocks.{{layer}}.attn.hook_{letter.lower()}", f"self_attn.{hf} (output)"),
                sharded=heads,
            ),
        ]
    for name, one, letter, index, heads in (
        ("queries", "query", "Q", 0, "q_heads"),
        ("keys", "key", "K", 1, "kv_heads"),
    ):
        made = at("apply_rotary_emb").returns()[index]
        evidence = _cited(
            f"rotate-{name}", "Pairs of neighbouring features, as complex numbers, times the rotations.",
            at("apply_rotary_emb"),
        ) + _cited(f"rotated-{name}", f"The rotated {name} are cast back to the model's dtype.", made)  # fmt: skip
        nodes += [
            Operation(
                path=f"{ATTENTION}/rotate-{name}",
                name=f"Rotate {name}",
                inputs=(name, Use(path="rotary/rotations", named="rotations")),
                outputs=(f"rotated-{name}",),
                equation=(
                    rf"<rotated-{name}>_{{t,2i}} + \mathrm i\,<rotated-{name}>_{{t,2i+1}} = "
                    rf"\left(<{name}>_{{t,2i}} + \mathrm i\,<{name}>_{{t,2i+1}}\right) <rotary/rotations>_{{t,i}}"
                ),
                reference=(
                    (lambda queries, rotations: _rotate(queries, rotations))
                    if name == "queries"
                    else (lambda keys, rotations: _rotate(keys, rotations))
                ),
                description=f"Turn each pair of features of each {one} by the angle of its position.",
                explanation=(
                    "Pairs are neighbours, (2i, 2i + 1), here and in GGUF files of Llama; Hugging Face pairs i with "
                    "i + h/2 and permutes the weights to match. Computed in float32, then cast back. The length of the "
                    f"{one} does not change."
                ),
                evidence=evidence,
            ),
            Tensor(
                path=f"{ATTENTION}/rotated-{name}",
                name=f"Rotated {name}",
                symbol=rf"{letter}_{{\mathrm r}}",
                shape=("batch", "positions", heads, "head_dim"),
                hook=made,
                description=f"{name.capitalize()} with their position in them.",
                explanation=(
                    "The dot product of a rotated query and a rotated key depends on their contents and on the distance "
                    "between them, and on nothing else."
                ),
                evidence=evidence,
                aliases=_hook_names(f"blocks.{{layer}}.attn.hook_rot_{letter.lower()}", ""),
                sharded=heads,
            ),
        ]
    for name, one, letter, source in (
        ("key", "keys", "K", "rotated-keys"),
        ("value", "values", "V", "values"),
    ):
        buffer = f"self.cache_{letter.lower()}"
        write = ATTEND.assigns(f"{buffer}[:bsz, start_pos:start_pos + seqlen]")
        read = ATTEND.assigns(one, nth=1)
        spread = ATTEND.assigns(one, nth=2)
        cached = _cited(f"read-{one}", f"All {one} up to the last position of this pass.", read)
        lines = _cited(f"repeat-{one}", "Each head is repeated for the query heads that share it.", spread) + _context(
            "repeat-kv", "Repeated in place, head by head, not tiled.", at("repeat_kv")
        )
        leaf = f"{name}_cache"
        nodes += [
            Operation(
                path=f"{ATTENTION}/write-{one}",
                name=f"Write {one}",
                inputs=(source,),
                outputs=(f"{name}-cache",),
                equation=rf"<{name}-cache>\left[\,t_0 : t_0 + T\,\right] = <{source}>",
                reference=_written(source.replace("-", "_")),
                description=f"Put this pass's {one} behind those of the passes before.",
                explanation=(
                    "Written in place, into a buffer as long as the longest context. In decode one row is written and "
                    "all are read; without the cache every step would compute all positions again."
                ),
                place=write,
                evidence=_cited(f"write-{one}", f"This pass's {one} are put in their place.", write, earlier=False)
                + cached + _context(f"cache-{one}", "The buffer is made once, for the longest context.",
                                           at("Attention.__init__").assigns(buffer), earlier=False),
            ),
            Cache(
                path=f"{ATTENTION}/{name}-cache",
                name=f"{name.capitalize()} cache",
                symbol=rf"{letter}_{{\mathrm c}}",
                shape=("batch", "keys", "kv_heads", "head_dim"),
                hook=read,
                description=f"The {one} of every position so far, this pass's included.",
                explanation=(
                    ("Keys are cached after their rotation, so each is rotated once. "
                     if name == "key" else "Values are cached as they are; they carry no position. ")
                    + "The cache is shown after this pass's write. In *full sequence* it is an artefact of the reference "
                    "code, which always goes through the buffer: nothing from an earlier pass is read there."
                ),
                evidence=cached,
                aliases=(
                    Alias(name=f"past_key_values[{{layer}}].{one}", of="Hugging Face", layout="[batch, head, key, feature]"),
                    Alias(name=f"cache_{letter.lower()}", of="Meta"),
                ),
                sharded="kv_heads",
            ),
            Operation(
                path=f"{ATTENTION}/repeat-{one}",
                name=f"Repeat {one}",
                inputs=(f"{name}-cache",),
                outputs=(f"repeated-{one}",),
                equation=(
                    rf"<repeated-{one}>_{{u,j}} = <{name}-cache>_{{u,\lfloor j / <#group> \rfloor}}"
                ),
                reference=_repeated(leaf),
                description="Give every query head a head to read.",
                explanation=(
                    f"Query head j reads head floor(j / {group}): each head is repeated {group} times in place, "
                    "0 0 0 1 1 1, not tiled, 0 1 0 1. Nothing is learned here, and fast kernels skip the copy."
                    if group > 1
                    else "One head a query head: nothing is repeated, and the reference hands its argument on."
                ),
                evidence=lines,
            ),
            Tensor(
                path=f"{ATTENTION}/repeated-{one}",
                name=f"Repeated {one}",
                symbol=rf"\bar {letter}",
                shape=("batch", "keys", "q_heads", "head_dim"),
                hook=spread,
                description=f"The cached {one}, one head for each query head.",
                explanation=f"Numbers as in the cache; heads {group} at a time are equal." if group > 1 else "Equal to the cache.",
                evidence=lines,
                sharded="q_heads",
            ),
        ]  # fmt: skip
    product, masked = ATTEND.assigns("scores", nth=1), ATTEND.assigns("scores", nth=2)
    soft, mixed, merged = (
        ATTEND.assigns("scores", nth=3),
        ATTEND.assigns("output", nth=1),
        ATTEND.assigns("output", nth=2),
    )
    compared = _cited("attn-similarity", "Every query with every key, head by head.", product.left)
    scaled = _cited("attn-scale", "The products are divided by the square root of the head width.", product)
    mask = _cited("attn-mask", "The mask is added where there is one.", masked)
    softmaxed = _cited("attn-softmax", "Softmax in float32 along the keys, cast back.", soft)
    mixing = _cited("attn-mix", "The weights of each query times the values.", mixed)
    merging = _cited("attn-merge", "Heads are put side by side.", merged)
    written = _cited("attn-update", "The output projection of the merged heads is returned.", update)
    output = _context(
        "attn-output", "A learned output projection without bias maps the merged heads to model width.",
        projection, merged, update,
    )  # fmt: skip
    residual = _cited("attn-residual", "The update is added to the block's input.", mid) + BLOCK_RESIDUALS
    nodes += [
        Operation(
            path=f"{ATTENTION}/compare",
            name="Compare queries with keys",
            inputs=("rotated-queries", "repeated-keys"),
            outputs=("similarities",),
            equation=r"<similarities> = <rotated-queries>\,<repeated-keys>^{\top}",
            reference=lambda rotated_queries, repeated_keys: contract(
                "b t n h, b u n h -> b n t u", rotated_queries, repeated_keys
            ),
            description="The dot product of every query with every key.",
            explanation=(
                "The part whose cost grows with the square of the context in a prefill. In a decode step it grows "
                "linearly, since there is a single query. The reference keeps the whole table; fused kernels compute it "
                "in pieces and never store it."
            ),
            evidence=compared,
        ),
        Tensor(
            path=f"{ATTENTION}/similarities",
            name="Similarities",
            symbol="S",
            shape=SCORES,
            hook=product.left,
            description="How well each query matches each key, before scaling.",
            explanation=(
                "Entries above the diagonal are computed too and thrown away by the mask. Only differences within a row "
                "matter: adding a constant to a row changes nothing after softmax."
            ),
            evidence=compared,
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/scale-similarities",
            name="Scale similarities",
            inputs=("similarities",),
            outputs=("scaled-similarities",),
            equation=r"<scaled-similarities> = <similarities> / \sqrt{<#head_dim>}",
            reference=lambda similarities, head_dim: similarities / head_dim**0.5,
            description="Hold the size of what enters softmax steady, whatever the head width.",
            explanation=(
                "If the features of a query and a key were independent with mean 0 and variance 1, each of the "
                r"$<#head_dim>$ products in their dot product would have variance 1, and the sum variance $<#head_dim>$. "
                r"Dividing by $\sqrt{<#head_dim>}$ brings it back to 1. Without that, wide heads would push softmax "
                "towards one-hot weights, where its gradient vanishes. Trained features are neither independent nor of "
                "unit variance: the factor fixes the starting point, and training may move on from there."
            ),
            evidence=scaled,
        ),
        Tensor(
            path=f"{ATTENTION}/scaled-similarities",
            name="Scaled similarities",
            symbol=r"S_{\mathrm s}",
            shape=SCORES,
            hook=product,
            description="Similarities divided by the square root of the head width; not yet masked.",
            explanation="Computed in the model's own dtype. Often called scores or attention logits.",
            evidence=scaled,
            aliases=_hook_names("blocks.{layer}.attn.hook_attn_scores", "", "TransformerLens shows them after masking"),
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/apply-mask",
            name="Apply the mask",
            inputs=("scaled-similarities", Use(path="causal-mask", named="mask")),
            outputs=("masked-similarities",),
            equation=r"<masked-similarities> = <scaled-similarities> + <causal-mask>",
            reference=lambda scaled_similarities, mask: scaled_similarities + mask,
            views=SEVERAL,
            absent=NO_MASK,
            description="Add minus infinity wherever a key is later than its query.",
            explanation=(
                "Added rather than selected: a number plus minus infinity is minus infinity, whatever the number. "
                "transformers adds the lowest finite number of the dtype instead, always, which comes to the same after "
                "softmax."
            ),
            evidence=mask,
        ),
        Tensor(
            path=f"{ATTENTION}/masked-similarities",
            name="Masked similarities",
            symbol=r"S_{\mathrm m}",
            shape=SCORES,
            hook=masked,
            views=SEVERAL,
            absent=NO_MASK,
            description="Scaled similarities, minus infinity where a query may not look.",
            explanation="Statistics are over the finite entries; the masked ones are counted beside them.",
            evidence=mask,
            aliases=_hook_names("blocks.{layer}.attn.hook_attn_scores", ""),
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/softmax",
            name="Softmax over keys",
            inputs=(
                Use(path="masked-similarities", named="similarities"),
                Use(path="scaled-similarities", instead_of="masked-similarities", named="similarities"),
            ),
            outputs=("attention-weights",),
            equation=(
                r"<attention-weights>_{t,u} = \frac{e^{\,<masked-similarities>_{t,u}}}"
                r"{\sum_{v} e^{\,<masked-similarities>_{t,v}}}"
            ),
            reference=lambda similarities: softmax(similarities),
            description="Turn each query's similarities into weights that sum to one.",
            explanation=(
                "Taken in float32 and cast back. A row can never be empty: if nothing matches, the weight still has to go "
                "somewhere, and trained models learn to park it on the first token. Where a pass has one position there "
                "is no mask, and the scaled similarities enter as they are."
            ),
            evidence=softmaxed,
        ),
        Tensor(
            path=f"{ATTENTION}/attention-weights",
            name="Attention weights",
            symbol="A",
            shape=SCORES,
            hook=soft,
            description="For each head and query, how its attention is divided over the keys.",
            explanation=(
                "Each row sums to one. A large weight says that a value is read, not that it matters: the value may be "
                "small, or the output projection may ignore it."
            ),
            evidence=softmaxed,
            aliases=_hook_names("blocks.{layer}.attn.hook_pattern", "attentions[{layer}]"),
            sharded="q_heads",
        ),
        Operation(
            path=f"{ATTENTION}/mix-values",
            name="Mix values",
            inputs=("attention-weights", "repeated-values"),
            outputs=("head-outputs",),
            equation=r"<head-outputs> = <attention-weights>\,<repeated-values>",
            reference=lambda attention_weights, repeated_values: contract(
                "b n t u, b u n h -> b n t h", attention_weights, repeated_values
            ),
            description="The weighted mean of the values, for each head and query.",
            explanation=(
                "A mean, since the weights are non-negative and sum to one: the result lies between the values, and a "
                "head that attends to one key copies its value."
            ),
            evidence=mixing,
        ),
        Tensor(
            path=f"{ATTENTION}/head-outputs",
            name="Head outputs",
            symbol="Z",
            shape=("batch", "q_heads", "queries", "head_dim"),
            hook=mixed,
            description="What each head has collected, before the heads are joined.",
            explanation="Heads have not met yet: everything up to here happens in each head alone.",
            evidence=mixing,
            aliases=_hook_names("blocks.{layer}.attn.hook_z", "", "[batch, query, head, feature] in TransformerLens"),
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
            evidence=merging,
        ),
        Tensor(
            path=f"{ATTENTION}/merged-heads",
            name="Merged heads",
            symbol=r"Z_{\mathrm m}",
            shape=("batch", "positions", "q_width"),
            hook=merged,
            description="All heads of a position in one vector.",
            explanation="As wide as the model here, because q heads x head dim = d_model; that is a choice, not a law.",
            evidence=merging,
            aliases=_hook_names("", "self_attn.o_proj (input)"),
            sharded="q_width",
        ),
        Parameter(
            path=f"{ATTENTION}/output-weight",
            name="Output weight",
            symbol=r"W_{\mathrm O}",
            shape=("d_model", "q_width"),
            weight="layers.{layer}.attention.wo.weight",
            description="Maps the merged heads back to model width.",
            explanation=(
                "Columns jh to jh + h - 1 belong to head j, so the product is a sum over heads: each writes to the stream "
                "on its own."
            ),
            evidence=_context("output-weight", "wo is a linear map without bias.", projection),
            aliases=_weight_names(
                "layers.{layer}.attention.wo.weight", "model.layers.{layer}.self_attn.o_proj.weight",
                "blk.{layer}.attn_output.weight", "blocks.{layer}.attn.W_O",
            ),
            built=projection,
            sharded="q_width",
        ),
        Operation(
            path=f"{ATTENTION}/output-projection",
            name="Output projection",
            inputs=("merged-heads", "output-weight"),
            outputs=("attention-update",),
            equation=r"<attention-update> = <merged-heads>\,<output-weight>^{\top}",
            reference=lambda merged_heads, output_weight: contract("b t w, d w -> b t d", merged_heads, output_weight),
            description="Write what the heads have collected in the language of the residual stream.",
            explanation=(
                "The product is the sum of one term a head, which is what makes it possible to ask how much a single head "
                "added. In a model split over machines each holds some heads, and this sum is where they meet."
            ),
            evidence=written + output,
        ),
        Tensor(
            path=f"{ATTENTION}/attention-update",
            name="Attention update",
            symbol=r"\Delta_{\mathrm{attn}}",
            shape=STREAM,
            hook=update,
            description="What attention adds to the residual stream of its block.",
            explanation=(
                "An addition, not a replacement: the stream before it is kept. Compare its size with the block input's to "
                "see how much attention changes here."
            ),
            evidence=written + output + BLOCK_RESIDUALS,
            aliases=_hook_names("blocks.{layer}.hook_attn_out", "self_attn (output)"),
        ),
        Operation(
            path="blocks/attention-residual",
            name="Add the attention update",
            inputs=("block-input", "attention/attention-update"),
            outputs=("mid-residual",),
            equation=r"<mid-residual> = <block-input> + <attention/attention-update>",
            reference=lambda block_input, attention_update: block_input + attention_update,
            description="The first of the block's two residual sums.",
            explanation=(
                "The stream goes past the branch unchanged, so gradients and information have a path through the whole "
                "model that no weight can block."
            ),
            evidence=residual,
        ),
        Tensor(
            path="blocks/mid-residual",
            name="Mid residual",
            symbol="h_n",
            shape=STREAM,
            hook=mid,
            description="The residual stream between the two updates of a block.",
            explanation="Attention has spoken; the feed-forward network reads this next.",
            evidence=residual,
            aliases=_hook_names("blocks.{layer}.hook_resid_mid", ""),
        ),
    ]  # fmt: skip
    return tuple(nodes)


def _projection(weight: str) -> Callable[..., Any]:
    """normalized W^T, cut into heads. The three differ in the names of weight and head axis only."""

    def cut(normalized: Array, matrix: Array, head_dim: int) -> Array:
        flat = contract("b t d, w d -> b t w", normalized, matrix)
        return flat.reshape(*flat.shape[:2], -1, head_dim)

    if weight == "query_weight":
        return lambda normalized, query_weight, head_dim: cut(normalized, query_weight, head_dim)
    if weight == "key_weight":
        return lambda normalized, key_weight, head_dim: cut(normalized, key_weight, head_dim)
    return lambda normalized, value_weight, head_dim: cut(normalized, value_weight, head_dim)


def _written(source: str) -> Callable[..., Any]:
    if source == "rotated_keys":
        return lambda before, rotated_keys: np.concatenate([before, rotated_keys], axis=1)
    return lambda before, values: np.concatenate([before, values], axis=1)


def _repeated(cache: str) -> Callable[..., Any]:
    if cache == "key_cache":
        return lambda key_cache, group: np.repeat(key_cache, group, axis=2)
    return lambda value_cache, group: np.repeat(value_cache, group, axis=2)


def _rotate(x: Array, rotations: Array) -> Array:
    """Turn neighbouring pairs of the last axis of [b t n h] by [t h/2] unit complex numbers (Su et al., 2021)."""
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * rotations[None, :, None, :]
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


def _feed_forward() -> tuple[Node, ...]:
    ffn_norm = BLOCK.assigns("out").call("self.ffn_norm")
    out = BLOCK.assigns("out")
    whole = SWIGLU.returns()
    product = whole.arg(0)
    swiglu = _context("swiglu", "SwiGLU: the gate's SiLU times the up projection, projected down.", whole)
    width = _context(
        "mlp-width", "Two thirds of 4 dim, times the multiplier, rounded up to a multiple of multiple_of.",
        at("FeedForward.__init__").through(at("FeedForward.__init__").assigns("hidden_dim", nth=2)),
        at("FeedForward.__init__").assigns("hidden_dim", nth=3),
    )  # fmt: skip
    norm = "blocks/feed-forward-norm/normalized"
    residual = _cited("mlp-residual", "The update is added to the mid residual.", out) + BLOCK_RESIDUALS
    nodes: list[Node] = [
        *_norm(
            "blocks/feed-forward-norm", "Feed-forward norm", "m", "blocks/mid-residual", ffn_norm,
            at("TransformerBlock.__init__").assigns("self.ffn_norm"),
            _weight_names("layers.{layer}.ffn_norm.weight", "model.layers.{layer}.post_attention_layernorm.weight",
                          "blk.{layer}.ffn_norm.weight", "blocks.{layer}.ln2.w"),
            "layers.{layer}.ffn_norm.weight",
            ("blocks.{layer}.ln2.hook_scale", "blocks.{layer}.ln2.hook_normalized"),
            "Normalise what the feed-forward network reads.",
            "It has a gain of its own, so the two branches may weigh the same features differently.",
        ),
        Component(
            path=FEED_FORWARD,
            name="Feed-forward",
            description="A gated two-layer network, applied to each position alone.",
            explanation=(
                "Three quarters of a block's weights, or more, are here. Each hidden feature reads a direction of the stream "
                "through a gate and writes another; positions do not meet. SwiGLU is the gated product (Shazeer, 2020); "
                "SiLU is its activation."
            ),
            evidence=swiglu + width,
            module="layers.{layer}.feed_forward",
        ),
    ]  # fmt: skip
    for name, module, gguf, hf, symbol, text, why in (
        ("gate", "w1", "ffn_gate", "gate_proj", "g", "The gate before its activation.",
         "Negative entries nearly close a hidden feature, positive ones open it in proportion."),
        ("up", "w3", "ffn_up", "up_proj", "u", "What the gate lets through, or holds back.",
         "Unlike the gate it passes through no activation, so the product is linear in it."),
    ):  # fmt: skip
        made = whole.call(f"self.{module}")
        built = at("FeedForward.__init__").assigns(f"self.{module}")
        evidence = _cited(f"project-{name}", f"{module} of the normalised features.", made, earlier=False) + swiglu
        nodes += [
            Parameter(
                path=f"{FEED_FORWARD}/{name}-weight",
                name=f"{name.capitalize()} weight",
                symbol=rf"W_{{\mathrm {name[0].upper()}}}" if name == "gate" else r"W_{\mathrm{up}}",
                shape=("d_mlp", "d_model"),
                weight=f"layers.{{layer}}.feed_forward.{module}.weight",
                description=f"Projects the normalised features to the {name} of each hidden feature.",
                explanation=f"Meta calls it {module}. Each row is the direction that one hidden feature reads.",
                evidence=_context(f"{name}-weight", f"{module} is a linear map without bias.", built, earlier=False) + width,
                aliases=_weight_names(
                    f"layers.{{layer}}.feed_forward.{module}.weight", f"model.layers.{{layer}}.mlp.{hf}.weight",
                    f"blk.{{layer}}.{gguf}.weight", f"blocks.{{layer}}.mlp.W_{'gate' if name == 'gate' else 'in'}",
                ),
                built=built,
                sharded="d_mlp",
            ),
            Operation(
                path=f"{FEED_FORWARD}/project-{name}",
                name=f"Project the {name}" if name == "gate" else "Project up",
                inputs=(Use(path=norm, named="normalized"), f"{name}-weight"),
                outputs=(name,),
                equation=rf"<{name}> = <{norm}>\,<{name}-weight>^{{\top}}",
                reference=(
                    (lambda normalized, gate_weight: contract("b t d, f d -> b t f", normalized, gate_weight))
                    if name == "gate"
                    else (lambda normalized, up_weight: contract("b t d, f d -> b t f", normalized, up_weight))
                ),
                description=f"One matrix product gives the {name} of all hidden features.",
                explanation="No bias. Gate and up read the same features and are often computed as one product.",
                evidence=evidence,
            ),
            Tensor(
                path=f"{FEED_FORWARD}/{name}",
                name=name.capitalize(),
                symbol=symbol,
                shape=("batch", "positions", "d_mlp"),
                hook=made,
                description=text,
                explanation=why,
                evidence=evidence,
                aliases=_hook_names(
                    f"blocks.{{layer}}.mlp.{'hook_pre' if name == 'gate' else 'hook_pre_linear'}", f"mlp.{hf} (output)"
                ),
                sharded="d_mlp",
            ),
        ]  # fmt: skip
    activated = whole.call("F.silu")
    silu_evidence = _cited("activate", "SiLU of the gate.", activated, earlier=False) + swiglu
    gated_evidence = _cited("gated", "The activated gate times up.", product, earlier=False) + swiglu
    update_evidence = _cited("mlp-update", "w2 of the gated features is returned.", whole)
    down = at("FeedForward.__init__").assigns("self.w2")
    nodes += [
        Operation(
            path=f"{FEED_FORWARD}/activate",
            name="Activate the gate",
            inputs=("gate",),
            outputs=("activated-gate",),
            equation=r"<activated-gate> = \operatorname{SiLU}(<gate>) = \frac{<gate>}{1 + e^{-<gate>}}",
            reference=lambda gate: silu(gate),
            description="SiLU: the gate times its own logistic sigmoid.",
            explanation=(
                "Near zero for clearly negative inputs, close to the input for large ones, smooth between, with a dip to "
                "-0.278 at -1.28: so a closed gate leaks a little, and its gradient does not vanish. Also called swish."
            ),
            evidence=silu_evidence,
        ),
        Tensor(
            path=f"{FEED_FORWARD}/activated-gate",
            name="Activated gate",
            symbol=r"\sigma_g",
            shape=("batch", "positions", "d_mlp"),
            hook=activated,
            description="How far each hidden feature is open.",
            explanation="No probability and no switch: it is unbounded above and may be slightly negative.",
            evidence=silu_evidence,
            aliases=_hook_names("", "mlp.act_fn (output)"),
            sharded="d_mlp",
        ),
        Operation(
            path=f"{FEED_FORWARD}/multiply",
            name="Multiply gate and up",
            inputs=("activated-gate", "up"),
            outputs=("gated",),
            equation=r"<gated> = <activated-gate> \odot <up>",
            reference=lambda activated_gate, up: activated_gate * up,
            description="Let each hidden feature through as far as its gate is open.",
            explanation=(
                "A product of two readings of the same stream, so the network can respond to conjunctions: this and that. "
                "It is also where very large entries are born."
            ),
            evidence=gated_evidence,
        ),
        Tensor(
            path=f"{FEED_FORWARD}/gated",
            name="Gated features",
            symbol="m",
            shape=("batch", "positions", "d_mlp"),
            hook=product,
            description="The hidden features that are written back.",
            explanation=(
                "What interpretability work calls the neurons of a gated network. Most are small at most positions."
            ),
            evidence=gated_evidence,
            aliases=_hook_names("blocks.{layer}.mlp.hook_post", "mlp.down_proj (input)"),
            sharded="d_mlp",
        ),
        Parameter(
            path=f"{FEED_FORWARD}/down-weight",
            name="Down weight",
            symbol=r"W_{\mathrm D}",
            shape=("d_model", "d_mlp"),
            weight="layers.{layer}.feed_forward.w2.weight",
            description="Maps the gated features back to model width.",
            explanation="Meta calls it w2. Column f is what hidden feature f writes to the stream.",
            evidence=_context("down-weight", "w2 is a linear map without bias.", down, earlier=False) + width,
            aliases=_weight_names(
                "layers.{layer}.feed_forward.w2.weight", "model.layers.{layer}.mlp.down_proj.weight",
                "blk.{layer}.ffn_down.weight", "blocks.{layer}.mlp.W_out",
            ),
            built=down,
            sharded="d_mlp",
        ),
        Operation(
            path=f"{FEED_FORWARD}/project-down",
            name="Project down",
            inputs=("gated", "down-weight"),
            outputs=("feed-forward-update",),
            equation=r"<feed-forward-update> = <gated>\,<down-weight>^{\top}",
            reference=lambda gated, down_weight: contract("b t f, d f -> b t d", gated, down_weight),
            description="Write the hidden features in the language of the residual stream.",
            explanation="A sum of one column a hidden feature, each weighed by its gated value.",
            evidence=update_evidence,
        ),
        Tensor(
            path=f"{FEED_FORWARD}/feed-forward-update",
            name="Feed-forward update",
            symbol=r"\Delta_{\mathrm{mlp}}",
            shape=STREAM,
            hook=whole,
            description="What the feed-forward network adds to the residual stream.",
            explanation="Computed from this position alone; only the stream that it read was mixed by attention.",
            evidence=update_evidence + BLOCK_RESIDUALS,
            aliases=_hook_names("blocks.{layer}.hook_mlp_out", "mlp (output)"),
        ),
        Operation(
            path="blocks/feed-forward-residual",
            name="Add the feed-forward update",
            inputs=("mid-residual", "feed-forward/feed-forward-update"),
            outputs=("block-output",),
            equation=r"<block-output> = <mid-residual> + <feed-forward/feed-forward-update>",
            reference=lambda mid_residual, feed_forward_update: mid_residual + feed_forward_update,
            description="The second of the block's two residual sums.",
            explanation="In bfloat16 a small update to a large stream is partly rounded away here.",
            evidence=residual,
        ),
        Tensor(
            path="blocks/block-output",
            name="Block output",
            symbol="x_{n+1}",
            shape=STREAM,
            hook=out,
            description="The residual stream after both updates of this block.",
            explanation=(
                "It becomes the input of the next block, or of the final norm after the last. A few of its entries can be "
                "thousands of times larger than the rest at some positions; judge differences row by row, not against "
                "the largest entry."
            ),
            evidence=residual + MODEL,
            aliases=_hook_names("blocks.{layer}.hook_resid_post", "hidden_states[{layer}+1]"),
        ),
    ]  # fmt: skip
    return tuple(nodes)


def _unembedding() -> tuple[Node, ...]:
    norm_call = FORWARD.assigns("h", nth=3)
    logits = FORWARD.assigns("output")
    built = at("Transformer.__init__").assigns("self.output")
    evidence = _cited("logits", "The unembedding of the normalised stream, as float32.", logits)
    return (
        *_norm(
            "final-norm", "Final norm", "f", "blocks/block-output", norm_call,
            at("Transformer.__init__").assigns("self.norm"),
            _weight_names("norm.weight", "model.norm.weight", "output_norm.weight", "ln_final.w"),
            "norm.weight",
            ("ln_final.hook_scale", "ln_final.hook_normalized"),
            "Normalise the stream once more before it is read out.",
            "Without it the size of the stream, which grows from block to block, would set how sure the model is.",
        ),
        Component(
            path="unembedding",
            name="Unembedding",
            description="Score every token of the vocabulary as the next one.",
            explanation=(
                "One direction a token: the score is the dot product with it. In small models this matrix is a large part "
                "of all weights, and of the time of a decode step."
            ),
            evidence=_context("unembedding-built", "A linear map from dim to vocab_size, without bias.", built, earlier=False)
            + MODEL,
            module="output",
        ),
        Parameter(
            path="unembedding/weight",
            name="Unembedding matrix",
            symbol=r"W_{\mathrm U}",
            shape=("vocab", "d_model"),
            weight="output.weight",
            description="One row of model width for each token.",
            explanation="Where it is tied to the embedding, the two are one matrix in memory.",
            evidence=_context("unembedding-weight", "A linear map from dim to vocab_size, without bias.", built, earlier=False),
            aliases=_weight_names("output.weight", "lm_head.weight", "output.weight", "unembed.W_U"),
            built=built,
            sharded="vocab",
        ),
        Operation(
            path="unembedding/project",
            name="Unembed",
            inputs=(Use(path="final-norm/normalized", named="normalized"), "weight"),
            outputs=("logits",),
            equation=r"<logits> = <final-norm/normalized>\,<weight>^{\top}",
            reference=lambda normalized, weight: contract("b t d, v d -> b t v", normalized, weight),
            description="The dot product of each position with each token's direction.",
            explanation=(
                "The result is cast to float32. There is no soft cap, as Gemma 2 has one. Only the last position is "
                "needed to choose the next token; the reference computes all."
            ),
            evidence=evidence,
        ),
        Tensor(
            path="unembedding/logits",
            name="Logits",
            symbol=r"\ell",
            shape=("batch", "positions", "vocab"),
            hook=logits,
            description="A score for every token of the vocabulary, at every position computed.",
            explanation=(
                "Softmax makes probabilities of them. Row t scores the token at position t + 1. Generation libraries "
                "often keep the last row only; this is what the code computes. Split over several processes, each "
                "scores its part of the vocabulary, and the code brings the scores together on all of them."
            ),
            evidence=evidence + MODEL,
            aliases=_hook_names("logits", "logits"),
        ),
    )  # fmt: skip
