"""Whether all ranks are alive: each says so twice a second, and all watch all.

A process that ends on this machine is noticed at once, by the kernel's word; one that hangs, or whose machine is gone,
when it has been silent for some seconds. Who notices tells the others, on whichever machine they are. Who is lost first
is named, not who ended because of it. Knows no models.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch._C._distributed_c10d import Store

from atlas.errors import NotReady

log = logging.getLogger(__name__)
BEAT = 0.5
"""Seconds between two signs of life."""
CAUSE, NONE = "cause", "-"
"""Where the ranks write down what is lost, and what stands there while nothing is."""
SETTLING = 2.0
"""Seconds in which the first cause of a loss shows, where several ranks are gone at once."""


class GroupLost(NotReady):
    """A rank of a split model has ended or hangs, so no rank can compute."""

    code = "rank-lost"


@dataclass(frozen=True)
class Member:
    """One process of the group: where it runs."""

    rank: int
    pid: int
    host: str
    namespace: str

    @classmethod
    def here(cls, rank: int) -> Member:
        """This process. Two with the same `namespace` know each other's processes by their ids."""
        with contextlib.suppress(OSError):
            boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
            return cls(rank, os.getpid(), socket.gethostname(), f"{boot} {Path('/proc/self/ns/pid').readlink()}")
        return cls(rank, os.getpid(), socket.gethostname(), "")

    @property
    def machine(self) -> str:
        """What tells this machine, since it was started, from others."""
        return self.namespace.partition(" ")[0]

    def encoded(self) -> str:
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


