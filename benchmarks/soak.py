"""Many readers at once for minutes, then kill -9 again and again: `make soak`, or `python -m benchmarks.soak`.

Owns the mixture that readers ask for and what must hold: no answer of 500 and above, memory within its bounds, nothing
lost that was acknowledged. Everything is on loopback and ends by itself; each reader has an address of its own (Linux:
all of 127.0.0.0/8 is this machine), so that the limits of one client are those of one reader.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks import kills
from benchmarks.serving import Server, end_in_order, percentile, serving

MODEL = "smollm2-135m"
MODELS = ("llama-3-8b", "llama-3.1-8b", MODEL)
NODES = (
    "blocks/attention/attention-weights",
    "blocks/attention/attention-update",
    "blocks/feed-forward/gated",
    "blocks/block-output",
    "final-norm/normalized",
)
PROMPTS = ("The capital of France is", "Once upon a time", "2 + 2 =", "def fibonacci(n):", "Water boils at")
BUDGET = 256 << 20
KEPT = (256 << 20) + (512 << 20) + (64 << 20)
"""What may be kept beside runs: tensors of the engine, tensors that are looked at, pages."""
SLACK = 512 << 20
"""What a pass and answers on their way take for a moment, and what the allocator holds on to."""


@dataclass
class Seen:
    """What all readers have met."""

    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    tokens: int = 0


class Reader:
    """One reader: looks at pages, starts runs, follows them, looks at tensors; now and then leaves in the middle."""

    def __init__(self, base: str, number: int, seen: Seen) -> None:
        self.seen = seen
        self.chance = random.Random(number)
        address = f"127.1.{number // 250}.{1 + number % 250}"
        transport = httpx.AsyncHTTPTransport(local_address=address)
        self.client = httpx.AsyncClient(base_url=base, transport=transport, timeout=120)

    async def read(self, until: float) -> None:
        """Go on until the time is over."""
        actions: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.page, 50),
            (self.search, 8),
            (self.graph, 5),
            (self.tensor, 25),
            (self.run, 8),
            (self.leave, 4),
        ]
        async with self.client:
            while time.monotonic() < until:
                (action,) = self.chance.choices([one for one, _ in actions], [weight for _, weight in actions])
                try:
                    await action()
                except httpx.HTTPError as error:
                    self.seen.wrong.append(f"{action.__name__}: {error!r}")
                await asyncio.sleep(self.chance.uniform(0.1, 1.5))

    async def ask(self, kind: str, path: str, **more: Any) -> httpx.Response:
        started = time.perf_counter()
        answer = await self.client.request(more.pop("method", "GET"), path, **more)
        self.note(kind, path, answer, time.perf_counter() - started)
        return answer

    def note(self, kind: str, path: str, answer: httpx.Response, seconds: float) -> None:
        self.seen.seconds[kind].append(seconds)
        self.seen.statuses[f"{kind} {answer.status_code}"] += 1
        if answer.status_code >= 500 or "x-request-id" not in answer.headers:
            self.seen.wrong.append(f"{path}: {answer.status_code}")

    async def page(self) -> None:
        view = self.chance.choice(("full", "prefill", "decode"))
        path = self.chance.choice(["/", "/how-to-read", *(f"/models/{self.chance.choice(MODELS)}" for _ in range(2))])
        if self.chance.random() < 0.7:
            path = f"/models/{self.chance.choice(MODELS)}/{self.chance.choice(NODES)}"
        await self.ask("page", f"{path}?view={view}&layer={self.chance.randrange(30)}")

    async def search(self) -> None:
        await self.ask("search", f"/api/search?q={self.chance.choice(('S_s', 'norm', 'blk.3.attn_k', 'resid', 'zz'))}")

    async def graph(self) -> None:
        await self.ask("graph", f"/api/models/{self.chance.choice(MODELS)}")

    async def tensor(self) -> None:
        if not self.seen.runs:
            return
        run, node = self.chance.choice(self.seen.runs[-40:]), self.chance.choice(NODES)
        place = f"/api/runs/{run}/tensors/{node}"
        where = f"view={self.chance.choice(('prefill', 'decode', 'full'))}&layer={self.chance.randrange(30)}"
        kind, path = self.chance.choice(
            (
                ("summary", f"{place}?checks=shape&{where}"),
                ("cell", f"{place}/cell?{where}&slice={'0,0,0,0' if node.endswith('weights') else '0,0,0'}"),
                ("tile", f"{place}/tile?{where}&slice={'0,0,:,:' if node.endswith('weights') else '0,:,:'}"),
                ("file", f"{place}/data?format=npy&{where}"),
            )
        )
        await self.ask(kind, path)

    def order(self) -> dict[str, Any]:
        prompt = f"{self.chance.choice(PROMPTS)} {self.chance.randrange(12)}"
        if self.chance.random() < 0.1:
            prompt *= 25
        return {"model": MODEL, "prompt": prompt, "max_new_tokens": self.chance.randrange(1, 12), "temperature": 0.7}

    async def run(self) -> None:
        answer = await self.ask("start", "/api/runs", method="POST", json=self.order())
        if answer.status_code != 202:
            return
        run, started = answer.json()["id"], time.perf_counter()
        kind = ""
        async with self.client.stream("GET", f"/api/runs/{run}/events") as events:
            self.note("stream", f"/api/runs/{run}/events", events, time.perf_counter() - started)
            async for line in events.aiter_lines():
                kind = line.removeprefix("event: ") if line.startswith("event: ") else kind
                self.seen.tokens += kind == "token" and line.startswith("data: ")
        if kind == "done":
            self.seen.runs.append(run)
            self.seen.seconds["run, whole"].append(time.perf_counter() - started)

    async def leave(self) -> None:
        """Ask for something that takes long, and go."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.chance.uniform(0.01, 0.3)):
                await (self.run() if self.chance.random() < 0.5 else self.tensor())


