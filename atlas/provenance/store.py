"""The source store: verified text of pinned files, from the installed distribution or the cache.

Every read is verified against the lock's sha256 before use (and remembered by the file's identity on disk).
Fetching, which needs git, is `atlas.provenance.sync`.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from atlas.errors import SourceMismatch, SourceUnavailable
from atlas.graph.evidence import SourceRef
from atlas.provenance.locks import Lock, LockedFile, Locks
from atlas.provenance.resolution import Module

Stamp = tuple[int, ...]


@dataclass(frozen=True)
class SourceFile:
    """A verified file. `module` is its syntax, ready for anchors."""

    lock: Lock
    locked: LockedFile
    path: Path
    origin: Literal["installed", "cache"]
    module: Module


class SourceStore:
    """Reads pinned files. Thread-safe; a file that changes on disk is verified again."""

    def __init__(self, locks: Locks, cache_dir: Path) -> None:
        self.locks = locks
        self.cache_dir = cache_dir
        self._read: dict[tuple[Path, str], tuple[Stamp, SourceFile]] = {}
        self._mutex = threading.Lock()

    def cached_path(self, lock: Lock, path: str) -> Path:
        """Where a fetched copy is kept."""
        return self.cache_dir / lock.id / lock.revision / path

    def installed_path(self, lock: Lock, locked: LockedFile) -> Path | None:
        """Where the carrier keeps the file, if the carrier is installed (it is not imported)."""
        if lock.carrier is None or not locked.carried_as:
            return None
        try:
            distribution = metadata.distribution(lock.carrier.distribution)
        except metadata.PackageNotFoundError:
            return None
        return Path(str(distribution.locate_file(locked.carried_as)))

    def read(self, ref: SourceRef) -> SourceFile:
        """The verified file.

        Raises `SourceMismatch` (a copy is there, but it is another file: both hashes are named) and
        `SourceUnavailable` (there is no copy that can be read).
        """
        lock, locked = self.locks.locked(ref)
        problem: SourceMismatch | SourceUnavailable | None = None
        places: list[tuple[Path | None, Literal["installed", "cache"]]] = [
            (self.installed_path(lock, locked), "installed"),
            (self.cached_path(lock, locked.path), "cache"),
        ]
        for path, origin in places:
            try:
                if path is not None and path.is_file():
                    return self._verified(lock, locked, path, origin)
            except (SourceMismatch, SourceUnavailable) as error:
                problem = problem or error
        if problem is not None:
            raise problem
        hint = f"Run: atlas sources sync {lock.id}"
        if lock.carrier is not None:
            hint = f"Install {lock.carrier.distribution}=={lock.carrier.version}, or run: atlas sources sync {lock.id}"
        raise SourceUnavailable(f"{lock.repository} {locked.path} is not on this machine.", hint)

    def available(self, ref: SourceRef) -> bool:
        """Whether a verified copy is here."""
        try:
            self.read(ref)
        except (SourceUnavailable, SourceMismatch):
            return False
        return True

    def _verified(
        self, lock: Lock, locked: LockedFile, path: Path, origin: Literal["installed", "cache"]
    ) -> SourceFile:
        key = (path, locked.sha256)
        try:
            stamp = _stamp(path)
            with self._mutex:
                known = self._read.get(key)
            if known is not None and known[0] == stamp:
                return known[1]
            data = path.read_bytes()
        except OSError as error:
            raise SourceUnavailable(f"{path} cannot be read: {error.strerror}.", "Make it readable.") from error
        check_hash(lock, locked, data, str(path), origin)
        file = SourceFile(lock, locked, path, origin, Module(data.decode("utf-8"), f"{lock.id}:{locked.path}"))
        with self._mutex:
            self._read[key] = (stamp, file)
        return file


def _stamp(path: Path) -> Stamp:
    """What changes when a file does, even where its size and its time of modification are put back."""
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def check_hash(lock: Lock, locked: LockedFile, data: bytes, where: str, origin: str) -> None:
    """Raises `SourceMismatch` that names the hash found and the hash pinned."""
    found = hashlib.sha256(data).hexdigest()
    if found == locked.sha256:
        return
    other = ""
    if origin == "installed" and lock.carrier is not None:
        installed = metadata.version(lock.carrier.distribution)
        if installed != lock.carrier.version:
            other = f" {lock.carrier.distribution} {installed} is installed, and {lock.carrier.version} is pinned."
        hint = (
            f"Install {lock.carrier.distribution}=={lock.carrier.version} again, or run: atlas sources sync {lock.id}"
        )
    elif origin == "git":
        hint = f"Check the revision and the hash in sources/{lock.id}.toml."
    else:
        hint = f"Run: atlas sources sync {lock.id}"
    raise SourceMismatch(
        f"{where} is not the pinned {lock.repository} {locked.path}: its sha256 is {found}, "
        f"the lock says {locked.sha256}.{other}",
        hint,
        found=found,
        pinned=locked.sha256,
    )
