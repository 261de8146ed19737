"""How a tensor is best looked at: which axes lie on the plane, what scale its colours need, which panels it has.

Suggestions, read off the axes, the place in the graph and the numbers; the reader may choose otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from atlas.graph.resolve import Graph, is_cache
from atlas.inspection.answers import Meaning, Presentation, Scale, Stats
from atlas.inspection.frames import ATTENDED, COMPUTED


def present(graph: Graph, path: str, axes: Sequence[str], shape: Sequence[int], stats: Stats) -> Presentation:
    """The defaults for a node's tensor as it was captured."""
    rows, columns = plane_axes(axes, shape)
    return Presentation(rows=rows, columns=columns, scale=_scale(axes, stats), meaning=meaning_of(graph, path, axes))


def plane_axes(axes: Sequence[str], shape: Sequence[int]) -> tuple[str | None, str]:
    """Rows and columns: the last axis across, and down it the positions, or what stands before it.

    An axis of size one gives way where another has more to show: a single query to the heads, a reduced axis to the
    positions that it was reduced beside.
    """
    if not axes:
        return None, ""
    sizes = dict(zip(axes, shape, strict=True))
    long = [axis for axis in axes if sizes[axis] > 1]
    columns = long[-1] if long else axes[-1]
    others = [axis for axis in axes if axis != columns]
    if not others:
        return None, columns
    positional = [axis for axis in others if axis in (*COMPUTED, ATTENDED)]
    best = [axis for axis in positional if sizes[axis] > 1] or [axis for axis in others if sizes[axis] > 1]
    return (best or positional or others)[-1], columns


def stream_paths(graph: Graph) -> frozenset[str]:
    """The nodes of the residual stream: what enters the first block, what blocks hand on, and sums in between."""
    declared = graph.architecture
    ends = {end for pair in (*declared.loops, *declared.enters) for end in pair}
    sums = {out for node in graph.operations if node.path.endswith("-residual") for out in node.outputs}
    return frozenset(ends | sums)


def meaning_of(graph: Graph, path: str, axes: Sequence[str]) -> Meaning | None:
    """Which panel a node has."""
    if path not in graph.nodes:  # an expression that nobody has declared
        return None
    node = graph[path]
    if path in stream_paths(graph):
        return "stream"
    if path == "unembedding/logits":
        return "logits"
    if path.endswith("/attention-weights"):
        return "attention"
    if is_cache(node.node):
        return "cache"
    return "rotations" if tuple(axes) == ("positions", "pairs") else None


def _scale(axes: Sequence[str], stats: Stats) -> Scale:
    if stats.min is None or stats.max is None or stats.min < 0:
        return "diverging"
    shares = axes and axes[-1] in (ATTENDED, "vocab") and stats.max <= 1 + 1e-6
    return "log" if shares else "sequential"
