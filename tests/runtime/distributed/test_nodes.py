"""Two launchers on loopback, as on two machines: one rank with the first, two with the second."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.distributed.conftest import ROOT, ended, free_port
from tests.runtime.distributed.test_serving import DEADLINE, LONG, Server

Launch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts torchrun with these options and this command; what it starts ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(options: Sequence[str], command: Sequence[str]) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ATLAS_")}
        environment |= {"OMP_NUM_THREADS": "1", "ATLAS_NO_RECHECK": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *options, "-m", "atlas", "serve", *command],
            cwd=ROOT,
            env=environment | {"TMPDIR": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    ended(started, lambda launcher: os.killpg(launcher.pid, signal.SIGKILL))


def ranks_of(launcher: subprocess.Popen[str]) -> list[int]:
    """The processes that a launcher has started."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    return [int(child) for child in children if b"atlas" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_a_rank_on_another_machine_is_named_and_all_start_again(
    launch: Launch, own_data_dir: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for entry in own_data_dir.iterdir():
        if not entry.name.startswith("runs."):
            (data / entry.name).symlink_to(entry.resolve())
    meeting, port = free_port(), free_port()
    command = ["--port", str(port), "--data-dir", str(data), "--rank-seconds", "30", "--drain-seconds", "1"]
    launchers = [
        launch(
            [
                *("--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", str(1 + node)),
                *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{meeting}", "--rdzv-id", "atlas"),
                *("--local-addr", "127.0.0.1", "--max-restarts", "1"),
            ],
            command,
        )
        for node in (0, 1)
    ]
    server = Server(launchers, port, data)
    server.until(lambda: server.get("/readyz")[0] == 200, "It does not get ready.")
    run = server.demonstration()
    before = server.json(f"/api/runs/{run}")[1]["tokens"]
    going = server.json("/api/runs", LONG)[1]["id"]
    assert [len(ranks_of(one)) for one in launchers] == [1, 2]

    victim = ranks_of(launchers[1])[1]
    os.kill(victim, signal.SIGKILL)
    problems: list[tuple[int, Any]] = []

    def noticed() -> bool:
        problems.append(server.json(f"/api/runs/{going}"))
        return problems[-1][0] == 503

    server.until(noticed, "Nobody notices.")
    assert problems[-1][1]["code"] == "rank-lost"
    assert f"(process {victim} on " in problems[-1][1]["detail"]
    server.until(lambda: server.get("/readyz")[0] == 200, "It does not start again.")
    assert server.json(f"/api/runs/{run}")[1]["tokens"] == before
    server.done({}, going)


def test_a_port_that_is_in_use_is_said_once(launch: Launch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        launcher = launch(["--nproc-per-node", "2", "--master-port", str(free_port())], ["--port", str(port)])
        said = launcher.communicate(timeout=DEADLINE)[0]
    assert launcher.returncode != 0
    assert said.count(f"Error: Cannot listen on 127.0.0.1 port {port}: Address already in use.") == 1
