"""The journal: every run's request, tokens, timings and status, in SQLite, so that a link outlives the process.

What determines a run and what came of it is kept; values never are, since they can be made again from the tokens.
The journal must not stop the service: where it cannot be read or written, that is logged and said (`trouble`), and
runs live only as long as the process.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import threading
import time
from dataclasses import dataclass, fields
from pathlib import Path

from atlas.errors import StorageError

log = logging.getLogger(__name__)
RUNS = "runs.sqlite3"
"""The file, in a data directory."""
VERSION = 1
SCHEMA = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    request TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    reference TEXT NOT NULL,
    machine TEXT NOT NULL,
    status TEXT NOT NULL,
    error TEXT NOT NULL,
    prefill_seconds REAL NOT NULL,
    decode_seconds REAL NOT NULL,
    created REAL NOT NULL
) STRICT;
CREATE TABLE tokens (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    token INTEGER NOT NULL,
    PRIMARY KEY (run, step)
) STRICT, WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Entry:
    """A run as the journal has it. `generated` are its tokens after the prompt, `machine` what computed them."""

    id: str
    request: str
    checkpoint: str
    reference: str
    machine: str
    status: str
    error: str
    prefill_seconds: float
    decode_seconds: float
    generated: tuple[int, ...] = ()


class Journal:
    """One SQLite file in WAL mode. Thread-safe. Never raises: see `trouble`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble = ""
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = self._open()
        except (OSError, sqlite3.Error, StorageError) as error:
            self._give_up(error)

    def begin(self, entry: Entry) -> None:
        """Write a new run down, or start a failed one again; before anybody is told of it."""
        values = (
            entry.id,
            entry.request,
            entry.checkpoint,
            entry.reference,
            entry.machine,
            entry.status,
            entry.error,
            entry.prefill_seconds,
            entry.decode_seconds,
            time.time(),
        )
        self._write(
            ("DELETE FROM runs WHERE id = ?", (entry.id,)),
            (f"INSERT INTO runs VALUES ({', '.join('?' * len(values))})", values),
        )

    def token(self, run: str, step: int, token: int) -> None:
        """Write a generated token down; `step` counts from 0."""
        self._write(("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?)", (run, step, token)))

    def status(self, run: str, status: str, error: str, prefill_seconds: float, decode_seconds: float) -> None:
        """Write down what a run has come to."""
        change = "UPDATE runs SET status = ?, error = ?, prefill_seconds = ?, decode_seconds = ? WHERE id = ?"
        self._write((change, (status, error, prefill_seconds, decode_seconds, run)))

    def keep(self, entry: Entry) -> None:
        """Write down, at once, a finished run that was computed elsewhere; one that is known unfinished becomes it."""
        columns = [field.name for field in fields(Entry) if field.name != "generated"]
        values = (*(getattr(entry, name) for name in columns), time.time())
        told = ", ".join(f"{name} = excluded.{name}" for name in columns[4:])
        self._write(
            (
                f"INSERT INTO runs ({', '.join(columns)}, created) VALUES ({', '.join('?' * len(values))}) "
                f"ON CONFLICT (id) DO UPDATE SET {told} WHERE status <> 'done'",
                values,
            ),
            *(
                ("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?)", (entry.id, step, token))
                for step, token in enumerate(entry.generated)
            ),
        )

    def forget(self, run: str) -> None:
        """Remove a run."""
        self._write(("DELETE FROM runs WHERE id = ?", (run,)))

    def find(self, run: str) -> Entry | None:
        """A run by its id."""
        found = self._read("WHERE id = ?", (run,))
        return found[0] if found else None

    def unfinished(self) -> list[Entry]:
        """Runs that were waiting or under way when the process ended, oldest first."""
        return self._read("WHERE status IN ('queued', 'running') ORDER BY created", ())

    def close(self) -> None:
        """Write everything to the main file and close it."""
        with self._lock:
            if self._connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._connection.close()
                self._connection = None

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise  # a lock, permissions, a full disk: the file itself may be whole
            aside = self.path.with_name(f"{self.path.name}.damaged-{int(time.time())}")
            log.error("The journal %s is damaged (%s); it is kept as %s and a new one begun.", self.path, error, aside)
            self.path.rename(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=5.0, isolation_level=None, check_same_thread=False)
        try:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version > VERSION:
                raise StorageError(
                    f"The journal {self.path} was written by a newer version ({version}; this one knows {VERSION}).",
                    "Use that version, or another --data-dir.",
                )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            if version < VERSION:
                connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
            if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("its pages contradict each other")
        except BaseException:
            connection.close()
            raise
        return connection

    def _write(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        """All statements in one transaction; nothing where the journal is out of use."""
        with self._lock:
            if self._connection is None:
                return
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                for statement, values in statements:
                    self._connection.execute(statement, values)
                self._connection.execute("COMMIT")
                self.trouble = ""
            except sqlite3.Error as error:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                self._say(error)

    def _read(self, where: str, values: tuple[str, ...]) -> list[Entry]:
        columns = [field.name for field in fields(Entry) if field.name != "generated"]
        with self._lock:
            if self._connection is None:
                return []
            try:
                rows = self._connection.execute(f"SELECT {', '.join(columns)} FROM runs {where}", values).fetchall()
                return [Entry(**dict(zip(columns, row, strict=True)), generated=self._tokens(row[0])) for row in rows]
            except sqlite3.Error as error:
                self._say(error)
                return []

    def _tokens(self, run: str) -> tuple[int, ...]:
        """The generated tokens, as far as none is missing."""
        assert self._connection is not None
        rows = self._connection.execute("SELECT step, token FROM tokens WHERE run = ? ORDER BY step", (run,)).fetchall()
        return tuple(token for at, (step, token) in enumerate(rows) if at == step)

    def _say(self, error: Exception) -> None:
        if not self.trouble:
            log.error("The journal %s cannot be used: %s", self.path, error)
        self.trouble = f"Runs are not written down at the moment ({error}), so links to them end with this process."

    def _give_up(self, error: Exception) -> None:
        self._say(error)
        self._connection = None


class CommandJournal(Journal):
    """The journal of one command, beside a server that may be using the file at `path` at the same time.

    Finished runs of the file are found. A run of the command's own is in memory until it is done, and then written to
    the file whole: so no server takes up what the command is at, and the command takes up, changes and removes nothing
    of others.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(Path(":memory:"))
        self._shared = Journal(path)

    def find(self, run: str) -> Entry | None:
        own = super().find(run)
        if own is not None:
            return own
        theirs = self._shared.find(run)
        return theirs if theirs is not None and theirs.status == "done" else None

    def status(self, run: str, status: str, error: str, prefill_seconds: float, decode_seconds: float) -> None:
        super().status(run, status, error, prefill_seconds, decode_seconds)
        entry = super().find(run)
        if entry is not None and status == "done":
            self._shared.keep(entry)
            self.trouble = self._shared.trouble

    def close(self) -> None:
        super().close()
        self._shared.close()


def canonical(value: object) -> str:
    """JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