async def load(server: Server, readers: int, seconds: float) -> Seen:
    """All readers at once. Memory is looked at every second."""
    seen = Seen()
    until = time.monotonic() + seconds

    async def watch() -> None:
        while time.monotonic() < until:
            seen.resident.append(server.resident)
            await asyncio.sleep(1)

    await asyncio.gather(watch(), *(Reader(server.url, number, seen).read(until) for number in range(readers)))
    return seen


def told(seen: Seen, base: int, seconds: float) -> dict[str, Any]:
    """The measurements as one document."""
    peak, third = max(seen.resident), len(seen.resident) // 3
    return {
        "answers": sum(seen.statuses.values()),
        "answers_per_second": round(sum(seen.statuses.values()) / seconds, 1),
        "tokens": seen.tokens,
        "statuses": dict(sorted(seen.statuses.items())),
        "ms": {
            kind: {
                name: round(1000 * percentile(sorted(values), share), 1)
                for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
            }
            | {"count": len(values)}
            for kind, values in sorted(seen.seconds.items())
        },
        "resident_mb": {
            "ready": base >> 20,
            "first_third": max(seen.resident[: third or 1]) >> 20,
            "last_third": max(seen.resident[-third or -1 :]) >> 20,
            "peak": peak >> 20,
            "bound": (base + BUDGET + KEPT + SLACK) >> 20,
        },
        "wrong": seen.wrong[:20],
    }


def soak(readers: int, seconds: float) -> bool:
    """The load, told; whether all that must hold did."""
    with tempfile.TemporaryDirectory() as where, serving(Path(where), "--memory-budget", str(BUDGET)) as server:
        for model in MODELS:  # drawn once, as whoever starts a server sees to
            server.ask(f"/models/{model}")
        base = server.resident
        seen = asyncio.run(load(server, readers, seconds))
        streams = next(
            line for line in server.ask("/metrics")[2].decode().splitlines() if line.startswith("atlas_event_streams ")
        )
        stopped = server.stop()
        said = server.said
    document = told(seen, base, seconds) | {"streams_left": streams, "stopped_in_seconds": round(stopped, 2)}
    print(json.dumps(document, indent=1))
    faults = list(seen.wrong)
    if max(seen.resident) > base + BUDGET + KEPT + SLACK:
        faults.append("memory has passed its bound")
    if not streams.endswith(" 0.0"):
        faults.append(f"streams are left: {streams}")
    if "Traceback" in said:
        faults.append(f"the log has a traceback: {said[-3000:]}")
    for fault in faults[:20]:
        print(f"FAULT {fault}", file=sys.stderr)
    return not faults


def killed(count: int) -> bool:
    """So many kills, of three kinds in turn; whether nothing was lost."""
    from atlas.runtime.checkpoints import open_checkpoint
    from atlas.runtime.weights import fetch_default
    from atlas.settings import Settings

    lost = 0
    with tempfile.TemporaryDirectory() as where:
        root, gguf = Path(where), fetch_default(Settings().data_dir)
        started = time.monotonic()
        open_checkpoint(gguf, root / "whole")
        longest = time.monotonic() - started
        for number in range(count):
            kind = ("decode", "journal", "conversion", "decode", "journal")[number % 5]
            started = time.monotonic()
            try:
                if kind == "decode":
                    found = kills.kill_while_decoding(root / "server", number)
                elif kind == "journal":
                    found = kills.kill_while_writing(root, number)
                else:
                    found = kills.kill_while_converting(gguf, root / f"conversion-{number}", number, longest)
            except AssertionError as error:
                lost += 1
                print(f"FAULT kill {number}, {kind}: {error}", file=sys.stderr)
            else:
                print(f"kill {number}, {kind}: nothing lost ({found}, {time.monotonic() - started:.1f} s)", flush=True)
    return not lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="how long readers read; 0 leaves them out")
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--kills", type=int, default=20, help="how often a process is killed; 0 leaves it out")
    chosen = parser.parse_args()
    end_in_order()
    held = soak(chosen.readers, 60 * chosen.minutes) if chosen.minutes else True
    kept = killed(chosen.kills) if chosen.kills else True
    print("All that must hold, held." if held and kept else "Not all that must hold did: see FAULT above.")
    return 0 if held and kept else 1


if __name__ == "__main__":
    sys.exit(main())
