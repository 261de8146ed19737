"""What commands share at the terminal: progress of a start, plain tables, and whether this Python will do."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import CodeType
from typing import Protocol

from tqdm import tqdm

from atlas.errors import EnvironmentUnfit


class Stage(Protocol):
    """How far something has come: in words, and as a share where it is measured."""

    @property
    def stage(self) -> str: ...
    @property
    def progress(self) -> float | None: ...


def note(message: str) -> None:
    """A line for the reader on stderr, above whatever bar is shown there."""
    tqdm.write(message, file=sys.stderr)


@contextmanager
def beside(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """While entered, `work(over)` runs in a thread of its own. Leaving sets `over` and waits for it."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def stages(now: Callable[[], Stage]) -> AbstractContextManager[None]:
    """While entered, tells each stage on stderr as it begins. What is measured shows a bar of its own."""

    def tell(over: threading.Event) -> None:
        told = ""
        while not over.wait(0.1):
            status = now()
            if status.stage != told and (status.progress is None or status.stage == "ready"):
                note(f"{status.stage[:1].upper()}{status.stage[1:]}")
            told = status.stage

    return beside("stages", tell)


@contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], None]]:
    """While entered, a bar on stderr: gives what tells it how many of how many are done."""
    with tqdm(unit=f" {what}", file=sys.stderr, disable=None, leave=False, dynamic_ncols=True) as bar:

        def tell(done: int, whole: int) -> None:
            bar.total = whole
            bar.update(done - bar.n)

        yield tell


def table(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Rows in columns as wide as needed, two spaces between; the last column is not padded."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)


def megabytes(size: int) -> str:
    """`98.9 MB`"""
    return f"{size / 1e6:,.1f} MB"


def require_positions(code: CodeType | None = None) -> None:
    """Raises `EnvironmentUnfit` where Python keeps no positions of expressions: nothing could be recorded then.

    Looks at loaded code, by default this function's: Python leaves positions out when it is told to, and a .pyc that
    was written so lacks them for ever. The runtime looks at the reference's code in the same way.
    """
    code = code or require_positions.__code__
    if any(column is not None for _, _, column, _ in code.co_positions()):
        return
    told = "no_debug_ranges" in sys._xoptions or bool(os.environ.get("PYTHONNODEBUGRANGES"))
    hint = "Start it without -X no_debug_ranges, and unset PYTHONNODEBUGRANGES."
    if not told:
        hint = f"Its compiled file was written by such a Python: delete the __pycache__ beside {code.co_filename}."
    raise EnvironmentUnfit(
        "This Python has loaded code without the positions of its expressions, by which tensors are found.", hint
    )
