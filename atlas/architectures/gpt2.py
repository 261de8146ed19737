"""GPT-2: learned positions, LayerNorm, one matrix for queries, keys and values, a GELU network, tied ends.

Declared from `modeling_gpt2.py` of transformers, which also runs it. Row vectors; GPT-2's own matrices are stored
[in, out], the other way round than everybody else's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from atlas.architectures import _attention, _ends, _rope
from atlas.architectures._code import (
    ATTENTION,
    FEED_FORWARD,
    STREAM,
    Code,
    Config,
    names,
    refuse,
    shared,
    weight_names,
    whole,
)
from atlas.architectures._norms import layer_norm
from atlas.architectures._numeric import Array, gelu
from atlas.graph.anchors import Anchor, at
from atlas.graph.axes import Axis
from atlas.graph.nodes import Architecture, Component, Node, Operation, Parameter, Tensor, Use

ID = "gpt2"
CODE = Code("gpt2", "GPT2", block="Block", head="LMHeadModel")
SMALL: Config = {
    "vocab_size": 272,
    "n_positions": 64,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 4,
    "n_inner": None,
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
}
"""A model of a size that any machine runs at once."""

BLOCK = "transformer.h.{layer}"
AXES = (
    Axis(
        name="context",
        symbol="C",
        words="context",
        meaning="Positions that have a learned vector, and so the longest text.",
    ),
    Axis(
        name="qkv_width", symbol="3D", words="qkv width", meaning="Queries, keys and values of all heads side by side."
    ),
)
CONV1D = shared(
    "conv1d",
    "A linear map with its weight stored [in, out], and a bias.",
    "pytorch_utils.py",
    at("Conv1D.forward").assigns("x", nth=1),
)
TRANSPOSED = (
    "Stored [in, out], as OpenAI's TensorFlow code had it, where a convolution of width one did the work of a linear map; "
    "whoever loads it into an ordinary linear layer has to transpose it."
)


def sizes(config: Config) -> dict[str, int]:
    """The fixed axes, from GPT-2's configuration names (n_embd, n_layer, n_head, ...)."""
    width, heads = whole(config, "n_embd"), whole(config, "n_head")
    return {
        "layers": whole(config, "n_layer"),
        "d_model": width,
        "q_heads": heads,
        "kv_heads": heads,
        "head_dim": width // heads,
        "q_width": width,
        "qkv_width": 3 * width,
        "d_mlp": whole(config, "n_inner", 4 * width),
        "vocab": whole(config, "vocab_size"),
        "context": whole(config, "n_positions"),
        "one": 1,
    }


