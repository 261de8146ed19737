"""Rank 0's side of a split model: a runner like any other, which has the other ranks do what it does.

Every rank runs the same part of the same pass at the same time, in step through the reference's own collectives. What
a pass computes stays where it is computed; a tensor comes to rank 0 when somebody asks, as much of it as was asked.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch

from atlas.graph.nodes import Parameter, Tensor
from atlas.runtime.distributed.group import Group
from atlas.runtime.distributed.shares import (
    Index,
    Piece,
    WeightShare,
    everything_of,
    pieces,
    sharded_axis,
    share_of,
    whole_shape,
)
from atlas.runtime.expressions import is_expression, turn_of
from atlas.runtime.recorder import Recording, Site
from atlas.runtime.references.base import (
    Cut,
    Memory,
    Part,
    Pass,
    ReferenceRunner,
    SafePoint,
    Splitting,
    value_of,
)


@dataclass(eq=False)
class SplitMemory(Memory):
    """Rank 0's share of what is kept of a run; the others know theirs by its number."""

    number: int = 0
    capacity: int = 0
    cached: bool = True
    __hash__ = object.__hash__


@dataclass(frozen=True)
class _Transfer:
    """One value as rank 0 has it (`own`), and the parts to put together, in the order of the ranks."""

    key: str
    layer: int | None
    turn: int
    own: torch.Tensor
    parts: list[Piece]

    @property
    def wanted(self) -> dict[str, Any]:
        """What the other ranks are told."""
        theirs = {piece.rank: [_written(entry) for entry in piece.own] for piece in self.parts if piece.rank}
        return {"key": self.key, "layer": self.layer, "turn": self.turn, "of": theirs}


