"""The ranks together: how they meet, how rank 0 tells the others what to do, and how tensors come to rank 0.

Everything that waits for another rank goes through here: what fails there is a `GroupLost` that names the rank.
Commands are JSON, and numbers are bytes; nothing that is received is executed. Knows no models and no runs.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.distributed_c10d import _set_pg_timeout as set_timeout
from torch.distributed.rendezvous import rendezvous

from atlas.errors import AtlasError, EnvironmentUnfit
from atlas.runtime.distributed.facts import compare
from atlas.runtime.distributed.liveness import GroupLost, Liveness, Member
from atlas.runtime.distributed.place import Place
from atlas.runtime.meter import Progress
from atlas.runtime.placement import CPU, free_memory
from atlas.runtime.references.base import GivenUp

log = logging.getLogger(__name__)
MEETING = timedelta(seconds=120)
"""How long the first step, reaching rank 0's meeting point, may take."""
TOGETHER = timedelta(seconds=60)
"""How long one rank may wait for the others within a pass. Who ends or falls silent is noticed sooner."""
IDLE = timedelta(days=3650)
"""How long a rank waits for a command. That rank 0 is alive is watched meanwhile."""
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
"""Ranks that compute on a device reach each other by this backend."""
PACKET = 1024
"""Bytes of one message; a longer one is followed by the rest of it."""


