"""The words of the atlas: what each means, and the node where it can be seen."""

from __future__ import annotations

from dataclasses import dataclass

from atlas.catalog import Model
from atlas.web import prose
from atlas.web.contexts import GlossaryEntry
from atlas.web.pieces import Link
from atlas.web.state import node_href


@dataclass(frozen=True)
class Term:
    """`path` is where to look, in models that have it."""

    name: str
    text: str
    path: str = ""


TERMS = (
    Term("Anchor", "Where in a source file a value comes to be, said by structure and not by line. It gives the citation, the excerpt and the place where the value is captured."),
    Term("Attention head", "One of several attentions side by side, each with queries, keys and values of its own. Heads meet only in the output projection.", "blocks/attention/head-outputs"),
    Term("Attention weights", "For each head and query, how its attention is divided over the keys: after softmax, so each row sums to one. Also *pattern*.", "blocks/attention/attention-weights"),
    Term("Axis", "A direction of a tensor, known by name: batch, positions, d_model. Its size is fixed by the configuration, or by the input."),
    Term("Block", "One of the identical parts that models are stacked of, each with weights of its own. Also *layer*.", "blocks"),
    Term("Cache, KV", "The keys and values of all positions so far, kept so that a decode step need not compute them again.", "blocks/attention/key-cache"),
    Term("Causal mask", "Minus infinity for every key that is later than its query, added before softmax.", "causal-mask"),
    Term("Decode", "A pass over one new position, which attends to all before it through the cache. Step k computes position P + k − 1."),
    Term("d_model", "How many features the residual stream has at each position.", "blocks/block-input"),
    Term("d_mlp", "How many hidden features the feed-forward network has.", "blocks/feed-forward/gated"),
    Term("Embedding", "The table that gives each token its first vector.", "embedding"),
    Term("Evidence", "A claim with a citation: *direct* where the cited lines compute the node, *contextual* where they surround it, *erratum* where the source is wrong."),
    Term("Feed-forward network", "The half of a block that works on each position alone.", "blocks/feed-forward"),
    Term("Full sequence", "All tokens of a finished run in one pass without history, as in training."),
    Term("Grouped-query attention", "Several query heads share each pair of key and value heads, so the cache is smaller by as much.", "blocks/attention/repeated-keys"),
    Term("head_dim", "How many features one head has.", "blocks/attention/queries"),
    Term("Key", "What a position offers to be found by.", "blocks/attention/keys"),
    Term("Light", "The mark that ties a symbol, a node of the diagram and a stretch of code that are the same thing."),
    Term("Logits", "A score for every token of the vocabulary, at each position. Softmax makes probabilities of them.", "unembedding/logits"),
    Term("Node", "Anything with a page: a component, an operation, a tensor, a parameter or a cache."),
    Term("Prefill", "The prompt in one pass, which fills the cache: step 0."),
    Term("Query", "What a position looks for.", "blocks/attention/queries"),
    Term("Reference code", "The code that a model's publisher, or a library, gives for it. It runs here unmodified.",),
    Term("Residual stream", "The vectors that run through all blocks. A block reads a copy and adds to it; nothing replaces it.", "blocks/block-output"),
    Term("RMSNorm", "Each position divided by the root of the mean of its squares, times a learned gain. Like LayerNorm, without mean and bias.", "blocks/attention-norm"),
    Term("RoPE", "Rotary position embedding: pairs of features of queries and keys are turned by an angle in proportion to their position.", "rotary"),
    Term("Run", "One prompt taken through prefill and decode. Its numbers can be looked at for as long as it is kept."),
    Term("Similarities", "The products of queries with keys. After division by the root of head_dim: *scaled similarities*, elsewhere often *scores*.", "blocks/attention/similarities"),
    Term("SiLU", "x times its logistic sigmoid, also *swish*: the activation inside SwiGLU.", "blocks/feed-forward/activate"),
    Term("Softmax", "Exponentials divided by their sum: from any numbers to shares that sum to one.", "blocks/attention/softmax"),
    Term("Stand-in", "The model whose numbers are shown where a page's own model has no weights here."),
    Term("SwiGLU", "A feed-forward network with a gate: SiLU of one projection, times another.", "blocks/feed-forward/multiply"),
    Term("Token", "A piece of text that the tokenizer knows, and its number.", "token-ids"),
    Term("Unembedding", "The matrix with one direction a token, which scores every token as the next. *Tied* if it is the embedding's.", "unembedding"),
    Term("Value", "What a position hands over where it is attended to. The numbers of a tensor are *live values*.", "blocks/attention/values"),
    Term("View", "Full sequence, prefill or decode: three ways of running the same code, with different shapes."),
)  # fmt: skip


def glossary(model: Model) -> tuple[GlossaryEntry, ...]:
    """All terms in order, each with a link to its node in this model."""
    return tuple(
        GlossaryEntry(
            id=term.name.lower().replace(" ", "-").replace(",", ""),
            name=term.name,
            text=prose.inline(term.text),
            node=Link(model.graph[term.path].name, node_href(model.id, term.path))
            if term.path in model.graph.nodes
            else None,
        )
        for term in sorted(TERMS, key=lambda term: term.name.casefold())
    )
