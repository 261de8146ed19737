"""Which part of a tensor each rank has: along its sharded axis, equal shares in the order of the ranks.

Arithmetic on sizes and indices. Knows no processes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from atlas.catalog import Model
from atlas.errors import CheckpointError
from atlas.graph.nodes import Parameter, Tensor

Index = int | slice
LAYER = re.compile(r"\.\d+\.")


@dataclass(frozen=True)
class Piece:
    """What one rank has of an index: `own` is that index in its share, of `shape`; it lands at `place` of the result.

    An axis that the index takes a single number of is in neither `shape` nor `place`.
    """

    rank: int
    own: tuple[Index, ...]
    place: tuple[slice, ...]
    shape: tuple[int, ...]


def span(size: int, rank: int, world: int) -> tuple[int, int]:
    """First index of a rank's share of an axis, and the one behind its last."""
    share = size // world
    return rank * share, (rank + 1) * share


def whole_shape(share: Sequence[int], axis: int | None, world: int) -> tuple[int, ...]:
    """The shape of the tensor of which all ranks have such a share."""
    return tuple(size * world if at == axis else size for at, size in enumerate(share))


def everything_of(shape: Sequence[int]) -> tuple[Index, ...]:
    """The index that takes all of a tensor."""
    return tuple(slice(0, size) for size in shape)


def pieces(shape: Sequence[int], index: Sequence[Index], axis: int | None, world: int) -> list[Piece]:
    """What to bring together for an index of a whole tensor of `shape`: from each rank that has some of it, its part.

    The index has an entry for each axis, inside it, and no steps. Of a tensor that is not split all comes from rank 0.
    """
    taken = tuple(entry.stop - entry.start for entry in index if isinstance(entry, slice))
    everything = tuple(slice(0, size) for size in taken)
    if axis is None:
        return [Piece(0, tuple(index), everything, taken)]
    entry = index[axis]
    share = shape[axis] // world
    if isinstance(entry, int):
        own = (*index[:axis], entry % share, *index[axis + 1 :])
        return [Piece(entry // share, own, everything, taken)]
    kept_at = sum(isinstance(other, slice) for other in index[:axis])
    found = []
    for rank in range(world):
        first, stop = span(shape[axis], rank, world)
        begin, end = max(first, entry.start), min(stop, entry.stop)
        if begin >= end:
            continue
        own = (*index[:axis], slice(begin - first, end - first), *index[axis + 1 :])
        landing = slice(begin - entry.start, end - entry.start)
        place = (*everything[:kept_at], landing, *everything[kept_at + 1 :])
        found.append(Piece(rank, own, place, (*taken[:kept_at], end - begin, *taken[kept_at + 1 :])))
    return found


def sharded_axis(model: Model, path: str) -> int | None:
    """Which axis of a node is split over the ranks."""
    node = model.graph[path].node
    if not isinstance(node, Tensor | Parameter) or node.sharded is None:
        return None
    return node.shape.index(node.sharded)


def split_axes(model: Model) -> tuple[str, ...]:
    """The axes along which tensors and parameters of a model are split, in order of data flow."""
    found: dict[str, None] = {}
    for node in model.graph.nodes.values():
        if isinstance(node.node, Tensor | Parameter) and node.node.sharded is not None:
            found[node.node.sharded] = None
    return tuple(found)


def require_divisible(model: Model, world: int) -> None:
    """Raises `CheckpointError` that names every axis which so many ranks do not divide, and how many would do."""
    sizes = model.architecture.sizes
    axes = split_axes(model)
    uneven = [f"{sizes[axis]} {_words(model, axis)}" for axis in axes if sizes[axis] % world]
    if not uneven:
        return
    fitting = [n for n in range(2, 1 + min(sizes[axis] for axis in axes)) if all(sizes[axis] % n == 0 for axis in axes)]
    said = f"Take {', '.join(map(str, fitting))} processes" if fitting else "It can only run in one process"
    raise CheckpointError(
        f"{model.name} cannot be split over {world} ranks: {', '.join(uneven)} cannot be divided by {world}.",
        f"{said}: torchrun --nproc-per-node N.",
        world_size=world,
        fitting=fitting,
    )


@dataclass(frozen=True)
class WeightShare:
    """A rank's share of every weight of an architecture. `axes` are by the weights' names, with `{layer}` for a number.

    Of other architectures what the library that runs them makes a rank's share.
    """

    axes: Mapping[str, int]
    rank: int
    parts: int
    architecture: str

    @classmethod
    def of_rank(cls, model: Model, rank: int, world: int) -> WeightShare:
        """As a model's parameters, and those of its kind, are declared to be split."""
        axes = {}
        for path, node in model.graph.nodes.items():
            axis = sharded_axis(model, path)
            if isinstance(node.node, Parameter) and axis is not None:
                axes[node.node.weight] = axis
        return cls(axes, rank, world, model.architecture.id)

    def axis(self, name: str) -> int | None:
        """Which axis of a weight is split."""
        return self.axes.get(LAYER.sub(".{layer}.", name, count=1))

    def index(self, name: str, shape: Sequence[int]) -> tuple[slice, ...]:
        axis = self.axis(name)
        whole = (slice(0, size) for size in shape)
        return tuple(
            slice(*span(one.stop, self.rank, self.parts)) if at == axis else one for at, one in enumerate(whole)
        )

    def reader(self, model_class: Any, device: torch.device) -> Callable[..., Any]:
        # transformers takes seconds to import, which most need not wait for.
        from atlas.runtime.distributed.planned_share import reader

        return reader(model_class, device, self.parts)


def share_of(tensor: torch.Tensor, axis: int | None, rank: int, world: int) -> torch.Tensor:
    """The share of one rank, as a view."""
    if axis is None:
        return tensor
    first, stop = span(tensor.shape[axis], rank, world)
    return tensor.narrow(axis, first, stop - first)


def _words(model: Model, axis: str) -> str:
    return model.graph.axes[axis].words