class Liveness:
    """Says that this rank is alive, and tells once, in a thread of its own, of the first other one that is not.

    `silence` is how many seconds a rank may say nothing, and the store not answer.
    """

    def __init__(self, store: Store, members: Sequence[Member], rank: int, silence: float) -> None:
        self._store = store
        self._members = members
        self._rank = rank
        self._silence = silence
        self._watched = [member for member in members if member.rank != rank]
        self._doors = {m.rank: door for m in self._watched if (door := _door(m, members[rank])) is not None}
        self._quiet = dict.fromkeys((m.rank for m in self._watched), 0.0)
        self._beats: dict[int, bytes] = {}
        self._told: Callable[[GroupLost], None] | None = None
        self._lost: GroupLost | None = None
        self._cut_off = False
        self._turns = 0
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="liveness", daemon=True)
        store.compare_set(CAUSE, "", NONE)
        self._beat(0)
        self._thread.start()
        threading.Thread(target=self._guard, name="liveness-guard", daemon=True).start()

    @property
    def lost(self) -> GroupLost | None:
        """What has been lost, once something has."""
        return self._lost

    def tell(self, told: Callable[[GroupLost], None]) -> None:
        """Have a loss told, also one that there has been already."""
        with self._lock:
            self._told = told
            lost = self._lost
        if lost is not None:
            told(lost)

    def require(self) -> None:
        """Raises `GroupLost` once a rank is lost."""
        if self._lost is not None:
            raise self._lost

    def diagnosed(self, symptom: str) -> GroupLost:
        """Why working together failed: the rank that is gone or silent if one is, else the symptom itself."""
        deadline = time.monotonic() + SETTLING
        while self._lost is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.fail(symptom)

    def fail(self, symptom: str) -> GroupLost:
        """Give up, whoever is to blame."""
        return self._lose(f"The ranks could not go on together: {symptom}.")

    def leave(self, reason: str) -> None:
        """Say why this rank ends, so that nobody takes it for the first to go."""
        self._leaving.set()
        if not self._cut_off:
            with contextlib.suppress(RuntimeError):
                self._store.set(f"gone/{self._rank}", reason)

    def close(self) -> None:
        """Stop watching."""
        self._leaving.set()
        if self._thread is not threading.current_thread():
            self._thread.join(2 * BEAT)

    # --- its thread

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._leaving.is_set():
            ended = self._ended(BEAT)
            if self._leaving.is_set():
                return
            if ended:
                self._lose(self._first_of(ended))
                return
            self._turns += 1
            try:
                self._beat(self._turns)
                # A machine that slept, or a process that was stopped, has no right to call others silent.
                now = time.monotonic()
                silent, told = self._heard(min(now - before, 2 * BEAT))
                before = now
            except RuntimeError as error:  # what torch raises where the store does not answer
                if not self._leaving.is_set():
                    self._cut_off = True
                    ended = self._ended(SETTLING)
                    gone = f"The ranks' meeting point is gone: {str(error).partition(', keys')[0]}."
                    self._lose(self._first_of(ended) if ended else gone)
                return
            if told != NONE:
                self._lose(told)
                return
            if silent is not None:
                reason = self._farewell(silent.rank)
                quiet = f"has said nothing for {self._silence:.0f} s: it hangs, or cannot be reached."
                self._lose(f"{_capital(silent)} {f'has ended: {reason}' if reason else quiet}")
                return

    def _guard(self) -> None:
        """In a second thread: notice that the store does not answer. What waits for it cannot be called back."""
        seen, quiet, before = 0, 0.0, time.monotonic()
        while self._lost is None and not self._leaving.wait(BEAT):
            now = time.monotonic()
            quiet = quiet + min(now - before, 2 * BEAT) if seen == self._turns else 0.0
            seen, before = self._turns, now
            if quiet > self._silence + SETTLING:
                self._cut_off = True
                self._lose(f"The ranks' meeting point has not answered for {quiet:.0f} s.")

    def _beat(self, count: int) -> None:
        self._store.set(f"alive/{self._rank}", str(count))

    def _heard(self, passed: float) -> tuple[Member | None, str]:
        """Who has been silent for too long, if somebody has; and what another rank has found to be lost."""
        *beats, cause = self._store.multi_get([*(f"alive/{member.rank}" for member in self._watched), CAUSE])
        return self._silent(passed, beats), cause.decode()

    def _silent(self, passed: float, beats: Sequence[bytes]) -> Member | None:
        for member, found in zip(self._watched, beats, strict=True):
            if found != self._beats.get(member.rank):
                self._beats[member.rank] = found
                self._quiet[member.rank] = 0.0
            else:
                self._quiet[member.rank] += passed
                if self._quiet[member.rank] > self._silence:
                    return member
        return None

    def _ended(self, seconds: float) -> list[int]:
        """Ranks of this machine whose processes have ended; waits for one for so long."""
        poll = select.poll()
        for door in self._doors.values():
            poll.register(door, select.POLLIN)
        ready = {door for door, _ in poll.poll(seconds * 1000)}
        return [rank for rank, door in self._doors.items() if door in ready]

    def _first_of(self, ended: list[int]) -> str:
        """Which of those that have ended is the cause: the one that did not say why."""
        deadline = time.monotonic() + SETTLING
        reasons: dict[int, str] = {}
        while time.monotonic() < deadline:
            ended = self._ended(0) or ended
            reasons = {rank: reason for rank in ended if (reason := self._farewell(rank))}
            silent = [rank for rank in ended if rank not in reasons]
            if silent:
                return f"{_capital(self._members[silent[0]])} has ended."
            time.sleep(0.1)
        return f"{_capital(self._members[ended[0]])} has ended: {reasons[ended[0]]}"

    def _farewell(self, rank: int) -> str:
        try:
            name = f"gone/{rank}"
            return self._store.get(name).decode() if not self._cut_off and self._store.check([name]) else ""
        except RuntimeError:
            return ""

    def _lose(self, sentence: str) -> GroupLost:
        with self._lock:
            if self._lost is not None:
                return self._lost
            world = len(self._members)
            self._lost = GroupLost(
                f"{sentence} The model is split over {world} ranks, and cannot run without all of them.",
                "Start all of them again (torchrun --max-restarts N does it by itself): the links to runs stay good.",
                retry_after=10,
            )
            lost, told = self._lost, self._told
        log.error("%s", lost)
        if self._rank:  # before it ends
            self._tell_others(sentence)
        if told is not None:
            told(lost)
        if not self._rank:  # readers come first: the meeting point may be what is gone
            self._tell_others(sentence)
        return lost

    def _tell_others(self, sentence: str) -> None:
        if not self._cut_off:
            with contextlib.suppress(RuntimeError):
                self._store.compare_set(CAUSE, NONE, sentence)


def _door(member: Member, own: Member) -> int | None:
    """What becomes readable when a process of this machine ends; None where its end cannot be seen from here."""
    if not own.namespace or member.namespace != own.namespace or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(member.pid)
    except OSError:
        return None


def _capital(member: Member) -> str:
    return "R" + str(member)[1:]
