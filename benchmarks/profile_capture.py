"""Where the time of a captured decode step goes: `python -m benchmarks.profile_capture`.

A step is taken bare, as a run, and with more and more of the recorder on, in turn, in one thread; each is compared with
the bare step before it, in CPU time. What the differences are differences of:

- a torch function mode that only hands each call on, and a trace function that only returns, are what Python and
  torch ask for being told of everything;
- the recorder without sites has its own bookkeeping on top of both;
- with all sites come the captures: taking the values, copying what will be overwritten, and memory that is written
  for the first time because nothing captured is freed.
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from atlas.runtime.recorder import Recorder
from atlas.runtime.references.base import Memory, Pass, ReferenceRunner
from benchmarks.default_model import bare_model, open_runner
from benchmarks.report import profile_table

POSITIONS = 128


Profile = dict[str, Any]


class HandsOn(TorchFunctionMode):
    """A mode that does nothing but hand each torch call on."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def looks_on(_frame: FrameType, _event: str, _argument: object) -> None:
    """A trace function that does nothing."""


def traced(work: Callable[[], Any]) -> Any:
    """`work` under a trace function that does nothing."""
    sys.settrace(looks_on)
    try:
        return work()
    finally:
        sys.settrace(None)


def profile(runner: ReferenceRunner, bare: Callable[..., Any], memory: Memory, work: Pass, repeats: int) -> Profile:
    """Take the pass `work` in every way, `repeats` times in turn. `bare` is the reference model alone."""
    sites = runner.sites(runner.captured_nodes())
    tokens = torch.tensor([work.tokens])

    def run() -> Any:
        return runner.forward(work, memory)

    def handed_on() -> Any:
        with HandsOn():
            return run()

    ways: dict[str, Callable[[], Any]] = {
        "bare": lambda: bare(tokens, work.start),
        "run": run,
        "run, mode that does nothing": handed_on,
        "run, trace function that does nothing": lambda: traced(run),
        "run, both": lambda: traced(handed_on),
        "recorder without sites": lambda: runner.capture(work, memory, []),
        "recorder with all sites": lambda: runner.capture(work, memory, sites),
    }
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    taken: dict[str, list[tuple[float, int]]] = {way: [] for way in ways}
    for number in range(repeats + 1):
        for way, take in ways.items():
            measured = _measured(take)
            if number:  # the first round warms up
                taken[way].append(measured)
    torch.set_num_threads(usual)
    return {"ways": _compared(taken), "counts": _counts(runner, work, memory)}


def _measured(take: Callable[[], Any]) -> tuple[float, int]:
    gc.collect()
    faults, cpu = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.thread_time()
    result = take()
    spent = time.thread_time() - cpu
    pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    del result
    return spent, pages


def _compared(taken: Mapping[str, list[tuple[float, int]]]) -> list[dict[str, Any]]:
    """Each way against the bare pass of the same round; medians."""
    bare = [seconds for seconds, _ in taken["bare"]]
    rows = []
    for way, measured in taken.items():
        seconds = [spent for spent, _ in measured]
        rows.append(
            {
                "way": way,
                "ms": 1000 * statistics.median(seconds),
                "ratio": statistics.median(mine / other for mine, other in zip(seconds, bare, strict=True)),
                "over_ms": 1000 * statistics.median(mine - other for mine, other in zip(seconds, bare, strict=True)),
                "pages": int(statistics.median(pages for _, pages in measured)),
            }
        )
    return rows


def _counts(runner: ReferenceRunner, work: Pass, memory: Memory) -> dict[str, int]:
    """How often things happen in one captured step."""
    calls: Counter[str] = Counter()

    def called(*_: Any) -> None:
        calls["torch calls"] += 1

    def begun(_frame: FrameType, _event: str, _argument: object) -> None:
        calls["Python frames"] += 1

    with Recorder([], observer=called):
        runner.forward(work, memory)
    sys.settrace(begun)
    try:
        runner.forward(work, memory)
    finally:
        sys.settrace(None)
    _, recording = runner.capture(work, memory, runner.sites(runner.captured_nodes()))
    values = [value for values in recording.values.values() for value in values]
    return {**calls, "values": len(values), "bytes captured": sum(value.nbytes for value in values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=40, help="how often each way is taken")
    options = parser.parse_args()
    runner = open_runner()
    memory, bare = runner.memory(POSITIONS + 1), bare_model(runner, POSITIONS + 1)
    prompt = Pass(tuple(range(100, 100 + POSITIONS)), 0)
    token = int(runner.forward(prompt, memory)[0, -1].argmax())
    bare(torch.tensor([prompt.tokens]), 0)
    print(profile_table(profile(runner, bare, memory, Pass((token,), POSITIONS), options.repeats)))


if __name__ == "__main__":
    main()