class Group:
    """All ranks, as one of them sees them. One thread of each uses it."""

    def __init__(self, place: Place, members: tuple[Member, ...], store: Store, liveness: Liveness) -> None:
        self.place = place
        self.members = members
        self.liveness = liveness
        self.received = 0
        """Bytes of tensors that other ranks have sent to this one."""
        self._store = store
        self.computing = CPU
        """The device on which this rank computes, once it is connected."""
        self.room: int | None = None
        """Bytes of memory that it may take, where the ranks of its machine have one memory."""
        self._control: Any = None
        self._closed = False

    @property
    def rank(self) -> int:
        return self.place.rank

    @property
    def world(self) -> int:
        return self.place.world

    def device(self, kind: torch.device) -> torch.device:
        """This rank's own device of a kind: one of this machine's GPUs each. Raises `EnvironmentUnfit` for too few."""
        return own_device(self.place, kind, torch.cuda.device_count() if kind.type == "cuda" else 0)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """While entered, all ranks do the same: whatever goes wrong on one of them, they cannot go on.

        Raises `GroupLost` for what torch raises; an `AtlasError` speaks for itself, and so does a pass that all of
        them have been told to give up.
        """
        self.liveness.require()
        known = False
        try:
            yield
            known = True
        except (AtlasError, GivenUp):
            known = True
            raise
        except RuntimeError as error:  # of torch: another rank is gone, or this one cannot compute
            known = True
            raise self.liveness.diagnosed(_first_line(error)) from error
        finally:
            if not known:  # a fault of ours, or an interruption: the ranks are out of step all the same
                self.liveness.fail("a rank left off in the middle")

    # --- commands

    def tell(self, command: Mapping[str, Any]) -> None:
        """Rank 0: give all others a command."""
        body = json.dumps(command, separators=(",", ":")).encode()
        packet = torch.zeros(PACKET, dtype=torch.uint8)
        packet[:8] = torch.frombuffer(bytearray(len(body).to_bytes(8, "little")), dtype=torch.uint8)
        first = body[: PACKET - 8]
        packet[8 : 8 + len(first)] = torch.frombuffer(bytearray(first), dtype=torch.uint8)
        with self.together():
            dist.broadcast(packet, 0, group=self._control)
            if len(body) > len(first):
                dist.broadcast(torch.frombuffer(bytearray(body[len(first) :]), dtype=torch.uint8), 0, self._control)

    def hear(self) -> dict[str, Any]:
        """The others: wait for a command."""
        packet = torch.zeros(PACKET, dtype=torch.uint8)
        with self.together():
            dist.broadcast(packet, 0, group=self._control)
            numbers = packet.numpy().tobytes()
            length = int.from_bytes(numbers[:8], "little")
            body = numbers[8 : 8 + length]
            if length > len(body):
                rest = torch.zeros(length - len(body), dtype=torch.uint8)
                dist.broadcast(rest, 0, group=self._control)
                body += rest.numpy().tobytes()
        found: dict[str, Any] = json.loads(body)
        return found

    # --- tensors

    def send(self, tensor: torch.Tensor) -> None:
        """Give rank 0 a tensor whose shape and dtype it knows; it does not wait for an empty one."""
        if tensor.numel():
            with self.together():
                dist.send(_bytes(tensor), 0, group=self._control)

    def receive(self, rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Rank 0: take a tensor that another rank sends."""
        tensor = torch.empty(shape, dtype=dtype)
        if tensor.numel():
            with self.together():
                dist.recv(_bytes(tensor), rank, group=self._control)
            self.received += tensor.nbytes
        return tensor

    # --- before and after

    def agree(self, subject: str, own: Mapping[str, str], progress: Progress | None = None) -> None:
        """Compare what all ranks have. Raises `RanksDiffer` on each of them, and `GroupLost`."""
        self._store.set(f"{subject}/{self.rank}", json.dumps(dict(own)))
        found = []
        for member in self.members:
            name = f"{subject}/{member.rank}"
            while not self._store.check([name]):
                if progress is not None:
                    progress(f"waiting for rank {member.rank}", None)
                self.liveness.require()
                time.sleep(0.05)
            found.append(json.loads(self._store.get(name)))
        for member, theirs in zip(self.members, found, strict=True):
            compare(f"Rank {member.rank} (process {member.pid} on {member.host})", theirs, found[0])

    def connect(self, device: torch.device) -> None:
        """Start the groups in which ranks compute (NCCL on CUDA, gloo on the processor) and talk (gloo).

        Raises `EnvironmentUnfit` for a device on which ranks cannot compute together.
        """
        import fairscale.nn.model_parallel.initialize as parallel

        parallel.print = log.debug
        backend = backend_for(device)
        store = PrefixStore("computing", self._store)
        self.computing = self.device(device)
        own = self.members[self.rank]
        if self.computing.type == "cpu":  # none of them has begun to load
            beside = sum((one.host, one.machine) == (own.host, own.machine) for one in self.members)
            self.room = free_memory(CPU) // beside
        else:
            torch.cuda.set_device(self.computing)  # what is made without a device, and NCCL, use this one from now on
        with self.together(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world, timeout=TOGETHER)
            parallel.initialize_model_parallel(self.world)
            set_timeout(TOGETHER, parallel.get_model_parallel_group())
            self._control = dist.new_group(backend="gloo", timeout=IDLE)

    def close(self, reason: str = "it was told to stop.") -> None:
        """Leave the others. Rank 0 tells them to end as well, if they can still hear it."""
        if self._closed:
            return
        self._closed = True
        self.liveness.leave(reason)
        if self.rank == 0 and self.liveness.lost is None and self._control is not None:
            with contextlib.suppress(GroupLost):
                self.tell({"do": "close"})
        self.liveness.close()


def backend_for(device: torch.device) -> str:
    """By which of torch's backends ranks compute together there. Raises `EnvironmentUnfit` where none can."""
    backend = BACKENDS.get(device.type)
    if backend is None:
        raise EnvironmentUnfit(
            f"A model cannot be split over ranks that compute on {device.type.upper()}: torch has no way for them to.",
            "Start all ranks with --device cpu.",
        )
    return backend


def own_device(place: Place, kind: torch.device, count: int) -> torch.device:
    """A rank's own device of a kind, of `count` that this machine has. Raises `EnvironmentUnfit` for too few."""
    if kind.type != "cuda":
        return kind
    if place.local >= count:
        raise EnvironmentUnfit(
            f"Rank {place.rank} has no GPU of its own: it is number {place.local} on this machine, counted from 0, and "
            f"torch finds {count} here.",
            f"Start at most {count} ranks on it (torchrun --nproc-per-node {max(count, 1)}), or all with --device cpu.",
        )
    return torch.device("cuda", place.local)


def join(place: Place, silence: float, progress: Progress | None = None) -> Group:
    """Meet the other ranks. Raises `EnvironmentUnfit` where there is no meeting point, and `GroupLost`."""
    if progress is not None:
        progress(f"waiting for {place.world - 1} other ranks", None)
    if place.on_loopback and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # ranks of one machine need no port that others can reach
    store, members = meet(place, Member.here(place.rank), PrefixStore("atlas", _met(place)))
    beats = store.clone() if hasattr(store, "clone") else store
    return Group(place, members, store, Liveness(beats, members, place.rank, silence))


def _met(place: Place) -> Store:
    """The store through which ranks find each other: the launcher's own, or rank 0's."""
    try:
        store, _, _ = next(rendezvous("env://", timeout=MEETING))
    except RuntimeError as error:
        said = _first_line(error)
        if place.serves and (os.strerror(errno.EADDRINUSE) in str(error) or "EADDRINUSE" in str(error)):
            raise EnvironmentUnfit(
                f"The ranks cannot meet on port {place.port} of {place.address}: it is in use.",
                "Choose another with torchrun --master-port PORT (or MASTER_PORT).",
            ) from error
        raise EnvironmentUnfit(
            f"Rank {place.rank} cannot reach the other ranks at {place.address} port {place.port}: {said}.",
            "Does rank 0 run there, and may this machine reach it? See --master-addr and --rdzv-endpoint of torchrun.",
        ) from error
    found: Store = store
    return found


def meet(place: Place, own: Member, store: Store) -> tuple[Store, tuple[Member, ...]]:
    """All ranks of this start, and a store that is theirs alone. Raises `EnvironmentUnfit` where one does not come.

    A launcher may keep one store from start to start, and count starts otherwise than that of another machine does. So
    nothing that stands there is believed: each rank knocks with a word of its own, and waits for rank 0's answer to it.
    """
    deadline = time.monotonic() + MEETING.total_seconds()
    if place.serves:
        start = uuid.uuid4().hex
        fresh = PrefixStore(start, store)
    else:
        word = uuid.uuid4().hex
        store.set(f"knock/{place.rank}", word)
        _wait(store, f"answer/{word}", 0, deadline)
        fresh = PrefixStore(store.get(f"answer/{word}").decode(), store)
    fresh.set(f"member/{place.rank}", own.encoded())
    answered: set[bytes] = set()

    def answer() -> None:
        for rank in range(1, place.world):
            if store.check([f"knock/{rank}"]) and (knock := store.get(f"knock/{rank}")) not in answered:
                answered.add(knock)
                store.set(f"answer/{knock.decode()}", start)

    for rank in range(place.world):
        _wait(fresh, f"member/{rank}", rank, deadline, answer if place.serves else None)
    found = [json.loads(fresh.get(f"member/{rank}")) for rank in range(place.world)]
    return fresh, tuple(Member(**member) for member in found)


def _wait(store: Store, name: str, rank: int, deadline: float, meanwhile: Callable[[], None] | None = None) -> None:
    """Wait until a rank has written something."""
    while not store.check([name]):
        if meanwhile is not None:
            meanwhile()
        if time.monotonic() > deadline:
            raise EnvironmentUnfit(
                f"Rank {rank} did not come within {MEETING.total_seconds():.0f} s.", "Start all ranks; see its log."
            )
        time.sleep(0.02)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor as bytes: memory of its own where it is not in one piece."""
    whole = tensor.cpu().contiguous()
    real = torch.view_as_real(whole) if whole.is_complex() else whole
    return real.reshape(-1).view(torch.uint8)


def _first_line(error: BaseException) -> str:
    text = " ".join(str(error).partition("\n")[0].split()) or type(error).__name__
    return text.removesuffix(".")[:200]
