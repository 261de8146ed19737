"""Who is named when a rank is lost, and by whom: several ranks' watches in one process, over one store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from torch._C._distributed_c10d import HashStore, TCPStore

from atlas.runtime.distributed.liveness import GroupLost, Liveness, Member

LONG, DEADLINE = 600.0, 60.0
Watch = Callable[..., Liveness]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


@pytest.fixture
def members(other: subprocess.Popen[bytes]) -> tuple[Member, ...]:
    """Rank 0 on one machine, ranks 1 and 2 on another; 2 is a process of its own."""
    here = Member.here(1)
    return Member(0, os.getpid(), "first", "another machine"), here, Member(2, other.pid, here.host, here.namespace)


@pytest.fixture
def watch(members: tuple[Member, ...]) -> Iterator[Watch]:
    """Starts the watch of one rank; `speaks` are ranks that are heard of without one."""
    store, started = HashStore(), list[Liveness]()

    def start(rank: int, silence: float = LONG, speaks: Sequence[int] = (2,)) -> Liveness:
        for one in speaks:
            store.set(f"alive/{one}", "0")
        started.append(Liveness(store, members, rank, silence))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_an_end_that_only_its_own_machine_sees_is_told_to_all(
    watch: Watch, members: tuple[Member, ...], other: subprocess.Popen[bytes]
) -> None:
    told: list[GroupLost] = []
    beside, first = watch(1, speaks=(0, 2)), watch(0)
    first.tell(told.append)
    other.send_signal(signal.SIGKILL)
    until(lambda: first.lost is not None)
    assert told == [first.lost]
    assert str(first.lost).startswith(f"R{str(members[2])[1:]} has ended. The model is split over 3 ranks")
    assert str(beside.lost) == str(first.lost)
    with pytest.raises(GroupLost):
        first.require()


def test_a_symptom_waits_for_its_cause(watch: Watch) -> None:
    beside, first = watch(1, speaks=(0, 2)), watch(0)
    beside.fail("Connection closed by peer")
    lost = first.diagnosed("another symptom")
    assert "The ranks could not go on together: Connection closed by peer." in str(lost)
    assert lost is first.lost
    assert first.fail("a third one") is lost


def test_one_that_is_silent_is_named_with_what_it_said_last(watch: Watch, members: tuple[Member, ...]) -> None:
    quiet = watch(0, silence=0.1, speaks=(1, 2))
    until(lambda: quiet.lost is not None)
    assert str(quiet.lost).startswith(
        f"R{str(members[1])[1:]} has said nothing for 0 s: it hangs, or cannot be reached."
    )


def test_one_that_said_why_it_ends_is_named_with_its_reason(watch: Watch, members: tuple[Member, ...]) -> None:
    leaving = watch(1, speaks=(0, 2))
    leaving.leave("it was told to stop.")
    leaving.close()
    quiet = watch(0, silence=0.1, speaks=(2,))
    until(lambda: quiet.lost is not None)
    assert str(quiet.lost).startswith(f"R{str(members[1])[1:]} has ended: it was told to stop.")


def test_whoever_was_stopped_for_a_while_ends_where_the_others_have_given_it_up(watch: Watch) -> None:
    first = watch(0, silence=0.1, speaks=(1, 2))
    until(lambda: first.lost is not None)
    woken = watch(1, speaks=(2,))
    until(lambda: woken.lost is not None)
    assert str(woken.lost) == str(first.lost)


def test_a_meeting_point_that_hangs_is_noticed(members: tuple[Member, ...]) -> None:
    code = "import sys, torch.distributed as dist\nstore = dist.TCPStore('127.0.0.1', 0, is_master=True)\n"
    code += "print(store.port, flush=True)\nsys.stdin.read()\n"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as host:
        assert host.stdout is not None
        store = TCPStore("127.0.0.1", int(host.stdout.readline()), is_master=False)
        store.set("alive/0", "0")
        store.set("alive/2", "0")
        liveness = Liveness(store, members, 1, 1.0)
        host.send_signal(signal.SIGSTOP)
        until(lambda: liveness.lost is not None)
        assert "The ranks' meeting point has not answered for " in str(liveness.lost)
        liveness.leave("it was lost.")  # does not wait for it
        host.kill()
        liveness.close()
