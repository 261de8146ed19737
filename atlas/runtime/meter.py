"""Says how far a long task is: to a person at the terminal, and to a program that asks.

On a terminal a bar, once a task has lasted half a second; in a log one line, once it has lasted one. A
callback gets each task's message and the fraction done (None where it cannot be told), at most a hundred
times a task.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tqdm import tqdm

Progress = Callable[[str, float | None], None]


class Meter:
    """A context manager around one task of `total` bytes; `advance` as they are done."""

    def __init__(self, message: str, total: int, progress: Progress | None = None) -> None:
        self.message = message
        self.total = total
        self._progress = progress
        self._done = 0
        self._told = -1
        self._started = time.monotonic()
        self._in_log = sys.stderr.isatty()
        self._bar = tqdm(
            desc=message, total=total or None, unit="B", unit_scale=True, disable=None, delay=0.5, leave=False
        )

    def advance(self, count: int) -> None:
        """`count` bytes more are done."""
        self._done += count
        self._bar.update(count)
        percent = min(100, 100 * self._done // self.total) if self.total else 0
        if self._progress and percent > self._told:
            self._progress(self.message, percent / 100 if self.total else None)
            self._told = percent
        if not self._in_log and time.monotonic() - self._started > 1:
            print(f"{self.message} ({self.total / 1e6:,.0f} MB) ...", file=sys.stderr, flush=True)
            self._in_log = True

    def __enter__(self) -> Self:
        self.advance(0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