def declare(config: Config) -> Architecture:
    """The whole declaration for one configuration."""
    for name, wanted in (
        ("scale_attn_weights", True),
        ("scale_attn_by_inverse_layer_idx", False),
        ("reorder_and_upcast_attn", False),
        ("add_cross_attention", False),
    ):
        refuse("GPT-2", config, name, wanted)
    loops, enters = _ends.JOINED
    block, model = CODE.layer, CODE.forward
    return Architecture(
        id=ID,
        name="GPT-2",
        kind="Dense decoder",
        attention="Multi-head attention",
        summary=(
            "The decoder that most later ones are variations of. Blocks read a normalised copy of one residual stream and add "
            "to it: attention first, then a two-layer network. Position is a learned vector, added to the token's own at the "
            "very beginning and nowhere else, so the context ends where the table ends. Every head has keys and values of its "
            "own, so the cache is as wide as the stream, twice over. Every linear map has a bias, and the matrix that embeds "
            "tokens also scores them."
        ),
        reference=CODE.reference(config),
        nodes=(
            *_ends.tokens(CODE),
            *_rope.position_ids(CODE),
            *_embeddings(),
            *_ends.mask(CODE, made=model.assigns("causal_mask")),
            *_ends.block(
                CODE,
                "All blocks have the same form and each has weights of its own. Normalising before each branch, not after each "
                "sum, was GPT-2's change to GPT: it let the same recipe go from 12 layers to 48.",
                module=BLOCK,
            ),
            *_norm("attention-norm", "a", "blocks/block-input", "ln_1", block.assigns("hidden_states", nth=1)),
            *_attention_part(),
            *_ends.residual(
                CODE, "attention", block.assigns("hidden_states", nth=2), update=f"{ATTENTION}/attention-update"
            ),
            *_norm("feed-forward-norm", "m", "blocks/mid-residual", "ln_2", block.assigns("hidden_states", nth=5)),
            *_feed_forward(),
            *_ends.residual(
                CODE,
                "feed-forward",
                block.assigns("hidden_states", nth=6),
                update=f"{FEED_FORWARD}/feed-forward-update",
            ),
            *layer_norm(
                CODE,
                "final-norm",
                "Final norm",
                "f",
                "blocks/block-output",
                model.assigns("hidden_states", nth=5),
                CODE.built.assigns("self.ln_f"),
                ("transformer.ln_f.weight", "transformer.ln_f.bias"),
                (
                    weight_names("transformer.ln_f.weight", "output_norm.weight", "ln_final.w"),
                    weight_names("transformer.ln_f.bias", "output_norm.bias", "ln_final.b"),
                ),
                (
                    "Normalise the stream once more before it is read out.",
                    "Needed since the blocks only normalise what they read, never the stream.",
                ),
                lens="ln_final",
            ),
            *_ends.unembedding(CODE, tied=True),
        ),
        axes=AXES,
        sizes=sizes(config),
        settings={"norm_eps": config.get("layer_norm_epsilon", 1e-5), "group": 1},
        loops=loops,
        enters=enters,
    )