class SplitRunner(ReferenceRunner):
    """A model of which each rank has a share."""

    def __init__(
        self,
        own: ReferenceRunner,
        group: Group,
        seen: Callable[[], Mapping[str, int | None]] = dict,
        whole: Callable[[str], torch.Tensor] | None = None,
    ) -> None:
        """`own` runs rank 0's share. Tensors are split along the axes that are declared, unless others were `seen` in a
        rehearsal; and a parameter is put together from shares in their order, unless all ranks do so by `whole`.
        """
        super().__init__(own.model, own.checkpoint, own.loaded)
        self.built = own.built
        self.own = own
        self.group = group
        self._seen = seen
        self._whole = whole
        self._numbers = itertools.count(1)
        self._freed: list[int] = []
        self.splitting = self._splitting()

    def rehearse(self) -> None:
        self.own.rehearse()
        self.splitting = self._splitting()

    @property
    def context_length(self) -> int:
        return self.own.context_length

    def memory(self, capacity: int, *, cache: bool = True) -> Memory:
        share = self.own.memory(capacity, cache=cache)
        memory = SplitMemory(
            share.residual, share.keys, share.values, number=next(self._numbers), capacity=capacity, cached=cache
        )
        weakref.finalize(memory, self._freed.append, memory.number)
        return memory

    def forward(self, work: Pass, memory: Memory, safe_point: SafePoint | None = None) -> torch.Tensor:
        self._tell("pass", work, memory, stops=safe_point is not None)

        def stopping(layer: int) -> None:
            assert safe_point is not None
            word = "abandon"
            try:
                safe_point(layer)
                word = "go on"
            finally:
                self.group.tell({"do": word})

        with self.group.together():
            return self.own.forward(work, memory, stopping if safe_point is not None else None)

    def capture(self, work: Pass, memory: Memory, sites: Iterable[Site]) -> tuple[torch.Tensor, Recording]:
        sites = list(sites)
        self._tell("capture", work, memory, sites=[site.key for site in sites])
        with self.group.together():
            logits, recording = self.own.capture(work, memory, sites)
        return logits, self._brought_together(recording)

    def replay(self, work: Pass, memory: Memory, part: Part, layer: int | None, sites: Iterable[Site]) -> Recording:
        if part == "build":
            return self.built
        return self._brought_together(self._replayed(work, memory, part, layer, list(sites)))

    def observe(
        self, work: Pass, memory: Memory, part: Part, layer: int | None, sites: Iterable[Site], rank: int | None
    ) -> Recording:
        self.require_rank(rank)
        if part == "build":
            return self.built
        return self._brought_together(self._replayed(work, memory, part, layer, list(sites)), rank)

    def portion(
        self, work: Pass, memory: Memory, part: Part, layer: int | None, path: str, rank: int | None, cut: Cut | None
    ) -> torch.Tensor | None:
        self.require_rank(rank)
        if part == "build":
            value = value_of(self.built, path, layer)
            return None if value is None else _cut(value, cut)
        recording = self._replayed(work, memory, part, layer, self.sites([path]))
        try:
            values = recording.values.get((path, layer), [])
            turn = (turn_of(path) or len(values)) - 1
            if not 0 <= turn < len(values):
                return None
            if path in recording.joined:
                turns = [self._transfer(path, layer, at, value, rank) for at, value in enumerate(values)]
                return _cut(torch.cat(self._moved(turns)), cut)
            return self._moved([self._transfer(path, layer, turn, values[turn], rank, cut)])[0]
        finally:
            self._drop()

    def split_axis(self, path: str) -> str | None:
        at = self.axis(path)
        if at is None:
            return None
        node = self.model.graph[self.expressions.find(path).nodes[0] if is_expression(path) else path].node
        return node.shape[at] if isinstance(node, Tensor | Parameter) else None

    def is_own(self, path: str) -> bool:
        return is_expression(path) and len(self._axes_at(path)) != 1

    def share(self, path: str, whole: torch.Tensor, rank: int) -> torch.Tensor:
        return share_of(whole, self.axis(path), rank, self.group.world)

    def weight(self, name: str) -> torch.Tensor:
        return self.weight_portion(name, None, None)

    def weight_portion(self, name: str, rank: int | None, cut: Cut | None) -> torch.Tensor:
        self.require_rank(rank)
        own = self.own.weight(name)
        if self._whole is not None and rank is None:
            self.group.tell({"do": "weigh", "model": self.model.id, "name": name})
            with self.group.together():
                return _cut(self._whole(name), cut).cpu()
        share = self.checkpoint.placement.share
        if self._whole is not None or not isinstance(share, WeightShare):
            axis: int | None = 0  # not known here: a rank that is asked for has its own
        else:
            axis = share.axis(name)
        transfer = _Transfer(name, None, 0, own, self._parts(own, axis, _from(rank, differs=axis is not None), cut))
        return self._moved([transfer], {"do": "give weight", "model": self.model.id})[0]

    def axis(self, key: str) -> int | None:
        """Which axis of a value is split: a node's as declared, an expression's where a node is declared there."""
        if not is_expression(key):
            seen = self._seen()
            return seen[key] if key in seen else sharded_axis(self.model, key)
        axes = self._axes_at(key)
        return axes.pop() if len(axes) == 1 else None

    # --- how

    def _splitting(self) -> Splitting:
        sizes = self.model.architecture.sizes
        names = [name for path in self.model.graph.nodes if (name := self.split_axis(path)) is not None]
        return Splitting(self.group.world, {name: sizes[name] for name in names})

    def _axes_at(self, expression: str) -> set[int | None]:
        """How the nodes that are declared at an expression are split: one way where it is known."""
        return {self.axis(node) for node in self.expressions.find(expression).nodes}

    def _replayed(self, work: Pass, memory: Memory, part: Part, layer: int | None, sites: list[Site]) -> Recording:
        self._tell("replay", work, memory, part=part, layer=layer, sites=[site.key for site in sites])
        with self.group.together():
            return self.own.replay(work, memory, part, layer, sites)

    def _tell(self, what: str, work: Pass, memory: Memory, **more: Any) -> None:
        assert isinstance(memory, SplitMemory)
        freed = [self._freed.pop() for _ in range(len(self._freed))]
        self.group.tell(
            {
                "do": what,
                "model": self.model.id,
                "memory": [memory.number, memory.capacity, memory.cached],
                "tokens": work.tokens,
                "start": work.start,
                "freed": freed,
                **more,
            }
        )

    def _brought_together(self, recording: Recording, rank: int | None = None) -> Recording:
        """All values whole, or one rank's shares. What is not split, or not known to be, is rank 0's unless another is
        asked for.
        """
        planned = [
            self._transfer(key, layer, turn, value, rank)
            for (key, layer), values in recording.values.items()
            for turn, value in enumerate(values)
        ]
        brought = iter(self._moved(planned))
        whole = Recording(joined=recording.joined)
        for place, values in recording.values.items():
            whole.values[place] = [next(brought) for _ in values]
        self._drop()
        return whole

    def _transfer(
        self, key: str, layer: int | None, turn: int, own: torch.Tensor, rank: int | None = None, cut: Cut | None = None
    ) -> _Transfer:
        """What to bring together of one value: all of it, or what is wanted, from the ranks that have it."""
        axis = self.axis(key)
        rank = _from(rank, differs=axis is not None or self.is_own(key))
        return _Transfer(key, layer, turn, own, self._parts(own, axis, rank, cut))

    def _parts(self, own: torch.Tensor, axis: int | None, rank: int | None, cut: Cut | None) -> list[Piece]:
        """The parts of what is wanted, of a tensor of which this rank has `own`; with `rank` those of its share."""
        if rank is not None:
            index = everything_of(own.shape) if cut is None else tuple(cut(tuple(own.shape)))
            (piece,) = pieces(own.shape, index, None, 1)
            return [replace(piece, rank=rank)]
        shape = whole_shape(own.shape, axis, self.group.world)
        return pieces(shape, everything_of(shape) if cut is None else tuple(cut(shape)), axis, self.group.world)

    def _moved(
        self, transfers: Sequence[_Transfer], command: Mapping[str, Any] = MappingProxyType({"do": "give"})
    ) -> list[torch.Tensor]:
        """Have the other ranks send their parts, and put all together."""
        wanted = [transfer.wanted for transfer in transfers if any(piece.rank for piece in transfer.parts)]
        if wanted:
            self.group.tell({**command, "wanted": wanted})
        moved = []
        for transfer in transfers:
            own, parts = transfer.own, transfer.parts
            arrived = [
                own[piece.own].cpu() if piece.rank == 0 else self.group.receive(piece.rank, piece.shape, own.dtype)
                for piece in parts
            ]
            if len(parts) == 1:
                moved.append(arrived[0])
                continue
            result = torch.empty([entry.stop for entry in parts[-1].place], dtype=own.dtype)
            for piece, tensor in zip(parts, arrived, strict=True):
                result[piece.place] = tensor
            moved.append(result)
        return moved

    def _drop(self) -> None:
        """Have the others forget what they recorded last."""
        self.group.tell({"do": "drop"})


def _from(rank: int | None, *, differs: bool) -> int | None:
    """Where a rank's share comes from: what all ranks have is not moved."""
    return rank if rank is None or differs else 0


def _cut(tensor: torch.Tensor, cut: Cut | None) -> torch.Tensor:
    return tensor if cut is None else tensor[tuple(cut(tuple(tensor.shape)))]


def _written(entry: Index) -> int | list[int]:
    return entry if isinstance(entry, int) else [entry.start, entry.stop]
