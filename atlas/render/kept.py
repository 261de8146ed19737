"""What the drawing libraries have answered, kept by what they were asked: the same question has the same answer.

A diagram takes ELK some tens of milliseconds, and the diagrams of all models are some hundreds, many of them the same.
Owns the file, which is only ever a convenience: where it cannot be read or written, the libraries are asked again.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import zlib
from pathlib import Path

log = logging.getLogger(__name__)
MOST = 20_000
"""Answers; when there are more, the oldest tenth goes."""
MEMORY = ":memory:"
_TABLE = "CREATE TABLE IF NOT EXISTS answers (question BLOB PRIMARY KEY, answer BLOB NOT NULL) STRICT"


class KeptAnswers:
    """Texts by the hash of what was asked, in an SQLite file that processes may share, or in memory. Never raises."""

    def __init__(self, path: Path | None = None, most: int = MOST) -> None:
        self.path = path
        self._most = most
        self._lock = threading.Lock()
        self._file: sqlite3.Connection | None = None
        self._writable = True
        self._added = 0
        with self._lock:
            self._file = self._opened(path) or self._anew(path)

    def find(self, question: bytes) -> str | None:
        """The answer to a question, if it is kept and whole."""
        with self._lock:
            try:
                row = self._connection.execute("SELECT answer FROM answers WHERE question = ?", (question,)).fetchone()
                return None if row is None else zlib.decompress(row[0]).decode()
            except (zlib.error, UnicodeDecodeError):
                return None  # it is asked for again, and written again
            except sqlite3.OperationalError:
                return None
            except sqlite3.DatabaseError:
                self._file = self._anew(self.path)
                return None

    def keep(self, question: bytes, answer: str) -> None:
        """Keep an answer, where there is room."""
        with self._lock:
            if not self._writable:
                return
            try:
                self._connection.execute(
                    "INSERT OR REPLACE INTO answers VALUES (?, ?)", (question, zlib.compress(answer.encode()))
                )
                self._let_the_oldest_go()
            except sqlite3.Error as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                    return  # somebody else writes; this one can be asked for again
                self._writable = False
                log.warning("Drawings are no longer kept in %s: %s. Pages are made all the same.", self.path, error)

    def close(self) -> None:
        """Let go of the file. What is asked for afterwards is kept in memory."""
        with self._lock:
            self._connection.close()
            self.path, self._file, self._writable = None, self._opened(None), True

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._file is not None
        return self._file

    def _let_the_oldest_go(self) -> None:
        self._added += 1
        if self._added % max(1, self._most // 100):
            return
        (count,) = self._connection.execute("SELECT count(*) FROM answers").fetchone()
        if count > self._most:
            self._connection.execute(
                "DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers ORDER BY rowid LIMIT ?)",
                (max(1, self._most // 10),),
            )

    def _opened(self, path: Path | None) -> sqlite3.Connection | None:
        """The file, ready for use, or None where it is no such file."""
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            file = sqlite3.connect(path or MEMORY, timeout=1.0, check_same_thread=False, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            log.warning("Drawings are not kept in %s: %s. Pages are made all the same.", path, error)
            return self._opened(None)
        try:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = NORMAL")
            file.execute(_TABLE)
        except sqlite3.OperationalError as error:  # read-only, locked, full: what is there can perhaps be read
            self._writable = False
            log.warning("Drawings are not kept in %s: %s. Pages are made all the same.", path, error)
        except sqlite3.DatabaseError:
            file.close()
            return None
        return file

    def _anew(self, path: Path | None) -> sqlite3.Connection:
        """An empty file in place of a damaged one; in memory, where there can be none."""
        log.warning("%s is damaged and is made anew: it holds nothing that cannot be drawn again.", path)
        if self._file is not None:
            self._file.close()
        if path is not None:
            with contextlib.suppress(OSError):
                for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                    path.with_name(name).unlink(missing_ok=True)
        self.path = path
        opened = self._opened(path)
        if opened is None:
            self.path = None
            opened = self._opened(None)
        assert opened is not None
        return opened