def _embeddings() -> tuple[Node, ...]:
    model = CODE.forward
    rows, places, summed = (
        model.assigns("inputs_embeds"),
        model.assigns("position_embeds"),
        model.assigns("hidden_states", nth=1),
    )
    tokens_built, positions_built = CODE.built.assigns("self.wte"), CODE.built.assigns("self.wpe")
    looked = CODE.direct("look-up", "Each token id picks one row of the embedding matrix.", rows)
    placed = CODE.direct("position-look-up", "Each position picks one row of its own table.", places)
    added = CODE.direct("add-positions", "The two rows are added.", summed)
    return (
        Component(
            path="embedding",
            name="Embedding",
            description="One learned vector a token, to which that of its position is added.",
            explanation="Two look-ups and a sum. The stream starts with what and where in one vector, and nothing keeps them apart.",
            evidence=CODE.context("embedding-built", "The embedding is a table of one row a token.", tokens_built),
            module="transformer.wte",
        ),
        Parameter(
            path="embedding/weight",
            name="Embedding matrix",
            symbol=r"W_{\mathrm E}",
            shape=("vocab", "d_model"),
            weight="transformer.wte.weight",
            description="One row of model width for each token.",
            explanation="The same matrix scores the tokens at the other end. In the 124M model it is a third of all parameters.",
            evidence=CODE.context("embedding-weight", "A table of vocabulary x width.", tokens_built),
            aliases=weight_names("transformer.wte.weight", "token_embd.weight", "embed.W_E"),
            built=tokens_built,
            sharded="vocab",
        ),
        Operation(
            path="embedding/look-up",
            name="Look up",
            inputs=("token-ids", "weight"),
            outputs=("looked-up",),
            equation=r"<looked-up> = <weight>\left[\,<token-ids>\,\right]",
            reference=lambda token_ids, weight: weight[token_ids],
            description="Pick the row of each token.",
            explanation="Only the rows that are asked for are read.",
            evidence=looked,
        ),
        Tensor(
            path="embedding/looked-up",
            name="Token vectors",
            symbol=r"x_{\mathrm t}",
            shape=STREAM,
            hook=rows,
            description="The row of each token, wherever it stands.",
            explanation="The same token gives the same row at every position.",
            evidence=looked,
            aliases=names("hook_embed"),
        ),
        Component(
            path="position-embedding",
            name="Position embedding",
            description="One learned vector a position.",
            explanation=(
                "Trained like any weight, one position as a stranger to the next: nothing in the code says that 7 is near 8. "
                "A position that was never trained has a vector that means nothing, and one beyond the table has none: rotary "
                "positions, which later models use, were made to get rid of that."
            ),
            evidence=CODE.context("position-embedding-built", "A table of one row a position.", positions_built),
            module="transformer.wpe",
        ),
        Parameter(
            path="position-embedding/weight",
            name="Position matrix",
            symbol=r"W_{\mathrm P}",
            shape=("context", "d_model"),
            weight="transformer.wpe.weight",
            description="One row of model width for each position.",
            explanation=(
                "Trained rows turn out smooth: plotted along the positions, their features are slow waves, so neighbours are "
                "alike after all."
            ),
            evidence=CODE.context("position-weight", "A table of positions x width.", positions_built),
            aliases=weight_names("transformer.wpe.weight", "position_embd.weight", "pos_embed.W_pos"),
            built=positions_built,
        ),
        Operation(
            path="position-embedding/look-up",
            name="Look up positions",
            inputs=("position-ids", "weight"),
            outputs=("position-vectors",),
            equation=r"<position-vectors> = <weight>\left[\,<position-ids>\,\right]",
            reference=lambda position_ids, weight: weight[position_ids],
            description="Pick the row of each position.",
            explanation="In a decode step it is one row: that of the step's own position.",
            evidence=placed,
        ),
        Tensor(
            path="position-embedding/position-vectors",
            name="Position vectors",
            symbol=r"x_{\mathrm p}",
            shape=("one", "positions", "d_model"),
            hook=places,
            description="The row of each position, whatever token stands there.",
            explanation="One row for all sequences of the batch.",
            evidence=placed,
            aliases=names("hook_pos_embed"),
        ),
        Operation(
            path="embedding/add-positions",
            name="Add positions",
            inputs=("looked-up", Use(path="position-embedding/position-vectors", named="position_vectors")),
            outputs=("embedded",),
            equation=r"<embedded> = <looked-up> + <position-embedding/position-vectors>",
            reference=lambda looked_up, position_vectors: looked_up + position_vectors,
            description="One vector that says which token, and where.",
            explanation=(
                "The only place where position enters. Every layer after it has to find it in the stream again, and attention "
                "by distance has to be learned from absolute places."
            ),
            evidence=added,
        ),
        Tensor(
            path="embedding/embedded",
            name="Embedded tokens",
            symbol="x_0",
            shape=STREAM,
            hook=summed,
            description="The residual stream as it enters the first block.",
            explanation="Dropout follows in the code; it does nothing outside training.",
            evidence=added,
            aliases=names("", "hidden_states[0]"),
        ),
    )


def _norm(leaf: str, letter: str, source: str, module: str, call: Anchor) -> tuple[Node, ...]:
    first = leaf == "attention-norm"
    gguf, lens = ("attn_norm", "ln1") if first else ("ffn_norm", "ln2")
    return layer_norm(
        CODE,
        f"blocks/{leaf}",
        "Attention norm" if first else "Feed-forward norm",
        letter,
        source,
        call,
        CODE.at("Block.__init__").assigns(f"self.{module}"),
        (f"{BLOCK}.{module}.weight", f"{BLOCK}.{module}.bias"),
        (
            weight_names(f"{BLOCK}.{module}.weight", f"blk.{{layer}}.{gguf}.weight", f"blocks.{{layer}}.{lens}.w"),
            weight_names(f"{BLOCK}.{module}.bias", f"blk.{{layer}}.{gguf}.bias", f"blocks.{{layer}}.{lens}.b"),
        ),
        (
            f"Normalise what {'attention' if first else 'the feed-forward network'} reads.",
            "It stands before the branch; in the first GPT it stood after the sum, and deep models would not train."
            if first
            else "A gain and a bias of its own, so the two branches may see the same features differently.",
        ),
        lens=f"blocks.{{layer}}.{lens}",
    )


