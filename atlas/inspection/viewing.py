"""Tensors of runs as readers look at them: fetched from the engine, kept while they are looked at, and read.

The one door between the web and this room: requests come in as checked values, answers go out as data. What costs
time runs in a worker thread, never on the event loop or the engine's thread. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from atlas.catalog import Model
from atlas.graph.axes import View
from atlas.graph.nodes import Parameter
from atlas.inspection.answers import (
    AxisOfTensor,
    Checks,
    EquationCheck,
    Part,
    Ranges,
    SourceCheck,
    SplitOver,
    Stats,
    TensorSummary,
)
from atlas.inspection.arrays import Array, as_array, dtype_name, lowest, part_of
from atlas.inspection.compare import Framed
from atlas.inspection.frames import Pass, pass_of
from atlas.inspection.numbers import Numbers, named_axes
from atlas.inspection.presentation import present
from atlas.inspection.slices import Index, parse_slice
from atlas.inspection.summary import color_ranges, summarize
from atlas.inspection.verify import Verifier, check_shape
from atlas.runtime.captures import Captured, Cut, Portion
from atlas.runtime.expressions import OUTER, is_expression

if TYPE_CHECKING:
    from atlas.runtime.engine import Engine
    from atlas.runtime.references.base import ReferenceRunner

KEPT_BYTES = 512 << 20
WORKERS = 4
T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Which tensor is meant: a node of a run in one pass and layer."""

    run: str
    node: str
    view: View
    layer: int | None
    step: int | None
    rank: int | None = None
    """Of a model that is split over several processes: one rank's share alone."""


@dataclass(frozen=True)
class Facts:
    """What is known of the run: its tokens, and how the prompt divides them."""

    tokens: tuple[int, ...]
    prompt_length: int
    temperature: float
    label: Callable[[int], str]

    def next_after(self, position: int) -> int | None:
        """The token that came after a position, if one did."""
        return self.tokens[position + 1] if 0 <= position + 1 < len(self.tokens) else None


class Viewed:
    """One captured tensor, with what has been computed about it so far."""

    def __init__(self, captured: Captured, model: Model, made_in: Pass, split: SplitOver | None = None) -> None:
        self.captured = captured
        self.model = model
        self.made_in = made_in
        self.split = split

    @cached_property
    def array(self) -> Array:
        return as_array(self.captured.tensor)

    @cached_property
    def stats(self) -> Stats:
        return summarize(self.captured.tensor)

    @cached_property
    def ranges(self) -> Ranges | None:
        return color_ranges(self.captured.tensor)

    @property
    def is_parameter(self) -> bool:
        node = self.captured.node
        return not is_expression(node) and isinstance(self.model.graph[node].node, Parameter)

    @property
    def first(self) -> tuple[int | None, ...]:
        """For each axis the position of its index 0; None where it counts none."""
        return tuple(None if self.is_parameter else self.made_in.first(axis) for axis in self.captured.axes)

    @property
    def axes(self) -> tuple[AxisOfTensor, ...]:
        return named_axes(self.captured.axes, self.array.shape, self.first)

    def numbers(self, part: Part | None = None) -> Numbers:
        """The real numbers, or a part of complex ones (the real part unless named)."""
        return Numbers(part_of(self.array, part), self.axes, lowest(self.captured.tensor))

    def framed(self) -> Framed:
        return Framed(self.array, self.captured.axes, self.made_in)

    def summary(self, checks: Checks | None) -> TensorSummary:
        """Everything about the tensor as a whole. Without `checks` the shape alone is checked."""
        captured = self.captured
        shape = list(captured.tensor.shape)
        if checks is None:
            seen = check_shape(self.model, self.made_in, captured.node, self._whole(shape))
            checks = Checks(shape=seen, equation=EquationCheck(), source=SourceCheck())
        return TensorSummary(
            node=captured.node,
            model=self.model.id,
            view=captured.view,
            layer=captured.layer,
            step=captured.step,
            dtype=dtype_name(captured.tensor),
            shape=shape,
            axes=list(self.axes),
            stats=self.stats,
            ranges=self.ranges,
            presentation=present(self.model.graph, captured.node, captured.axes, shape, self.stats),
            checks=checks,
            split=self.split,
        )

    def _whole(self, shape: list[int]) -> list[int]:
        """The shape of the tensor of which all ranks have such a share."""
        if self.split is None or self.split.rank is None or self.split.axis is None:
            return shape
        axes = zip(self.captured.axes, shape, strict=True)
        return [size * self.split.ranks if axis == self.split.axis else size for axis, size in axes]


