"""What the live panel says of a model that is split over several processes, and the choice of one rank's share.

The choice stands in the address as `rank`; without it the whole is shown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

from atlas.catalog import Model
from atlas.errors import BadRequest
from atlas.web.pieces import LiveSplit, RankChoice
from atlas.web.state import State


@runtime_checkable
class Splits(Protocol):
    """A backend whose models may be split: over how many ranks one is, 1 where it runs in one process; and along which
    axis a node is.
    """

    def ranks(self, model: str) -> int: ...
    def split_axis(self, model: str, node: str) -> str | None: ...


def split_of(backend: object, live: Model, path: str, state: State) -> LiveSplit | None:
    """How the model that runs is split, and how the shown node lies in the ranks. Raises `BadRequest` for no rank."""
    if not isinstance(backend, Splits) or (world := backend.ranks(live.id)) == 1:
        return None
    chosen = dict(state.others).get("rank")
    if chosen is not None and not (chosen.isascii() and chosen.isdecimal() and len(chosen) < 7 and int(chosen) < world):
        raise BadRequest(f"There is no rank {chosen[:20]!r}.", f"Ranks run from 0 to {world - 1}.")
    axis = backend.split_axis(live.id, path) if path in live.graph.nodes else None
    if axis is None:
        here = "All ranks have the same numbers here, and rank 0's are shown."
    else:
        size, words = live.architecture.sizes[axis], live.graph.axes[axis].words
        here = f"Here each has {size // world:,} of {size:,} {words}, in order."
    code = f"Where no node is declared, the code column has rank {int(chosen or 0)}'s own numbers."
    return LiveSplit(
        sentence=f"{live.name} is split over {world} ranks. {here} {code}",
        rank=None if chosen is None else int(chosen),
        choices=tuple(
            RankChoice(
                "all ranks" if rank is None else f"rank {rank}",
                _with_rank(state, rank).whole_query or "?",
                current=chosen == (None if rank is None else str(rank)),
            )
            for rank in (None, *range(world))
        ),
    )


def _with_rank(state: State, rank: int | None) -> State:
    others = tuple(pair for pair in state.others if pair[0] != "rank")
    return replace(state, others=others if rank is None else (*others, ("rank", str(rank))))
