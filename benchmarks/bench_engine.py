"""How fast it is, beside other libraries on the same weights and machine: `make bench`.

Workers measure, one at a time, each time they are asked; this process asks them in turn, so that whatever else the
machine does falls on all alike. Prints a table and writes `results.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.report import (
    Found,
    as_json,
    growth_table,
    machine,
    profile_table,
    put_into,
    ratios,
    results_table,
    spread,
)
from benchmarks.serving import draw_ahead, end_in_order
from benchmarks.worker_peers import LIBRARIES
from benchmarks.worker_pipe import ROOT, Answer, Worker, WorkerFailed

PROMPT = 128
FIRST_TOKEN = 100
NEAR = 1e-3  # how far the likeliest token's logit may lie from ours, relative: the same weights, another order of sums


@dataclass(frozen=True)
class Effort:
    """How often things are measured."""

    rounds: int
    steps: int  # decode steps of each kind in a round
    slow_rounds: int  # of what takes half a minute
    lengths: dict[int, int]  # tokens of a prompt, and rounds of it
    starts: int
    page_seconds: float
    prefills: int  # of 1,000 tokens, while pages are read
    profiled: int


FULL = Effort(7, 10, 3, {32: 5, 128: 5, 512: 3, 2048: 1}, 3, 4.0, 3, 30)
QUICK = Effort(2, 4, 1, {32: 2, 128: 2, 512: 1}, 1, 1.5, 1, 6)


@dataclass(frozen=True)
class PeerWay:
    """A way to take the prefill in another library: its key, who measures it, beside what, and the call as it is."""

    key: str
    library: str
    way: str
    beside: tuple[str, str]
    how: str
    slow: bool = False


PEERS = (
    PeerWay(
        "transformer_lens_cache",
        "transformer_lens",
        "cache",
        ("transformer_lens", "bare"),
        "`TransformerBridge.boot_transformers(hf_model=…).run_with_cache(ids)`, all hook points; beside `bridge(ids)`",
    ),
    PeerWay(
        "nnsight_save",
        "nnsight",
        "save",
        ("transformers", "bare"),
        "`NNsight(model).trace(ids)`, `.source` of every module, each operation's `.output` in an `nnsight.save([])`; "
        "beside transformers' `model(ids)`",
    ),
    PeerWay(
        "nnsight_cache",
        "nnsight",
        "cache",
        ("transformers", "bare"),
        "`tracer.cache()`: outputs of modules alone, nothing inside attention; beside transformers' `model(ids)`",
    ),
    PeerWay(
        "torchlens_trace",
        "torchlens",
        "trace",
        ("transformers", "bare"),
        "`torchlens.trace(model, ids)`, every operation, as copies; beside transformers' `model(ids)`",
        slow=True,
    ),
)


@dataclass
class Bench:
    """All workers, and what they have answered."""

    atlas: Worker
    peers: dict[str, Worker]
    effort: Effort
    opened: dict[str, Answer] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def peer(self, library: str, question: str, **arguments: object) -> Answer | None:
        """Ask another library; None if it failed, now or before."""
        if library in self.failed:
            return None
        try:
            return self.peers[library].ask(question, timeout=400, **arguments)
        except WorkerFailed as error:
            self.failed[library] = str(error)
            say(str(error))
            return None

    def take(self, library: str, way: str) -> None:
        """Have another library take the prefill once."""
        answer = self.peer(library, "take", way=way)
        if answer is not None:
            self.seconds.setdefault((library, way), []).append(answer["seconds"])


def say(text: str) -> None:
    """Tell how far it is, beside the table."""
    print(text, file=sys.stderr, flush=True)


def prompt(tokens: int) -> list[int]:
    """Token ids of a prompt of that length."""
    return list(range(FIRST_TOKEN, FIRST_TOKEN + tokens))


def open_all(bench: Bench) -> Answer:
    """Start the models and warm up. Every library must come to our next token with our logit, or it has failed."""
    ours = bench.atlas.ask("open", timeout=900, tokens=prompt(PROMPT), longest=max(bench.effort.lengths))
    for library in bench.peers:
        say(f"opening {library}")
        answer = bench.peer(library, "open", weights=ours["weights"], config=ours["config"], tokens=prompt(PROMPT))
        if answer is None:
            continue
        bench.opened[library] = answer
        for way, told in answer["ways"].items():
            if told["next"] != ours["next"] or abs(told["logit"] - ours["logit"]) > NEAR * abs(ours["logit"]):
                bench.failed[library] = f"{library} ({way}) computes other logits from these weights"
    return ours


def measure_passes(bench: Bench, ours: Answer) -> list[Found]:
    """Passes with everything captured, with nothing, single requests, and the libraries: all in the same rounds."""
    taken: dict[str, list[float]] = {}

    def take(name: str, what: str = "seconds", question: str = "take", **arguments: Any) -> None:
        answer = bench.atlas.ask(question, tokens=prompt(PROMPT), **arguments)
        taken.setdefault(name, []).append(answer[what])

    for number in range(bench.effort.rounds):
        say(f"passes, round {number + 1} of {bench.effort.rounds}")
        take("prefill", how="bare")
        take("prefill captured", how="captured")
        for step in range(bench.effort.steps):
            take("step", how="bare", step=True)
            take("step captured", how="captured", step=True)
            take("step beside request", how="bare", step=True)
            take("request", question="request", view="decode", number=number * bench.effort.steps + step)
            take("step cpu", "cpu", how="bare", step=True, threads=1)
            take("step run cpu", "cpu", how="run", step=True, threads=1)
        for beside in dict.fromkeys(peer.beside for peer in PEERS):
            bench.take(*beside)
        for peer in PEERS:
            if not peer.slow or number < bench.effort.slow_rounds:
                bench.take(peer.library, peer.way)
    sizes = bench.atlas.ask("sizes", tokens=prompt(PROMPT))
    layers = ours["layers"]
    return [
        spread(
            "prefill_captured",
            ratios(taken["prefill captured"], taken["prefill"]),
            "×",
            f"{PROMPT} tokens, every declared tensor of all layers kept: {sizes['tensors']:,} in "
            f"{_mb(sizes['captured'])}",
            1.15,
            bare_seconds=_median(taken["prefill"]),
            tensors=sizes["tensors"],
            bytes=sizes["captured"],
        ),
        spread(
            "decode_captured",
            ratios(taken["step captured"], taken["step"]),
            "×",
            f"the same in a decode step after {PROMPT} tokens",
            1.3,
            bare_seconds=_median(taken["step"]),
        ),
        spread(
            "decode_unobserved",
            ratios(taken["step run cpu"], taken["step cpu"]),
            "×",
            "a run's decode step that nobody looks at, CPU time in one thread, each paired with a bare one",
            1.02,
            bare_seconds=_median(taken["step cpu"]),
        ),
        spread(
            "node_request",
            ratios(taken["request"], taken["step beside request"]),
            "of a step",
            "one inner tensor of one layer at a decode step, made by replay, with its statistics; each node in turn",
            1.5 / layers,
            seconds=_median(taken["request"]),
        ),
        Found(
            "run_bytes_vs_all",
            sizes["run"] / sizes["pass"],
            "of all",
            f"a run of {PROMPT} tokens keeps {_mb(sizes['run'])}; the prefill allocates {_mb(sizes['pass'])} "
            f"({_mb(sizes['pass_with_views'])} with views counted as tensors of their own)",
            0.02,
            more=sizes,
        ),
        *(found_of(bench, peer) for peer in PEERS),
    ]


def found_of(bench: Bench, peer: PeerWay) -> Found:
    """What was measured of another library."""
    mine, other = bench.seconds.get((peer.library, peer.way)), bench.seconds.get(peer.beside)
    needed = [library for library in (peer.library, peer.beside[0]) if library in bench.failed]
    if needed or not mine or not other:
        why = bench.failed[needed[0]] if needed else "it was not measured"
        return Found(peer.key, None, "×", peer.how, failed=why)
    kept = bench.opened[peer.library]["ways"][peer.way]
    count = min(len(mine), len(other))
    how = f"{peer.how}: {kept['tensors']:,} tensors in {_mb(kept['bytes'])}"
    return spread(
        peer.key,
        ratios(mine[:count], other[:count]),
        "×",
        how,
        bare_seconds=_median(other),
        seconds=_median(mine),
        tensors=kept["tensors"],
        bytes=kept["bytes"],
    )


def measure_growth(bench: Bench) -> list[dict[str, Any]]:
    """How prefill, memory and requests grow with the prompt."""
    rows = []
    for tokens, rounds in bench.effort.lengths.items():
        say(f"growth, {tokens} tokens")
        taken: dict[str, list[float]] = {}

        def take(
            name: str, question: str, tokens: int = tokens, taken: dict[str, list[float]] = taken, **arguments: Any
        ) -> None:
            answer = bench.atlas.ask(question, timeout=900, tokens=prompt(tokens), **arguments)
            taken.setdefault(name, []).append(answer["seconds"])

        for number in range(rounds):
            take("bare", "take", how="bare")
            take("run", "take", how="run")
            take("step", "take", how="bare", step=True)
            take("prefill request", "request", view="prefill", number=number, node="blocks/attention/attention-weights")
            take("step request", "request", view="decode", number=number, node="blocks/attention/attention-weights")
        sizes = bench.atlas.ask("growth", timeout=900, tokens=prompt(tokens))
        rows.append(
            {
                "tokens": tokens,
                "prefill, s": _median(taken["bare"]),
                "as a run, s": _median(taken["run"]),
                "run keeps, MB": sizes["run"] / 1e6,
                "prefill allocates, MB": sizes["pass"] / 1e6,
                "request in prefill, ms": 1000 * _median(taken["prefill request"]),
                "decode step, ms": 1000 * _median(taken["step"]),
                "request in step, ms": 1000 * _median(taken["step request"]),
            }
        )
    return rows


def measure_pages(effort: Effort) -> list[Found]:
    """Starting, and pages."""
    say("starts")
    starts = [pages.start_times() for _ in range(effort.starts)]
    say("pages")
    told = pages.latencies(effort.page_seconds, effort.prefills)
    rate = pages.pages_per_second(effort.page_seconds)
    busy = "while prompts of 1,000 tokens are in prefill"
    return [
        Found("page_ms_p50", told["new_p50"], "ms", "a page that nobody has read before, one reader"),
        Found("page_ms_p99", told["new_p99"], "ms", f"the same; {told['new_pages']:.0f} pages"),
        Found("page_kept_ms_p50", told["kept_p50"], "ms", "a page that was read before"),
        Found("page_kept_ms_p99", told["kept_p99"], "ms", f"the same; {told['kept_pages']:.0f} pages"),
        Found("page_busy_ms_p99", told["new_busy_p99"], "ms", f"a page that nobody has read before, {busy}", 20),
        Found("page_kept_busy_ms_p99", told["kept_busy_p99"], "ms", f"a page that was read before, {busy}", 20),
        Found("pages_per_second", rate["new"], "/s", "one process on one core, four readers, pages not read before"),
        Found("pages_kept_per_second", rate["kept"], "/s", "the same, pages that were read before"),
        spread("first_page_s", [first for first, _ in starts], "s", "from starting the server to its first page", 2),
        spread("live_ready_s", [ready for _, ready in starts], "s", "from starting it to running the model", 4),
    ]


def _median(values: Sequence[float]) -> float:
    return spread("", values, "", "").value or 0.0


def _mb(count: float) -> str:
    return f"{count / 1e6:,.1f} MB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works, not what it takes")
    parser.add_argument("--threads", type=int, default=0, help="threads of torch; 0 leaves the choice to torch")
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-peers/bin/python", help="the libraries' Python")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results.json", help="where results go")
    parser.add_argument("--readme", action="store_true", help="put the report into README.md as well")
    options = parser.parse_args()
    end_in_order()
    draw_ahead()
    effort = QUICK if options.quick else FULL
    if options.threads:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
    report: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
        "machine": machine(),
        "quick": options.quick,
    }
    started = time.monotonic()
    of_pages = measure_pages(effort)
    with contextlib.ExitStack() as stack:

        def start(name: str, *command: str) -> Worker:
            return stack.enter_context(Worker(name, command))

        atlas = start("atlas", sys.executable, "-m", "benchmarks.worker_atlas")
        if options.peers.is_file():
            libraries = {
                name: start(name, str(options.peers), "-m", "benchmarks.worker_peers", name) for name in LIBRARIES
            }
            bench = Bench(atlas, libraries, effort)
        else:
            bench = Bench(atlas, {}, effort, failed=dict.fromkeys(LIBRARIES, f"there is no {options.peers.name}"))
        ours = open_all(bench)
        found = measure_passes(bench, ours)
        growth = measure_growth(bench)
        say("profile")
        profile = atlas.ask("profile", tokens=prompt(PROMPT), repeats=effort.profiled)
    found += of_pages
    versions = ours["versions"] | {name: told["version"] for name, told in bench.opened.items()}
    report |= {
        "model": ours["model"],
        "threads": ours["threads"],
        "versions": versions,
        "seconds": round(time.monotonic() - started),
        "growth": growth,
        "profile": profile,
    }
    options.output.write_text(as_json(report, found))
    written = written_out(report, found)
    print(written)
    if options.readme:
        put_into(ROOT / "README.md", written)
    return 0


def written_out(report: dict[str, Any], found: Sequence[Found]) -> str:
    """The whole report as Markdown."""
    here = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    parts = [
        f"{report['model']} in float32, {report['date']}: {here['processor']}, {here['cores']} cores "
        f"({report['threads']} threads of torch), {here['memory_gib']} GiB, {here['system']}, Python {here['python']}, "
        f"load {here['load']} before. {versions}.",
        "Ratios are to the bare forward of the same model unless another is named."
        + (" Few repeats: these numbers only show that it works." if report["quick"] else ""),
        results_table(found),
        "With the length of the prompt (requests: the attention weights of one layer, with their statistics):",
        growth_table(report["growth"]),
        "Where the time of a captured decode step goes (CPU, one thread):",
        profile_table(report["profile"]),
        f"Measured in {report['seconds']} s.",
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
