"""Kill -9 at random moments, start again, and look whether anything that was acknowledged is lost or wrong.

Owns three ways to be killed: a server that decodes, the journal as it is written, and the conversion of weights. What
was acknowledged: a run that POST answered with 202, and every token that a client has been told of. `python -m
benchmarks.soak` runs it at length; a test runs a few.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.serving import ROOT, Server, link_data

MODEL = "smollm2-135m"
NEW_TOKENS = 12
PATIENCE = 300.0  # seconds: the machine may be busy with other things


@dataclass
class Told:
    """What one client has been told of one run."""

    order: dict[str, Any]
    id: str
    tokens: dict[int, int] = field(default_factory=dict)
    """Token ids by position."""


class Readers:
    """Clients that start runs and follow them until the server is gone."""

    def __init__(self, server: Server, seed: int, count: int = 2) -> None:
        self.told: list[Told] = []
        self._server = server
        self._random = random.Random(seed)
        self._threads = [threading.Thread(target=self._read, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    @property
    def count(self) -> int:
        """How many generated tokens they have been told of."""
        return sum(position >= len(told.order["token_ids"]) for told in self.told for position in tuple(told.tokens))

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a reader did not notice that the server is gone"

    def _read(self, number: int) -> None:
        with contextlib.suppress(OSError, ValueError):  # the server is killed under it
            while True:
                tokens = [self._random.randrange(100, 40_000) for _ in range(3 + 2 * number)]
                order = {"model": MODEL, "token_ids": tokens, "max_new_tokens": NEW_TOKENS, "temperature": 1.0}
                order["seed"] = self._random.randrange(1000)
                status, _, content = self._server.ask("/api/runs", order)
                if status != 202:
                    time.sleep(0.1)
                    continue
                told = Told(order, json.loads(content)["id"])
                self.told.append(told)
                self._follow(told)

    def _follow(self, told: Told) -> None:
        with urllib.request.urlopen(f"{self._server.url}/api/runs/{told.id}/events", timeout=30) as events:
            kind = ""
            for line in events:
                name, _, value = line.decode().strip().partition(": ")
                kind = value if name == "event" else kind
                if name == "data" and kind == "token":
                    token = json.loads(value)
                    told.tokens[token["position"]] = token["id"]


def kill_while_decoding(data_dir: Path, seed: int) -> dict[str, int]:
    """One kill of a server with readers, and a new start. Raises `AssertionError` where something is lost.

    Every run that was acknowledged is there, with every token that was told of, and goes on to its end. Forgotten and
    ordered anew, the run comes to the same tokens and the same numbers.
    """
    chance = random.Random(seed)
    with Server(link_data(data_dir)) as server:
        server.wait_ready()
        readers = Readers(server, seed)
        wanted, deadline = chance.randrange(1, 2 * NEW_TOKENS), time.monotonic() + PATIENCE
        while readers.count < wanted:
            assert time.monotonic() < deadline, server.said
            time.sleep(0.002)
        time.sleep(0.1 * chance.random())  # at any moment of the next step
        server.kill()
        readers.join()
    with Server(data_dir) as again:
        again.wait_ready()
        for told in readers.told:
            run = again.finish(told.id, PATIENCE)
            assert run["status"] == "done", run
            ids = [token["id"] for token in run["tokens"]]
            assert len(ids) > len(told.order["token_ids"]), run
            for position, token in told.tokens.items():
                assert ids[position] == token, f"token {position} of {told.id} is {ids[position]}, and was {token}"
        told = max(readers.told, key=lambda one: len(one.tokens))
        before = again.finish(told.id, PATIENCE)["tokens"]
        tensor = "tensors/blocks/block-output/data?view=decode&step=2&layer=29"
        numbers = again.ask(f"/api/runs/{told.id}/{tensor}")[2]
        assert again.ask(f"/api/runs/{told.id}", method="DELETE")[0] == 204
        assert again.json("/api/runs", told.order)["id"] == told.id
        assert again.finish(told.id, PATIENCE)["tokens"] == before
        assert again.ask(f"/api/runs/{told.id}/{tensor}")[2] == numbers
        said = again.said
    assert "damaged" not in said, said
    return {"runs": len(readers.told), "tokens": sum(len(told.tokens) for told in readers.told)}


JOURNAL = """
import sys
from pathlib import Path
from atlas.runtime.journal import Entry, Journal
journal = Journal(Path(sys.argv[1]))
for run in range(10**9):
    name = f"{run:020}"
    journal.begin(Entry(name, "{}", "c" * 64, "r" * 64, "m", "queued", "", 0.0, 0.0))
    for step in range(5):
        journal.token(name, step, run + step)
        print(run, step, flush=True)
    journal.status(name, "done", "", 1.0, 2.0)
    print(run, "done", flush=True)
"""


def kill_while_writing(data_dir: Path, seed: int) -> dict[str, int]:
    """One kill of a process that does nothing but write its journal."""
    from atlas.runtime.journal import Journal

    path = data_dir / "journal.sqlite3"
    path.unlink(missing_ok=True)
    told: dict[int, list[str]] = {}
    with _killed(JOURNAL, [str(path)], 0.4 + 0.8 * random.Random(seed).random()) as lines:
        for line in lines:
            number, what = line.split()
            told.setdefault(int(number), []).append(what)
    journal = Journal(path)
    assert not journal.trouble, journal.trouble
    for run, said in told.items():
        entry = journal.find(f"{run:020}")
        assert entry is not None, f"run {run} is lost"
        steps = [int(what) for what in said if what != "done"]
        assert entry.generated[: len(steps)] == tuple(run + step for step in steps)
        assert "done" not in said or entry.status == "done"
    journal.close()
    return {"runs": len(told), "tokens": sum(len(said) for said in told.values())}


CONVERSION = """
import sys
from pathlib import Path
from atlas.runtime.checkpoints import open_checkpoint
print("begun", flush=True)
opened = open_checkpoint(Path(sys.argv[1]), Path(sys.argv[2]))
print(opened.sha256, flush=True)
"""


def kill_while_converting(gguf: Path, data_dir: Path, seed: int, longest: float) -> dict[str, int]:
    """One kill of a process that opens a GGUF file for the first time, and another one that opens it.

    `longest` is how long the whole takes, in seconds. What the second finds is whole: every file has the hash that its
    manifest states, and nothing of the first is left.
    """
    from atlas.runtime.checkpoints import open_checkpoint, verify

    with _killed(CONVERSION, [str(gguf), str(data_dir)], longest * random.Random(seed).random()) as lines:
        finished = len(list(lines)) > 1
    left = [path.name for path in data_dir.glob("checkpoints/.partial-*")]
    opened = open_checkpoint(gguf, data_dir)
    assert all(check.ok for check in verify(opened))
    assert not list(data_dir.glob("checkpoints/.partial-*"))
    return {"killed in the middle": int(bool(left)), "too late": int(finished)}


@contextlib.contextmanager
def _killed(program: str, arguments: list[str], after: float) -> Iterator[Iterator[str]]:
    """Start a program, kill it `after` so many seconds from its first line, and give its whole lines."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        first = child.stdout.readline()
        timer = threading.Timer(after, child.send_signal, [signal.SIGKILL])
        timer.start()
        rest = child.stdout.read()
        child.wait()
        timer.cancel()
        whole = (first + rest).rpartition("\n")[0]
        yield iter(whole.split("\n") if whole else [])
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
