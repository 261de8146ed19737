"""How one number of a tensor came to be, as a recorded run keeps it: that of the cell which a page opens with.

Any other takes the model, or the tensors it was made of. Of each node it is done in one layer and decode step, the
first ones, which a page opens with too. Knows no files.
"""

from __future__ import annotations

import anyio.to_thread

from atlas.errors import AtlasError
from atlas.graph.axes import View
from atlas.graph.resolve import Graph
from atlas.inspection.explain import explain
from atlas.inspection.explained import Explained, drawn
from atlas.inspection.frames import COMPUTED
from atlas.inspection.presentation import meaning_of
from atlas.runtime.captures import Captured
from atlas.runtime.engine import Engine

TELLING = ("logits", "stream", "attention")
"""Where a panel has something to say of one position, a page begins with the last: from it the next token comes."""


def is_first(graph: Graph, captured: Captured) -> bool:
    """Whether a tensor is the one of its node and view that is explained."""
    return captured.layer in (None, graph[captured.node].first_layer) and captured.step in (None, 1)


def opening_cell(graph: Graph, captured: Captured) -> tuple[int, ...]:
    """The cell that a page opens with; `static/live/look.js` says the same."""
    last = meaning_of(graph, captured.node, captured.axes) in TELLING
    return tuple(
        size - 1 if last and axis in COMPUTED else 0
        for axis, size in zip(captured.axes, captured.tensor.shape, strict=True)
    )


async def explained(engine: Engine, run: str, captured: Captured, view: View) -> Explained | None:
    """How that number came to be; None where it cannot be told."""
    cell = opening_cell(engine.model_of(run).graph, captured)
    try:
        found = await explain(engine, run, captured.node, view, captured.layer, captured.step, cell)
        return await anyio.to_thread.run_sync(drawn, found)
    except AtlasError:
        return None
