"""What the engine has done, counted, for whoever watches the server (Prometheus).

Owns the names and meanings of these numbers. Numbers that are only read off something are read when they are asked for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

RECENT = 10.0  # seconds
REPLAY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
PASS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Tallies:
    """The numbers of one engine, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._recent: deque[float] = deque()
        self.generated = Counter("atlas_tokens_generated", "Tokens generated.", registry=self.registry)
        self.prefilled = Counter("atlas_tokens_prefilled", "Tokens of prompts computed.", registry=self.registry)
        self.runs = Counter("atlas_runs_finished", "Runs that have ended.", ["status"], registry=self.registry)
        self.passes = Histogram(
            "atlas_pass_seconds",
            "Time of a pass, requests served within it included.",
            ["view"],
            buckets=PASS_BUCKETS,
            registry=self.registry,
        )
        self.replays = Histogram(
            "atlas_replay_seconds",
            "Time to make tensors again by replaying a block.",
            buckets=REPLAY_BUCKETS,
            registry=self.registry,
        )
        self.kept = Counter(
            "atlas_tensor_requests",
            "Requests for tensors, by where they came from.",
            ["origin"],
            registry=self.registry,
        )
        self.show("atlas_tokens_per_second", f"Tokens generated in the last {RECENT:g} s, a second.", self._speed)

    def show(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """A number that is read when it is asked for."""
        Gauge(name, meaning, registry=self.registry).set_function(read)

    def generated_one(self) -> None:
        """One more token has been generated."""
        self.generated.inc()
        now = time.monotonic()
        self._recent.append(now)
        while self._recent and self._recent[0] < now - RECENT:
            self._recent.popleft()

    def _speed(self) -> float:
        since = time.monotonic() - RECENT
        return sum(moment >= since for moment in tuple(self._recent)) / RECENT