def _matrix(
    path: str,
    name: str,
    letter: str,
    shape: tuple[str, str],
    module: str,
    built: Anchor,
    gguf: str,
    lens: str,
    texts: tuple[str, str],
) -> tuple[Node, ...]:
    """One of GPT-2's own linear maps: a weight stored [in, out], and a bias."""
    weight = f"{BLOCK}.{module}"
    where = CODE.context(f"{path}-built", "A Conv1D: a linear map stored the other way round.", built) + CONV1D
    return (
        Parameter(
            path=f"{path}-weight",
            name=f"{name} weight",
            symbol=rf"W_{{\mathrm {letter}}}",
            shape=shape,
            weight=f"{weight}.weight",
            description=texts[0],
            explanation=TRANSPOSED,
            evidence=where,
            aliases=weight_names(
                f"{weight}.weight", f"blk.{{layer}}.{gguf}.weight", f"blocks.{{layer}}.{lens}", "transposed"
            ),
            built=built,
        ),
        Parameter(
            path=f"{path}-bias",
            name=f"{name} bias",
            symbol=rf"b_{{\mathrm {letter}}}",
            shape=(shape[1],),
            weight=f"{weight}.bias",
            description="Added at every position.",
            explanation=texts[1],
            evidence=where,
            aliases=weight_names(f"{weight}.bias", f"blk.{{layer}}.{gguf}.bias"),
            built=built,
        ),
    )


def _mapped(x: Array, weight: Array, bias: Array) -> Array:
    """x W + b, the weight stored [in, out]."""
    result: Array = x @ weight + bias
    return result


