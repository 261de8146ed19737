"""Several ranks on this machine, on loopback, each a process; all of them are ended with the test."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
Started = list["subprocess.Popen[str]"]
StartRanks = Callable[..., Started]


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def ended(processes: Started, kill: Callable[[subprocess.Popen[str]], None]) -> None:
    """End what still runs, and let its output go."""
    for process in processes:
        if process.poll() is None:
            kill(process)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def start_ranks() -> Iterator[StartRanks]:
    """Starts a process for each rank, as a launcher does; `own(rank)` adds to one rank's variables or arguments."""
    started: Started = []

    def start(
        command: Sequence[str],
        world: int = 3,
        own: Callable[[int], dict[str, str]] = lambda _: {},
        arguments: Callable[[int], Sequence[str]] = lambda _: (),
    ) -> Started:
        port = free_port()
        ranks = []
        for rank in range(world):
            environment = {
                **{name: value for name, value in os.environ.items() if not name.startswith("ATLAS_")},
                **{"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)},
                **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
                **{"ATLAS_NO_RECHECK": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                **own(rank),
            }
            ranks.append(
                subprocess.Popen(
                    [sys.executable, *command, *arguments(rank)],
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        started.extend(ranks)
        return ranks

    yield start
    ended(started, subprocess.Popen.kill)
