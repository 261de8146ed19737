"""Whose turn it is: runs that are to be taken further, one pass at a time, in turn, within the memory budget.

Belongs to the engine, which holds its lock around every call.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator

from atlas.runtime.runs import FINISHED, Run


class Turns:
    """Runs in line."""

    def __init__(self) -> None:
        self._line: deque[Run] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Run]:
        return iter(tuple(self._line))

    def add(self, runs: Iterable[Run]) -> None:
        """Put runs at the end of the line."""
        self._line.extend(runs)

    def put_first(self, run: Run) -> None:
        """Somebody waits for what the run gives."""
        if run not in self._line:
            self._line.appendleft(run)

    def put_back(self, run: Run) -> None:
        """A run that has had its turn, and is to go on."""
        # One that is only being taken through its tokens again goes on if the requests released ask for more.
        if (run.status not in FINISHED or run.full_wanted) and run not in self._line:
            self._line.append(run)

    def leave(self, run: Run) -> None:
        """Take a run out of the line, wherever it stands."""
        with contextlib.suppress(ValueError):
            self._line.remove(run)

    def next(self, budget: int) -> Run | None:
        """Take out the first in line that has its memory, or finds room for it: `budget` bytes for all in line.

        A run that finds none waits for those under way to end; the first of all always finds room.
        """
        for run in tuple(self._line):
            if run.memory is None and not (run.cancelled or (run.status == "done" and run.full_wanted)):
                others = sum(other.nbytes for other in self._line if other is not run)
                memory = run.runner.memory(run.capacity)
                if others and others + memory.nbytes > budget:
                    continue
                run.memory = memory
            self._line.remove(run)
            return run
        return self._line.popleft() if self._line else None