class Viewer:
    """Tensors that are being looked at, kept up to a number of bytes. Belongs to one event loop."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._tasks: OrderedDict[Place, asyncio.Task[Viewed]] = OrderedDict()
        self._askers: Counter[asyncio.Task[Viewed]] = Counter()
        self._limit = anyio.CapacityLimiter(WORKERS)
        self._verifier = Verifier()

    async def look(self, engine: Engine, place: Place) -> Viewed:
        """The tensor at a place. Two who ask at once share one replay.

        Raises as `engine.tensors`: `NotFound`, `NotComputed`, `BadRequest`, `Conflict`, `NotReady`.
        """
        run = engine.run(place.run)
        place = _normal(run.runner.model, place)
        task = self._tasks.get(place)
        if task is None or _spoilt(task) or run.status in ("failed", "cancelled"):
            task = asyncio.get_running_loop().create_task(_fetch(engine, place))
            self._tasks[place] = task
        self._tasks.move_to_end(place)
        self._askers[task] += 1
        viewed = None
        try:
            viewed = await asyncio.shield(task)
        finally:
            if viewed is None:  # it failed, or whoever asked has left
                if self._askers[task] == 1:
                    task.cancel()  # nobody else waits for it
                if task.done() and self._tasks.get(place) is task:
                    del self._tasks[place]
            self._askers[task] -= 1
            if not self._askers[task]:
                del self._askers[task]
        self._trim()
        return viewed

    async def part(self, engine: Engine, place: Place, text: str) -> tuple[Viewed, tuple[Index, ...]]:
        """A slice of the tensor at a place, made without the rest of it, and its index in the whole; it is not kept.

        Raises as `look`, and `BadRequest` for a slice that the tensor does not have.
        """
        found: list[tuple[Index, ...]] = []

        def cut(axes: tuple[str, ...], shape: tuple[int, ...]) -> tuple[Index, ...]:
            found.append(parse_slice(text, axes, shape))
            return found[-1]

        place = _normal(engine.run(place.run).runner.model, place)
        viewed = await _fetch(engine, place, cut)
        return viewed, found[-1]

    async def summary(self, engine: Engine, place: Place, *, verified: bool) -> TensorSummary:
        """A tensor as a whole; `verified` has its equation and source checked too, which takes longer.

        Of a recorded run it is what was found when it was recorded.
        """
        from atlas.inspection.recorded.engine import recorded_summary

        viewed = await self.look(engine, place)
        captured = viewed.captured
        said = recorded_summary(engine, place.run, captured.node, place.view, captured.layer, captured.step)
        if said is not None:
            return said
        checks = None
        if verified and place.rank is None:  # an equation is of whole tensors
            checks = await self._verifier.checks(engine, place.run, viewed.captured)
        return await self.work(lambda: viewed.summary(checks))

    async def work(self, job: Callable[[], T]) -> T:
        """Do something in a worker thread; a few at a time."""
        return await anyio.to_thread.run_sync(job, limiter=self._limit)

    def close(self) -> None:
        """Forget everything, and stop checking."""
        self._tasks.clear()
        self._verifier.close()

    def _trim(self) -> None:
        """Forget what was looked at longest ago; the last one stays whatever its size."""
        done = [(place, task) for place, task in self._tasks.items() if task.done()]
        total = sum(_size(task) for _, task in done)
        for place, task in done[:-1]:
            if total <= self._kept_bytes and len(self._tasks) <= 512:
                return
            total -= _size(task)
            del self._tasks[place]


def facts_of(engine: Engine, run_id: str) -> Facts:
    """Raises `NotFound`."""
    run = engine.run(run_id)
    tokenizer = run.runner.checkpoint.tokenizer
    return Facts(tuple(run.ids), run.prompt_length, run.request.temperature, tokenizer.label)


async def _fetch(engine: Engine, place: Place, cut: Cut | None = None) -> Viewed:
    if place.rank is None and cut is None:
        captured = await engine.tensor(place.run, place.node, place.view, place.layer, place.step)
    else:
        share = Portion(cut, place.rank)
        captured = await engine.portion(place.run, place.node, place.view, place.layer, place.step, share)
    run = engine.run(place.run)
    model, layer = run.runner.model, captured.layer
    made_in = pass_of(place.view, place.step, run.prompt_length, len(run.ids), layer, model.graph.window(layer))
    return Viewed(captured, model, made_in, split_over(run.runner, place.node, place.rank))


def split_over(runner: ReferenceRunner, node: str, rank: int | None) -> SplitOver | None:
    """How a tensor that was asked for lies in the ranks, where there are several."""
    if runner.splitting is None:
        return None
    axis, world, own = runner.split_axis(node), runner.splitting.world, runner.is_own(node)
    share = 0 if axis is None else runner.splitting.axes[axis] // world
    shown = 0 if own and rank is None else rank
    return SplitOver(ranks=world, axis=axis, rank=shown, first=share * (rank or 0), own=own)


def _normal(model: Model, place: Place) -> Place:
    """The same place, said in the one way that the engine's answer has."""
    if is_expression(place.node):
        layer = None if place.node.startswith(OUTER) else place.layer or 0
        step = (place.step or 1) if place.view == "decode" else None
        return Place(place.run, place.node, place.view, layer, step, place.rank)
    node = model.graph[place.node]
    parameter = isinstance(node.node, Parameter)
    layer = (node.first_layer if place.layer is None else place.layer) if node.in_blocks else None
    step = (1 if place.step is None else place.step) if place.view == "decode" and not parameter else None
    return Place(place.run, place.node, "prefill" if parameter else place.view, layer, step, place.rank)


def _spoilt(task: asyncio.Task[Viewed]) -> bool:
    return task.cancelling() > 0 or (task.done() and (task.cancelled() or task.exception() is not None))


def _size(task: asyncio.Task[Viewed]) -> int:
    return task.result().captured.tensor.nbytes if task.done() and not _spoilt(task) else 0
