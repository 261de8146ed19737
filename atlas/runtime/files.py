"""Files that must be whole: hashing with a memory, writing aside, room on the disk, one builder at a time.

Knows nothing of what the files hold. A file or directory made here is either the finished one or not there:
it is written under another name in the same directory, flushed to the disk, and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from atlas.errors import StorageError
from atlas.runtime.meter import Meter, Progress

PARTIAL = ".partial-"
_CHUNK = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextlib.contextmanager
def storage_errors(doing: str, where: Path) -> Iterator[None]:
    """Turns an OSError met while `doing` something in `where` into a StorageError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            hint = "Free some space there, or choose another place with --data-dir."
        else:
            hint = "Make it writable, or choose another place with --data-dir."
        reason = error.strerror or type(error).__name__
        raise StorageError(f"Could not {doing}: {reason} ({where}).", hint) from error


def need_space(where: Path, needed: int, what: str) -> None:
    """Raises StorageError if the file system of `where` has less than `needed` bytes free."""
    place = where
    while not place.exists() and place != place.parent:
        place = place.parent
    with storage_errors("look at the free space", place):
        free = shutil.disk_usage(place).free
    if free < needed:
        raise StorageError(
            f"{what} needs {needed / 1e6:,.0f} MB, and {place} has {free / 1e6:,.0f} MB free.",
            "Free some space there, or choose another place with --data-dir.",
            needed=needed,
            free=free,
        )


def sha256_of(path: Path, meter: Meter | None = None) -> str:
    """The file's sha256, in hexadecimal. Raises OSError if the file cannot be read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            if meter:
                meter.advance(len(chunk))
    return digest.hexdigest()


def remembered_sha256(path: Path, data_dir: Path, progress: Progress | None = None) -> str:
    """The file's sha256; quick if the file has not been touched since it was last hashed, or another process does it.

    "Not touched" is the same size and the same times of modification and of change. Where the memory cannot
    be kept (a read-only data directory), the file is hashed each time. Raises OSError if it cannot be read.
    """
    known = _recall(path, data_dir)
    if known:
        return known
    size = path.stat().st_size
    with _only_hasher(path, data_dir, progress):
        known = _recall(path, data_dir)
        if known:
            return known
        before = _stamp(path)
        with Meter(f"Checking {path.name}", size, progress) as meter:
            found = sha256_of(path, meter)
        if _stamp(path) == before:
            _remember(path, data_dir, found, before)
    return found


def remember_sha256(path: Path, data_dir: Path, sha256: str) -> None:
    """Notes the hash of a file that has just been written and hashed on the way."""
    _remember(path, data_dir, sha256, _stamp(path))


@contextlib.contextmanager
def file_aside(final: Path) -> Iterator[Path]:
    """Gives a path to write to; at the end what is there is flushed and takes the place of `final`."""
    with directory_for_parts(final.parent) as parts:
        part = parts / final.name
        yield part
        flush(part)
        part.replace(final)
        _flush_directory(final.parent)


@contextlib.contextmanager
def directory_aside(final: Path) -> Iterator[Path]:
    """Gives an empty directory to fill; at the end it takes the place of `final`, whatever was there before.

    The caller flushes the files that it writes (see `flush`).
    """
    with directory_for_parts(final.parent) as parts:
        new, old = parts / "new", parts / "old"
        new.mkdir()
        yield new
        _flush_directory(new)
        if final.exists():
            final.rename(old)
        new.rename(final)
        _flush_directory(final.parent)


@contextlib.contextmanager
def directory_for_parts(where: Path) -> Iterator[Path]:
    """A directory in `where` that is gone at the end, with all that is still in it."""
    parts = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=where))
    try:
        yield parts
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def flush(path: Path) -> None:
    """Waits until the file's bytes are on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def only_builder(where: Path, progress: Progress | None = None) -> Iterator[None]:
    """Makes `where` and holds its lock, so that one process at a time builds there; sweeps up what a killed
    one left.

    The lock goes with the process that holds it, however that ends.
    """
    with storage_errors("make a directory", where):
        where.mkdir(parents=True, exist_ok=True)
    lock = FileLock(where / ".lock")
    with storage_errors("lock a directory", where):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if progress:
                progress("Waiting for another process that prepares the same files", None)
            lock.acquire()
    try:
        for stale in where.glob(f"{PARTIAL}*"):
            shutil.rmtree(stale, ignore_errors=True)
        yield
    finally:
        lock.release()


def _stamp(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _note(path: Path, data_dir: Path) -> Path:
    return data_dir / "hashes" / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]}.json"


@contextlib.contextmanager
def _only_hasher(path: Path, data_dir: Path, progress: Progress | None) -> Iterator[None]:
    """One process at a time where the hash can be remembered: the ranks of a split model all open the same files."""
    note = _note(path, data_dir)
    lock = FileLock(note.with_suffix(".lock"))
    with contextlib.suppress(OSError, NotImplementedError):
        note.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if progress:
                progress(f"Waiting for another process that checks {path.name}", None)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _recall(path: Path, data_dir: Path) -> str | None:
    try:
        stamp, sha256 = json.loads(_note(path, data_dir).read_bytes())
    except (OSError, ValueError, TypeError):
        return None
    return str(sha256) if stamp == _stamp(path) else None


def _remember(path: Path, data_dir: Path, sha256: str, stamp: list[int]) -> None:
    note = _note(path, data_dir)
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        with file_aside(note) as part:
            part.write_text(json.dumps([stamp, sha256]))


def _flush_directory(directory: Path) -> None:
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