def _attention_part() -> tuple[Node, ...]:
    attend = CODE.attend
    init = CODE.at("Attention.__init__")
    fused = attend.call("self.c_attn", nth=2)
    update = attend.assigns("attn_output", nth=4)
    together = CODE.direct("project", "One call gives queries, keys and values.", fused)
    nodes: list[Node] = [
        _attention.component(
            CODE,
            "The only place where positions exchange information. Each head has queries, keys and values of its own, so the "
            "cache holds as many keys and values as there are queries: later models let several query heads share them.",
            module=f"{BLOCK}.attn",
        ),
        *_matrix(
            f"{ATTENTION}/queries-keys-values", "Query, key and value", "QKV", ("d_model", "qkv_width"), "attn.c_attn",
            init.assigns("self.c_attn", nth=2), "attn_qkv", "attn.W_Q, W_K, W_V",
            (
                "Projects the normalised features to queries, keys and values of all heads at once.",
                "A bias of the keys alone changes nothing: it adds the same number to all similarities of a query.",
            ),
        ),
        Operation(
            path=f"{ATTENTION}/project",
            name="Project queries, keys and values",
            inputs=(
                Use(path="blocks/attention-norm/normalized", named="x"),
                Use(path="queries-keys-values-weight", named="weight"),
                Use(path="queries-keys-values-bias", named="bias"),
            ),
            outputs=("queries-keys-values",),
            equation=r"<queries-keys-values> = <blocks/attention-norm/normalized>\,<queries-keys-values-weight> + <queries-keys-values-bias>",
            reference=_mapped,
            description="One matrix product for all three.",
            explanation="One large product keeps a machine busier than three small ones; that is all the fusion is for.",
            evidence=together + CONV1D,
        ),
        Tensor(
            path=f"{ATTENTION}/queries-keys-values",
            name="Queries, keys and values",
            symbol="[Q;K;V]",
            shape=("batch", "positions", "qkv_width"),
            hook=fused,
            description="Three thirds: the queries of all heads, then the keys, then the values.",
            explanation="Within each third the heads follow one another.",
            evidence=together,
            sharded="qkv_width",
        ),
    ]  # fmt: skip
    for letter, name, place, third, text in (
        ("Q", "queries", attend.assigns("query_states", nth=3), 0, "What each position looks for, one vector a head."),
        (
            "K",
            "keys",
            attend.assigns("key_states", nth=5),
            1,
            "What each position offers to be found by, one vector a head.",
        ),
        (
            "V",
            "values",
            attend.assigns("value_states", nth=5),
            2,
            "What each position hands over when it is attended to.",
        ),
    ):
        cut = CODE.direct(f"cut-{name}", f"The {name} are cut into heads.", place)
        split = attend.assigns("query_states", nth=2)
        nodes += [
            Operation(
                path=f"{ATTENTION}/cut-{name}",
                name=f"Cut {name} into heads",
                inputs=(Use(path="queries-keys-values", named="fused"),),
                outputs=(name,),
                equation=rf"<{name}>_{{j,t,i}} = <queries-keys-values>_{{t,\,{f'{third}D + ' if third else ''}jh+i}}",
                reference=_third(third),
                description=f"Take the {('first', 'second', 'last')[third]} third, and put heads before positions.",
                explanation="Moves numbers and computes nothing.",
                evidence=cut + CODE.context("split", "The fused product is cut into three.", split),
            ),
            Tensor(
                path=f"{ATTENTION}/{name}",
                name=name.capitalize(),
                symbol=letter,
                shape=("batch", "q_heads" if third == 0 else "kv_heads", "positions", "head_dim"),
                hook=place,
                description=text,
                explanation=(
                    "Position is in it as far as the stream that was read tells it: nothing is rotated."
                    if third < 2
                    else "Values go into the mix as they are."
                ),
                evidence=cut,
                aliases=names(f"blocks.{{layer}}.attn.hook_{letter.lower()}", "", "[batch, position, head, feature]"),
                sharded="q_heads" if third == 0 else "kv_heads",
            ),
        ]
    nodes += [
        *_attention.caches(
            CODE,
            1,
            keys="keys",
            made=(attend.assigns("key_states", nth=6), attend.assigns("value_states", nth=6)),
            heads_second=(True, True),
            repeated=False,
        ),
        *_attention.scores(CODE, queries="queries", keys="key-cache"),
        *_attention.weights(CODE, upcast=False),
        *_attention.mixing(CODE, values="value-cache", merged=attend.assigns("attn_output", nth=3)),
        *_matrix(
            f"{ATTENTION}/output", "Output", "O", ("q_width", "d_model"), "attn.c_proj", init.assigns("self.c_proj"),
            "attn_output", "attn.W_O",
            ("Maps the merged heads back to model width.", "What a layer writes whatever it has read."),
        ),
        Operation(
            path=f"{ATTENTION}/output-projection",
            name="Output projection",
            inputs=(
                Use(path="merged-heads", named="x"),
                Use(path="output-weight", named="weight"),
                Use(path="output-bias", named="bias"),
            ),
            outputs=("attention-update",),
            equation=r"<attention-update> = <merged-heads>\,<output-weight> + <output-bias>",
            reference=_mapped,
            description="Write what the heads have collected in the language of the residual stream.",
            explanation="A sum of one term a head, which is what makes it possible to ask how much a single head added.",
            evidence=CODE.direct("attn-update", "The output projection of the merged heads.", update) + CONV1D,
        ),
        _attention.update_tensor(CODE, update, evidence_key="attn-update"),
    ]  # fmt: skip
    return tuple(nodes)


def _third(number: int) -> Callable[..., Any]:
    def cut(fused: Array, head_dim: int) -> Array:
        part = np.split(fused, 3, axis=-1)[number]
        return np.moveaxis(part.reshape(*part.shape[:2], -1, head_dim), 2, 1)

    return cut


