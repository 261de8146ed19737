"""The guided walk: from a prompt to the next token, then one decode step, page by page.

Owns the order of the stops and what is said at each. A stop is an ordinary page of the model whose weights are here, in
a view, at a layer; `walk=N` in its address puts the text of stop N on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from atlas.catalog import Model
from atlas.graph.axes import View
from atlas.web import prose
from atlas.web.pieces import Link, WalkStop
from atlas.web.state import State


@dataclass(frozen=True)
class Stop:
    """One page of the walk. `last_layer` looks at the last block instead of the first."""

    path: str
    view: View
    title: str
    text: str
    last_layer: bool = False


STOPS = (
    Stop(
        "token-ids",
        "prefill",
        "Text becomes numbers",
        "A model reads no letters. A tokenizer has cut the prompt into pieces that it knows and numbered them. Below are "
        "the prompt's tokens and the ones that were generated after it. This pass, the *prefill*, takes all of the "
        "prompt at once.",
    ),
    Stop(
        "embedding/embedded",
        "prefill",
        "Each number picks a vector",
        "The number of a token is the number of a row of a large table. From here on every position is a vector as wide "
        "as the model. Look at two rows of the picture: the same token would give the same row, wherever it stood.",
    ),
    Stop(
        "blocks/block-input",
        "prefill",
        "The residual stream begins",
        "These vectors are the *residual stream*: the heavy line in the diagram. All blocks, one after another, read "
        "it and add to it. Nothing ever replaces it. This is the first block, layer 0; the slider takes you to others.",
    ),
    Stop(
        "blocks/attention-norm/normalized",
        "prefill",
        "A copy is brought to size",
        "A block does not read the stream itself but a copy in which every position has the same size. So what it sees "
        "is a direction. The stream stays as it was.",
    ),
    Stop(
        "blocks/attention/queries",
        "prefill",
        "What each position looks for",
        "One matrix product turns the copy into *queries*, two others into *keys* and *values*, for several heads side "
        "by side. A query says what a position looks for, a key what it can be found by, a value what it hands over.",
    ),
    Stop(
        "blocks/attention/rotated-queries",
        "prefill",
        "Position comes in as an angle",
        "So far the model cannot tell which token came first. Now pairs of features of each query and key are turned by "
        "an angle in proportion to the position. The product of two turned vectors then depends on how far apart they "
        "stand.",
    ),
    Stop(
        "blocks/attention/key-cache",
        "prefill",
        "Keys and values are kept",
        "Later positions will want to look back at these keys and values, so they are put into a cache, in every layer. "
        "That is why the first pass is called a prefill. We will come back here in the decode step.",
    ),
    Stop(
        "blocks/attention/similarities",
        "prefill",
        "Every query meets every key",
        "One number for each pair of positions and each head: the product of a query and a key. Rows are queries, "
        "columns are keys. It is a square, and its size grows with the square of the prompt.",
    ),
    Stop(
        "blocks/attention/scaled-similarities",
        "prefill",
        "The numbers are held small",
        "A sum of many products is large just because there are many. Dividing by the root of their number keeps the "
        "next step, softmax, from jumping to all or nothing.",
    ),
    Stop(
        "blocks/attention/masked-similarities",
        "prefill",
        "Nobody looks ahead",
        "A position may look at itself and at those before it. Everything above the diagonal becomes minus infinity. The "
        "statistics count those cells and leave them out of the mean.",
    ),
    Stop(
        "blocks/attention/attention-weights",
        "prefill",
        "Similarities become shares",
        "Softmax turns each row into shares that sum to one. Look along a row: where does this token look? Many heads "
        "park most of their weight on the first token, which is how a head says that it found nothing.",
    ),
    Stop(
        "blocks/attention/head-outputs",
        "prefill",
        "Values are mixed",
        "Each head takes the mean of all values, weighed by these shares. This is the only place in the whole model "
        "where something moves from one position to another.",
    ),
    Stop(
        "blocks/attention/attention-update",
        "prefill",
        "The heads write together",
        "The heads' outputs are put side by side and one matrix turns them into a single vector of model width: what "
        "attention adds here. Its last row is what the last token has learned from those before it.",
    ),
    Stop(
        "blocks/mid-residual",
        "prefill",
        "Added, not replaced",
        "The update is added to the stream: the first plus in the diagram. The old content is still in the sum.",
    ),
    Stop(
        "blocks/feed-forward/gated",
        "prefill",
        "Each position thinks for itself",
        "The second half of the block looks at one position at a time. It computes many hidden features, each of them a "
        "product: one factor says how far the feature is open, the other what comes through. Most are near zero.",
    ),
    Stop(
        "blocks/feed-forward/feed-forward-update",
        "prefill",
        "And writes what it found",
        "The hidden features are turned back into model width, and added at the second plus. About two thirds of a "
        "block's weights serve this half.",
    ),
    Stop(
        "blocks/block-output",
        "prefill",
        "Again, in every layer",
        "This is the output of the last block. The same two updates were made in each layer, with other weights. A few "
        "entries have grown enormous on the way: try the logarithmic scale under *Axes and colours*.",
        last_layer=True,
    ),
    Stop(
        "unembedding/logits",
        "prefill",
        "A score for every token",
        "The stream, normalised once more, is compared with one learned direction for each token of the vocabulary. The "
        "last row scores what comes next. Choose its largest entry, and the first new token is found.",
    ),
    Stop(
        "token-ids",
        "decode",
        "Now a single token goes in",
        "The new token is appended, and the model runs again: a *decode step*. It need not read the prompt again, so "
        "only the one new position is computed.",
    ),
    Stop(
        "blocks/attention/key-cache",
        "decode",
        "One row is written, all are read",
        "Here is the cache again, one row longer. Without it every step would compute the keys and values of all "
        "earlier positions once more. Its size grows with every token, in every layer.",
    ),
    Stop(
        "blocks/attention/similarities",
        "decode",
        "One query, many keys",
        "The square has become a single row for each head. There is no mask, because nothing stands ahead of the newest "
        "position.",
    ),
    Stop(
        "blocks/attention/output-projection",
        "decode",
        "Why it waits for memory",
        "Compare the costs of the views below. A decode step reads the same matrix as a prefill did, for one row instead "
        "of many. So it is the reading that takes the time, not the arithmetic.",
    ),
    Stop(
        "unembedding/logits",
        "decode",
        "And so on",
        "One row of scores, the next token, and the step begins again. Play the steps with the button at the live "
        "values, or run a prompt of your own.",
    ),
)


def href(model: Model, number: int) -> str:
    """The address of a stop, counted from 1."""
    stop = STOPS[number - 1]
    layer = model.architecture.sizes["layers"] - 1 if stop.last_layer else None
    state = State(view=stop.view, layer=layer, others=(("walk", str(number)),))
    return f"/models/{model.id}/{stop.path}{state.whole_query}"


def stops(model: Model) -> tuple[WalkStop, ...]:
    """All stops that the model's graph has, in order."""
    return tuple(_stop(model, number) for number, stop in enumerate(STOPS, 1) if stop.path in model.graph.nodes)


def current(request: Request, model: Model, path: str) -> WalkStop | None:
    """The stop that an address asks for, if it is this page's."""
    asked = request.query_params.get("walk", "")
    if not (asked.isascii() and asked.isdecimal() and 1 <= int(asked[:4]) <= len(STOPS)):
        return None
    number = int(asked)
    return _stop(model, number) if STOPS[number - 1].path == path else None


def _stop(model: Model, number: int) -> WalkStop:
    stop = STOPS[number - 1]
    return WalkStop(
        number=number,
        count=len(STOPS),
        title=stop.title,
        text=prose.inline(stop.text),
        here=Link(stop.title, href(model, number)),
        node=model.graph[stop.path].name,
        before=Link(STOPS[number - 2].title, href(model, number - 1)) if number > 1 else None,
        after=Link(STOPS[number].title, href(model, number + 1)) if number < len(STOPS) else None,
    )
