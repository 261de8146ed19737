"""A server of its own for a measurement or a test: a real process on loopback, with a data directory that ends with it.

Owns starting, waiting, stopping and killing `atlas serve`. The weights are the user's own, linked in; runs are not.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from atlas.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "from atlas.cli import main; main()"
PARTS = ("cache", "checkpoints", "checks", "hashes", "sources", "weights")
"""What is linked from the user's data directory; runs are not. `cache` holds what was drawn."""


def link_data(where: Path, source: Path | None = None) -> Path:
    """Fill `where` with links to the weights and sources of `source`, by default the user's own; gives `where`."""
    source = source or Settings().data_dir
    where.mkdir(parents=True, exist_ok=True)
    for name in PARTS:
        if (source / name).exists() and not (where / name).exists():
            (where / name).symlink_to((source / name).resolve())
    return where


def end_in_order() -> None:
    """Have SIGTERM end this process by way of its context managers, so that no server of it is left behind."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def draw_ahead() -> None:
    """Have the user's own data directory hold what any server has drawn after its first minute."""
    subprocess.run([sys.executable, "-c", PROGRAM, "warm"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Server:
    """`atlas serve` as a child process. A context manager: at the end the process is gone, whatever happened."""

    def __init__(self, data_dir: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data_dir / f"server-{self.port}.log"
        command = [sys.executable, "-c", PROGRAM, "serve"]
        command += ["--port", str(self.port), "--data-dir", str(data_dir), "--no-recheck", *options]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ATLAS_")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=inherited | (environment or {}), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def said(self) -> str:
        """All that the server has printed and logged."""
        return self.log.read_text(errors="replace")

    def ask(
        self, path: str, body: object = None, *, method: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """One request: status, headers (names in lower case) and body. Raises OSError where nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data, {"content-type": "application/json"}, method=method)
        for name, value in (headers or {}).items():
            asked.add_header(name, value)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {name.lower(): value for name, value in error.headers.items()}, error.read()

    def json(self, path: str, body: object = None) -> Any:
        """The JSON of an answer that must be good."""
        status, _, content = self.ask(path, body)
        assert status in (200, 202), (path, status, content[:300])
        return json.loads(content)

    def wait_ready(self, seconds: float = 120, headers: dict[str, str] | None = None) -> float:
        """Wait until the default model is ready; the seconds that it took."""
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            assert self.process.poll() is None, self.said
            with contextlib.suppress(OSError):
                if self.ask("/readyz", headers=headers)[0] == 200:
                    return time.monotonic() - started
            time.sleep(0.05)
        raise TimeoutError(f"not ready after {seconds} s:\n{self.said}")

    def finish(self, run: str, seconds: float = 120) -> Any:
        """The run, once it is no longer waiting or under way."""
        deadline = time.monotonic() + seconds
        while (found := self.json(f"/api/runs/{run}"))["status"] in ("queued", "running"):
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found

    def stop(self, seconds: float = 30) -> float:
        """Ask it to stop (SIGTERM) and wait; the seconds that it took."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(seconds)
        return time.monotonic() - started

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self.process.kill()
        self.process.wait()

    @property
    def resident(self) -> int:
        """Bytes of memory that the process holds (Linux)."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of the sorted values do not exceed; nan of none."""
    if not sorted_values:
        return float("nan")
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


@contextlib.contextmanager
def serving(data_dir: Path, *options: str) -> Iterator[Server]:
    """A server on the user's weights that is ready."""
    with Server(link_data(data_dir), *options) as server:
        server.wait_ready()
        yield server
