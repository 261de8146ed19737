"""What tensors with a meaning say: logits and the stream as tokens, attention as heads, one pass beside another.

Fetches what a question needs through the viewer, and asks the functions of this room. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from atlas.errors import BadRequest
from atlas.graph.axes import VIEWS, View
from atlas.graph.nodes import Tensor
from atlas.inspection.answers import (
    Agreement,
    Difference,
    Entry,
    HeadMeasures,
    Part,
    Parting,
    Predictions,
    Top,
)
from atlas.inspection.arrays import Array, as_array, part_of
from atlas.inspection.attention import measure_heads, strongest
from atlas.inspection.compare import Aligned, Framed, align, first_parting, pair_up, row_differences
from atlas.inspection.frames import ATTENDED, pass_of
from atlas.inspection.lens import LogitLens, lens_parameters, predictions
from atlas.inspection.numbers import Numbers, named_axes
from atlas.inspection.presentation import stream_paths
from atlas.inspection.recorded.engine import recorded_predictions
from atlas.inspection.viewing import Facts, Place, Viewed, Viewer, facts_of
from atlas.runtime.expressions import is_expression

if TYPE_CHECKING:
    from atlas.runtime.engine import Engine

LOGITS = "unembedding/logits"
LENS_ROWS = 64
PARTED = 1e-4
"""A worst row that differs by more has parted. Rounding, between passes of different lengths, stays below 1e-5."""


async def top(viewer: Viewer, engine: Engine, place: Place, text: str, count: int, part: Part | None) -> Top:
    """The largest elements of one row, with tokens and positions where the axis has them."""
    viewed = await viewer.look(engine, place)
    facts = facts_of(engine, place.run)
    row, axis = viewed.numbers(part).row(text)
    entries = []
    for index, value in await viewer.work(lambda: strongest(row, count)):
        position = None if axis.first is None else axis.first + index
        token = None
        if axis.name == "vocab":
            token = facts.label(index)
        elif position is not None and position < len(facts.tokens):
            token = facts.label(facts.tokens[position])
        entries.append(Entry(index=index, value=value, token=token, position=position))
    return Top(axis=axis.name, of=axis.size, entries=entries)


async def heads(viewer: Viewer, engine: Engine, place: Place) -> list[HeadMeasures]:
    """Measures of every head of an attention pattern. Raises `BadRequest` for a tensor that is none."""
    viewed = await viewer.look(engine, place)
    if viewed.captured.axes[-2:] != ("queries", ATTENDED) or viewed.array.ndim != 4:
        raise BadRequest(
            f"{place.node!r} is no attention pattern: its axes are {', '.join(viewed.captured.axes)}.",
            "Ask for a node such as blocks/attention/attention-weights.",
        )
    tokens = facts_of(engine, place.run).tokens
    weights, before = viewed.array[0], viewed.made_in.before
    return await viewer.work(lambda: measure_heads(weights, tokens, before))


async def spoken(
    viewer: Viewer, engine: Engine, place: Place, start: int | None, stop: int | None, count: int
) -> Predictions:
    """What positions (absolute, `start` to `stop` - 1) of logits, or of the stream through the lens, would say.

    Without either it is the last position of the pass.
    Raises `BadRequest` for a node that is neither, for positions that the pass does not compute, and for too many.
    """
    viewed = await viewer.look(engine, place)
    facts = facts_of(engine, place.run)
    path, graph = viewed.captured.node, viewed.model.graph
    if path != LOGITS and path not in stream_paths(graph):
        raise BadRequest(
            f"{path!r} is neither logits nor part of the residual stream.",
            f"Ask for {LOGITS!r}, or for one of {', '.join(sorted(stream_paths(graph)))}.",
        )
    before, computed = viewed.made_in.before, viewed.made_in.computed
    if start is None:
        start = before + computed - 1 if stop is None else stop - 1
    if stop is None:
        stop = start + 1
    if not before <= start < stop <= before + computed:
        raise BadRequest(
            f"This pass computes positions {before} to {before + computed - 1}, not {start} to {stop - 1}.",
            "Ask for positions inside it.",
        )
    if stop - start > LENS_ROWS:
        raise BadRequest(f"{stop - start} positions are too many at once.", f"Ask for at most {LENS_ROWS}.")
    captured = viewed.captured
    known = recorded_predictions(engine, place.run, path, place.view, captured.layer, captured.step)
    if known is not None:
        return known.model_copy(
            update={
                "positions": [
                    one.model_copy(update={"top": one.top[:count]})
                    for one in known.positions[start - before : stop - before]
                ]
            }
        )
    lens = None if path == LOGITS else await lens_of(engine, place.run)
    return await viewer.work(lambda: said(viewed, facts, lens, range(start, stop), count))


def said(viewed: Viewed, facts: Facts, lens: LogitLens | None, positions: range, count: int) -> Predictions:
    """What positions (absolute) of logits would say, or with the lens those of the stream."""
    before = viewed.made_in.before
    rows: Array = viewed.array[0, positions.start - before : positions.stop - before]
    logits = rows if lens is None else lens.logits(rows)
    after = [facts.next_after(position) for position in positions]
    found = predictions(logits, positions, after, count, facts.temperature, facts.label)
    return Predictions(temperature=facts.temperature, positions=found)


async def difference(
    viewer: Viewer, engine: Engine, place: Place, other: Place, part: Part | None = None
) -> tuple[Numbers, Aligned]:
    """One tensor minus another of the same node, where both have positions; as numbers, and as the pair itself."""
    one, two = await viewer.look(engine, place), await viewer.look(engine, other)
    pair = pair_up(_framed(one), _framed(two))
    axes = named_axes(pair.axes, pair.one.shape, pair.first)
    gap = await viewer.work(lambda: part_of(pair.difference(), part))
    return Numbers(gap, axes, one.numbers().lowest), pair


async def compared(viewer: Viewer, engine: Engine, place: Place, other: Place) -> Difference:
    """How far two tensors of one node are from each other, row by row."""
    numbers, pair = await difference(viewer, engine, place, other)
    rows = await viewer.work(lambda: row_differences(pair))
    axis = pair.positions_axis
    first = None if axis is None else pair.first[axis]
    return Difference(
        shape=list(pair.one.shape),
        axes=list(numbers.axes),
        by_position=rows.by_position,
        positions=None if first is None else [first + at for at in range(len(rows.by_position))],
        worst=rows.worst,
        max_abs=rows.max_abs,
        equal=rows.equal,
    )


async def agreement(viewer: Viewer, engine: Engine, place: Place) -> Agreement:
    """Prefill and every decode step of a run against its full sequence, at the same positions.

    Raises `Conflict` while the run is not finished, and `NotComputed` where the full sequence lacks the node.
    """
    whole = await viewer.look(engine, replace(place, view="full", step=None))
    run = engine.run(place.run)
    positions: list[int] = []
    relative: list[float | None] = []
    passes: list[tuple[View, int | None]] = [("prefill", None), *(("decode", k) for k in range(1, run.steps + 1))]
    declared = None if is_expression(place.node) else whole.model.graph[place.node].node
    views = declared.views if isinstance(declared, Tensor) else VIEWS if declared is None else ()
    for view, step in passes:
        if view not in views:
            continue
        captured = await engine.tensor(place.run, place.node, view, place.layer, step)
        window = whole.model.graph.window(captured.layer)
        facts = pass_of(view, step, run.prompt_length, len(run.ids), captured.layer, window)
        part = Framed(as_array(captured.tensor), captured.axes, facts)
        pair = align(part, _framed(whole))
        rows = row_differences(_newest(pair, facts.before))
        positions += range(facts.before, facts.before + len(rows.by_position))
        relative += rows.by_position
    known = [value for value in relative if value is not None]
    return Agreement(
        positions=positions, relative=relative, worst=max(known) if known and len(known) == len(relative) else None
    )


async def parting(engine: Engine, one: str, other: str) -> Parting:
    """Where two finished runs part: the first node in order of data flow, at the first position.

    Raises `BadRequest` for runs of different models' graphs, `Conflict` while one is not finished.
    """
    a, b = facts_of(engine, one), facts_of(engine, other)
    common = _common(a.tokens, b.tokens)
    model, second = engine.model_of(one), engine.model_of(other)
    if model.architecture.id != second.architecture.id:
        raise BadRequest(
            f"One run is of {model.name}, the other of {second.name}: their graphs differ.",
            "Compare runs of models of one architecture.",
        )
    if common < max(len(a.tokens), len(b.tokens)) and model.id == second.id:
        return _by_tokens(a, b, common)
    layers = min(engine.run(run).runner.n_layers for run in (one, other))
    for nodes, layer in _walk(model.graph.nodes.values(), layers):
        mine = await engine.tensors(one, nodes, "full", layer, None)
        theirs = await engine.tensors(other, nodes, "full", layer, None)
        for node in nodes:
            if node not in mine or node not in theirs:
                continue
            pair = align(*(
                Framed(as_array(side[node].tensor), side[node].axes, pass_of("full", None, 0, len(facts.tokens)))
                for side, facts in ((mine, a), (theirs, b))
            ))  # fmt: skip
            rows = row_differences(pair)
            at = first_parting(rows.by_position, PARTED)
            if at is not None:
                where = f"{model.graph[node].name}" + (f" of layer {layer}" if layer is not None else "")
                return Parting(
                    common=common,
                    position=at,
                    node=node,
                    layer=layer,
                    relative=rows.by_position[at],
                    sentence=f"They part at {where}, position {at}.",
                )
    return Parting(
        common=common, position=None, node=None, layer=None, relative=None, sentence="They are the same throughout."
    )


def _by_tokens(a: Facts, b: Facts, common: int) -> Parting:
    """Two runs of one model whose tokens part: everything before that position is the same by causality."""
    if common == min(len(a.tokens), len(b.tokens)):
        sentence = f"They share all {common} tokens of the shorter one; the longer one goes on."
    else:
        sentence = (
            f"They part at the token ids, position {common}: {a.label(a.tokens[common])!r} here, "
            f"{b.label(b.tokens[common])!r} there. Nothing before it can differ, since no position sees those after it."
        )
    return Parting(common=common, position=common, node="token-ids", layer=None, relative=None, sentence=sentence)


def _walk(nodes: object, layers: int) -> list[tuple[list[str], int | None]]:
    """Tensors in order of data flow: before the blocks, each layer, after the blocks."""
    paths = [node.path for node in nodes if isinstance(node.node, Tensor) and "full" in node.node.views]  # type: ignore[attr-defined]
    inside = [path for path in paths if path.startswith("blocks/")]
    place = paths.index(inside[0]) if inside else len(paths)
    outside = [path for path in paths if path not in inside]
    before, after = outside[:place], outside[place:]
    return [(before, None), *((inside, layer) for layer in range(layers)), (after, None)]


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _newest(pair: Aligned, before: int) -> Aligned:
    """Of a tensor with keys and no queries (a cache), the rows from a position on; others as they are."""
    axis = pair.positions_axis
    if axis is None or pair.axes[axis] != ATTENDED:
        return pair
    cut = (*(slice(None) for _ in range(axis)), slice(before, None))
    return replace(pair, one=pair.one[cut], other=pair.other[cut])


def _framed(viewed: Viewed) -> Framed:
    if viewed.is_parameter:
        return Framed(viewed.array, viewed.captured.axes, viewed.made_in)
    return viewed.framed()


async def lens_of(engine: Engine, run: str) -> LogitLens:
    """The lens of a run's model. One that cannot be, says so when it is used."""
    graph = engine.model_of(run).graph
    weights = await engine.tensors(run, lens_parameters(graph), "prefill", None, None)
    return LogitLens(graph, {path: np.asarray(as_array(one.tensor), np.float32) for path, one in weights.items()})
