"""The two ends of a decoder and the frame of its blocks: tokens, embedding, mask, residual sums, logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from atlas.architectures._attention import LOWEST
from atlas.architectures._code import STREAM, Code, names, shared, weight_names
from atlas.architectures._numeric import Array, linear
from atlas.graph.anchors import Anchor, at
from atlas.graph.evidence import Evidence
from atlas.graph.nodes import Alias, Component, Node, Operation, Parameter, Tensor, Use

Reference = Callable[..., Any]
TIED = "It is tied to the embedding: one matrix in memory, used at both ends."
UNTIED = "It is a matrix of its own, not the embedding used again."


def tokens(code: Code) -> tuple[Node, ...]:
    """The token ids."""
    return (
        Tensor(
            path="token-ids",
            name="Token ids",
            symbol=r"\mathbf{t}",
            shape=("batch", "positions"),
            hook=code.forward.argument("input_ids"),
            description="The tokens of this pass, as rows of the vocabulary.",
            explanation=(
                "The numbers that a tokenizer gives to pieces of text. They carry no order or distance. In a decode step "
                "there is one: the token chosen last."
            ),
            evidence=code.direct("token-ids", "The pass takes token ids.", code.forward.argument("input_ids")),
            aliases=names("tokens", "input_ids"),
        ),
    )


def embedding(
    code: Code,
    *,
    weight: str = "model.embed_tokens.weight",
    tied: bool = False,
    explanation: str = "",
    rows: Anchor | None = None,
    output: str = "embedded",
) -> tuple[Node, ...]:
    """The look-up. Where its rows (made at `rows`) are not yet the stream, `output` names them otherwise."""
    attribute = weight.rsplit(".", 2)[-2]
    built = code.built.assigns(f"self.{attribute}")
    made = rows or code.forward.assigns("inputs_embeds")
    claim = "Each token id picks one row of the embedding matrix."
    nodes: list[Node] = [
        Component(
            path="embedding",
            name="Embedding",
            description="One learned vector a token: where the residual stream begins.",
            explanation=explanation or "A look-up, not a computation: only the rows that are asked for are read.",
            evidence=code.context("embedding-built", "The embedding is a table of one row a token.", built),
            module=weight.removesuffix(".weight"),
        ),
        Parameter(
            path="embedding/weight",
            name="Embedding matrix",
            symbol=r"W_{\mathrm E}",
            shape=("vocab", "d_model"),
            weight=weight,
            description="One row of model width for each token.",
            explanation=(
                "The same matrix scores the tokens at the other end."
                if tied
                else UNTIED.replace("embedding", "unembedding")
            ),
            evidence=code.context("embedding-weight", "A table of vocabulary x width.", built),
            aliases=weight_names(weight, "token_embd.weight", "embed.W_E"),
            built=built,
            sharded="vocab",
        ),
        Operation(
            path="embedding/look-up",
            name="Look up",
            inputs=("token-ids", "weight"),
            outputs=(output,),
            equation=rf"<{output}> = <weight>\left[\,<token-ids>\,\right]",
            reference=lambda token_ids, weight: weight[token_ids],
            description="Pick the row of each token.",
            explanation="A token gets the same vector wherever it stands; position enters later.",
            evidence=code.direct("look-up", claim, made),
        ),
    ]
    if output == "embedded":
        nodes.append(embedded(code.direct("embedded", claim, made), made))
    else:
        nodes.append(
            Tensor(
                path=f"embedding/{output}",
                name="Looked-up rows",
                symbol=r"\hat x_0",
                shape=STREAM,
                hook=made,
                description="The rows of the embedding matrix, before they are scaled.",
                explanation="Small beside what the blocks will add; that is why they are scaled.",
                evidence=code.direct("looked-up", claim, made),
            )
        )
    return tuple(nodes)


def embedded(evidence: tuple[Evidence, ...], made: Anchor) -> Tensor:
    """The stream as it enters the first block."""
    return Tensor(
        path="embedding/embedded",
        name="Embedded tokens",
        symbol="x_0",
        shape=STREAM,
        hook=made,
        description="The residual stream as it enters the first block.",
        explanation=(
            "Every later value of the stream is this plus what the blocks have added, so the token at a position stays "
            "readable deep into the model."
        ),
        evidence=evidence,
        aliases=names("hook_embed", "hidden_states[0]"),
    )


def mask(
    code: Code,
    *,
    path: str = "causal-mask",
    operation: str = "build-mask",
    made: Anchor,
    windowed: bool = False,
    symbol: str = "M",
    keys: str = "keys",
) -> tuple[Node, ...]:
    """A mask of zeros and the lowest number. `windowed`: keys that have left the window are hidden too."""
    evidence = code.direct(path, "The mask is made once a pass and handed to the blocks.", made) + shared(
        "eager-mask",
        "Zero where a query may attend, the lowest number of the dtype elsewhere.",
        "masking_utils.py",
        at("eager_mask").assigns("mask", nth=1).through(at("eager_mask").returns()),
    )
    if windowed:
        evidence += shared(
            "sliding-window",
            "A key must be within the window of its query.",
            "masking_utils.py",
            at("sliding_window_overlay"),
        )
    reach = r"t_0 + t - <#window> < u \le t_0 + t" if windowed else r"u \le t_0 + t"
    return (
        Operation(
            path=operation,
            name="Build the sliding-window mask" if windowed else "Build the causal mask",
            inputs=(Use(path="token-ids", lends=True),),
            outputs=(path,),
            equation=rf"<{path}>_{{t,u}} = \begin{{cases}} 0 & {reach} \\ -3.4 \cdot 10^{{38}} & \text{{else}} \end{{cases}}",
            reference=_window_mask if windowed else _causal_mask,
            description=(
                "Forbid each position to look at those after it, and at those beyond the window."
                if windowed
                else "Forbid each position to look at those after it."
            ),
            explanation=(
                "Only the number of tokens is used, not which they are. "
                + LOWEST
                + (
                    " A window makes the cost of a long context grow in proportion to it. Information still travels further, "
                    "one window a layer."
                    if windowed
                    else ""
                )
            ),
            evidence=evidence,
        ),
        Tensor(
            path=path,
            name="Sliding-window mask" if windowed else "Causal mask",
            symbol=symbol,
            shape=("batch", "one", "queries", keys),
            hook=made,
            description="Zero where a query may attend, the lowest number where it may not.",
            explanation="One row a query. Made in a decode step too, where it is all zeros.",
            evidence=evidence,
            aliases=names("", "attention_mask"),
        ),
    )


def _hidden(queries: Array, keys: Array, window: float) -> Array:
    seen = (keys <= queries) & (keys > queries - window)
    return np.where(seen, 0.0, np.finfo(np.float32).min)[None, None]


def _causal_mask(start_pos: int, positions: int) -> Array:
    return _hidden(start_pos + np.arange(positions)[:, None], np.arange(start_pos + positions)[None], np.inf)


def _window_mask(start_pos: int, positions: int, window: int) -> Array:
    first = start_pos - min(start_pos, window - 1)
    return _hidden(start_pos + np.arange(positions)[:, None], np.arange(first, start_pos + positions)[None], window)


def block(
    code: Code,
    explanation: str,
    *,
    description: str = "",
    module: str = "model.layers.{layer}",
    loop: int | None = None,
) -> tuple[Node, ...]:
    """The block, and the stream as it comes in. `loop` counts the loops of the pass, where there are several."""
    entry = code.layer.argument("hidden_states")
    return (
        Component(
            path="blocks",
            name="Transformer block",
            plural="transformer blocks",
            repeat="layers",
            description=description or "Two updates of the residual stream: attention, then the feed-forward network.",
            explanation=explanation,
            evidence=code.context("block", "What a block does, step by step.", code.layer)
            + code.context("model", "The blocks run one after another.", code.forward.loop(loop)),
            module=module,
        ),
        Tensor(
            path="blocks/block-input",
            name="Block input",
            symbol="x_n",
            shape=STREAM,
            hook=entry,
            description="The residual stream as this block finds it.",
            explanation="For layer 0 the embedding, for every other layer what the block before has left.",
            evidence=code.direct("block-input", "The block takes the stream as its argument.", entry),
            aliases=names("blocks.{layer}.hook_resid_pre", "hidden_states[{layer}]"),
        ),
    )


def residual(
    code: Code,
    which: str,
    made: Anchor,
    *,
    update: str,
    explanation: str = "",
    factor: str = "",
    reference: Reference = lambda stream, update: stream + update,
) -> tuple[Node, ...]:
    """One of a block's two residual sums: `which` is "attention" or "feed-forward", `update` what is added.

    `factor` is TeX that stands before the update, `reference` what then computes the sum.
    """
    first = which == "attention"
    source, target = ("block-input", "mid-residual") if first else ("mid-residual", "block-output")
    evidence = code.direct(f"{which}-residual", "The update is added to what came in.", made)
    text = explanation or (
        "The stream goes past the branch unchanged, so gradients and information have a path through the whole model that "
        "no weight can block."
        if first
        else "In bfloat16 a small update to a large stream is partly rounded away here."
    )
    return (
        Operation(
            path=f"blocks/{which}-residual",
            name=f"Add the {which} update",
            inputs=(Use(path=f"blocks/{source}", named="stream"), Use(path=update, named="update")),
            outputs=(target,),
            equation=rf"<{target}> = <{source}> + {factor}<{update}>",
            reference=reference,
            description="The first of the block's two residual sums."
            if first
            else "The second of the block's residual sums.",
            explanation=text,
            evidence=evidence,
        ),
        Tensor(
            path=f"blocks/{target}",
            name="Mid residual" if first else "Block output",
            symbol="h_n" if first else "x_{n+1}",
            shape=STREAM,
            hook=made,
            description=(
                "The residual stream between the two updates of a block."
                if first
                else "The residual stream after both updates of this block."
            ),
            explanation=(
                "Attention has spoken; the feed-forward network reads this next."
                if first
                else "The next block's input, or the final norm's after the last. A few entries can be thousands of times "
                "larger than the rest at some positions: judge differences row by row."
            ),
            evidence=evidence,
            aliases=names(
                "blocks.{layer}.hook_resid_mid" if first else "blocks.{layer}.hook_resid_post",
                "" if first else "hidden_states[{layer}+1]",
            ),
        ),
    )


def unembedding(
    code: Code, *, tied: bool, explanation: str = "", nth: int | None = None, output: str = "logits"
) -> tuple[Node, ...]:
    """The scores of all tokens. `nth` counts what `logits` is assigned, where that is several times.

    Where what the matrix gives is not yet the logits, `output` names it otherwise.
    """
    head = code.at(f"{code.head}.forward")
    built = code.at(f"{code.head}.__init__").assigns("self.lm_head")
    logits = head.assigns("logits", nth=nth)
    evidence = code.direct("logits", "The normalised stream against one direction a token.", logits)
    gguf: tuple[Alias, ...] = weight_names(
        "lm_head.weight", "token_embd.weight" if tied else "output.weight", "unembed.W_U"
    )
    return (
        Component(
            path="unembedding",
            name="Unembedding",
            description="Score every token of the vocabulary as the next one.",
            explanation=explanation
            or f"One direction a token: the score is the dot product with it. {TIED if tied else UNTIED}",
            evidence=code.context("unembedding-built", "A linear map from width to vocabulary, without bias.", built),
            module="lm_head",
        ),
        Parameter(
            path="unembedding/weight",
            name="Unembedding matrix",
            symbol=r"W_{\mathrm U}",
            shape=("vocab", "d_model"),
            weight="lm_head.weight",
            description="One row of model width for each token.",
            explanation=TIED if tied else UNTIED,
            evidence=code.context("unembedding-weight", "A linear map from width to vocabulary, without bias.", built),
            aliases=gguf,
            built=built,
            sharded="vocab",
        ),
        Operation(
            path="unembedding/project",
            name="Unembed",
            inputs=(Use(path="final-norm/normalized", named="x"), "weight"),
            outputs=(output,),
            equation=rf"<{output}> = <final-norm/normalized>\,<weight>^{{\top}}",
            reference=linear,
            description="The dot product of each position with each token's direction.",
            explanation=(
                "Only the last position is needed to choose the next token, and generation asks for that one alone; here all "
                "are computed."
            ),
            evidence=evidence,
        ),
        logits_tensor(evidence, logits, output),
    )


def logits_tensor(evidence: tuple[Evidence, ...], made: Anchor, leaf: str = "logits") -> Tensor:
    """The scores, at the end or (by another name) one step before it."""
    end = leaf == "logits"
    return Tensor(
        path=f"unembedding/{leaf}",
        name=leaf.replace("-", " ").capitalize(),
        symbol=r"\ell" if end else r"\hat\ell",
        shape=("batch", "positions", "vocab"),
        hook=made,
        description="A score for every token of the vocabulary, at every position computed.",
        explanation=(
            "Softmax makes probabilities of them. Row t scores the token at position t + 1."
            if end
            else "Not yet the numbers that softmax takes."
        ),
        evidence=evidence,
        aliases=names("logits", "logits") if end else (),
    )


JOINED: tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = (
    (("blocks/block-output", "blocks/block-input"),),
    (("embedding/embedded", "blocks/block-input"),),
)
"""How blocks are joined to each other, and to what comes before."""
