"""Workers: processes that measure when they are asked, one question at a time, over a pipe.

Owns both ends: `Worker` for who asks, `serve` for who measures. Both speak lines of JSON. A worker that fails ends;
what it printed last is the reason. Knows nothing of what is measured, and needs nothing but Python, since a worker may
run in an environment of its own.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]
Answer = dict[str, Any]


class WorkerFailed(Exception):
    """A worker gave no answer: the last line that it printed, or that it took too long."""


class Worker:
    """A process that runs `serve`. A context manager: at the end the process is gone."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        """Starts the process. `command` is what runs the worker, as for `subprocess`."""
        self.name = name
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed in `close`
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, question: str, timeout: float = 300, **arguments: object) -> Answer:
        """Have one thing measured and wait for it. Raises `WorkerFailed`; then the worker is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Timer(timeout, self._process.kill)
        started = time.monotonic()
        late.start()
        try:
            self._process.stdin.write(json.dumps({"question": question, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late.cancel()
        if not line:
            self._process.wait()
            if time.monotonic() - started >= timeout:
                raise WorkerFailed(f"{self.name} gave no answer to {question!r} within {timeout:.0f} s")
            raise WorkerFailed(f"{self.name} failed at {question!r}: {self._last_words()}")
        answer: Answer = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # a question that nobody read
                    pipe.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1] if lines else f"it ended with code {self._process.returncode}"


def serve(answers: Mapping[str, Callable[..., Answer]]) -> None:
    """Answer questions from standard input until it ends. What libraries print goes to standard error."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(answers[asked["question"]](**asked["arguments"])), file=told, flush=True)


def timed(work: Callable[[], Any]) -> tuple[Any, Answer]:
    """What `work` gives, with the seconds and the CPU seconds (of all threads) that it took.

    Garbage is collected before. What `work` gives is still alive when the clock stops, so that freeing it is not
    counted.
    """
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    seconds, spent = time.perf_counter() - wall, time.process_time() - cpu
    return result, {"seconds": seconds, "cpu": spent}