def _feed_forward() -> tuple[Node, ...]:
    place, init = CODE.at("MLP.forward"), CODE.at("MLP.__init__")
    up, active, down = (place.assigns("hidden_states", nth=number) for number in (1, 2, 3))
    formula = shared(
        "gelu", "GELU by its tanh approximation.", "activations.py", at("NewGELUActivation.forward").returns()
    )
    widened = CODE.direct("project-up", "The first linear map.", up)
    activated = CODE.direct("activate", "The activation named in the configuration, gelu_new.", active) + formula
    update = CODE.direct("mlp-update", "The second linear map.", down)
    return (
        Component(
            path=FEED_FORWARD,
            name="Feed-forward",
            description="A two-layer network, applied to each position alone.",
            explanation=(
                "Four times as wide as the stream. Each hidden feature reads one direction, and writes another as far as the "
                "first is present; there is no gate. Two thirds of a block's weights are here."
            ),
            evidence=CODE.context("mlp-call", "The block calls it on normalised input.", CODE.layer),
            module=f"{BLOCK}.mlp",
        ),
        *_matrix(
            f"{FEED_FORWARD}/up", "Up", r"in", ("d_model", "d_mlp"), "mlp.c_fc", init.assigns("self.c_fc"), "ffn_up", "mlp.W_in",
            ("Projects the normalised features to the hidden ones.", "Sets how much of its direction a feature needs to fire."),
        ),
        Operation(
            path=f"{FEED_FORWARD}/project-up",
            name="Project up",
            inputs=(
                Use(path="blocks/feed-forward-norm/normalized", named="x"),
                Use(path="up-weight", named="weight"),
                Use(path="up-bias", named="bias"),
            ),
            outputs=("up",),
            equation=r"<up> = <blocks/feed-forward-norm/normalized>\,<up-weight> + <up-bias>",
            reference=_mapped,
            description="How much of each hidden feature's direction is there.",
            explanation="The first half of the network's cost; the second is as large.",
            evidence=widened + CONV1D,
        ),
        Tensor(
            path=f"{FEED_FORWARD}/up",
            name="Up",
            symbol="u",
            shape=("batch", "positions", "d_mlp"),
            hook=up,
            description="The hidden features before their activation.",
            explanation="Most are negative after training, and so will be nearly closed.",
            evidence=widened,
            aliases=names("blocks.{layer}.mlp.hook_pre", "mlp.c_fc (output)"),
            sharded="d_mlp",
        ),
        Operation(
            path=f"{FEED_FORWARD}/activate",
            name="Activate",
            inputs=("up",),
            outputs=("activated",),
            equation=(
                r"<activated> = \operatorname{GELU}(<up>) \approx \tfrac{1}{2}\,<up>"
                r"\left(1 + \tanh\!\left[\sqrt{2/\pi}\left(<up> + 0.044715\,<up>^3\right)\right]\right)"
            ),
            reference=lambda up: gelu(up),
            description="GELU: each feature times the chance that a normal number is below it.",
            explanation=(
                "The tanh form is GPT-2's own, from when the exact one was slow; the two differ by up to 0.0005, enough to "
                "see when models are compared number by number."
            ),
            evidence=activated,
        ),
        Tensor(
            path=f"{FEED_FORWARD}/activated",
            name="Activated features",
            symbol="m",
            shape=("batch", "positions", "d_mlp"),
            hook=active,
            description="The hidden features that are written back.",
            explanation="What interpretability work calls the neurons. Few are large at any one position.",
            evidence=activated,
            aliases=names("blocks.{layer}.mlp.hook_post", "mlp.c_proj (input)"),
            sharded="d_mlp",
        ),
        *_matrix(
            f"{FEED_FORWARD}/down", "Down", "out", ("d_mlp", "d_model"), "mlp.c_proj", init.assigns("self.c_proj"), "ffn_down",
            "mlp.W_out",
            ("Maps the hidden features back to model width.", "What the network writes when no feature fires."),
        ),
        Operation(
            path=f"{FEED_FORWARD}/project-down",
            name="Project down",
            inputs=(
                Use(path="activated", named="x"),
                Use(path="down-weight", named="weight"),
                Use(path="down-bias", named="bias"),
            ),
            outputs=("feed-forward-update",),
            equation=r"<feed-forward-update> = <activated>\,<down-weight> + <down-bias>",
            reference=_mapped,
            description="Write the hidden features in the language of the residual stream.",
            explanation="A sum of one row a hidden feature, each weighed by its activation.",
            evidence=update + CONV1D,
        ),
        Tensor(
            path=f"{FEED_FORWARD}/feed-forward-update",
            name="Feed-forward update",
            symbol=r"\Delta_{\mathrm{mlp}}",
            shape=STREAM,
            hook=down,
            description="What the feed-forward network adds to the residual stream.",
            explanation="Computed from this position alone; only the stream that it read was mixed by attention.",
            evidence=update,
            aliases=names("blocks.{layer}.hook_mlp_out", "mlp (output)"),
        ),
    )  # fmt: skip
