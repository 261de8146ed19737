"""The locks: which file of which repository at which revision, with which hash, under which licence.

One TOML per pinned repository in `sources/`. A lock says where a copy is likely to be found (the *carrier*, an
installed distribution), and for a source that no package carries it keeps the lines of the anchors cited in it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from atlas.errors import DeclarationError
from atlas.graph.anchors import Anchor, parse
from atlas.graph.axes import Frozen
from atlas.graph.evidence import SourceRef


class Carrier(Frozen):
    """An installed distribution that holds the files."""

    distribution: str
    version: str


class LockedFile(Frozen):
    """One file: its path in the repository, its hash, and where the carrier keeps it.

    `lines` maps an anchor, as it prints, to its first and last line.
    """

    path: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    carried_as: str = ""
    lines: Mapping[str, tuple[int, int]] = {}

    @field_validator("path", "carried_as")
    @classmethod
    def _inside(cls, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} leads out of the repository")
        return path

    @field_validator("lines")
    @classmethod
    def _readable(cls, lines: Mapping[str, tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
        for anchor, (first, last) in lines.items():
            try:
                parse(anchor)
            except DeclarationError as error:
                raise ValueError(error.detail) from error
            if not 1 <= first <= last:
                raise ValueError(f"{anchor} has the lines {first} to {last}")
        return lines

    @property
    def kept(self) -> Mapping[Anchor, tuple[int, int]]:
        """`lines`, by anchor."""
        return {parse(anchor): lines for anchor, lines in self.lines.items()}


class Lock(Frozen):
    """One pinned repository."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    repository: str
    url: str
    revision: str = Field(pattern=r"^[0-9a-f]{40}$|^v[0-9.]+$")
    license: str
    license_url: str
    carrier: Carrier | None = None
    files: tuple[LockedFile, ...]

    def file(self, path: str) -> LockedFile:
        """Raises `DeclarationError` for a path that is not locked."""
        for locked in self.files:
            if locked.path == path:
                return locked
        raise DeclarationError(f"The lock {self.id!r} has no file {path!r}.", f"Add it to sources/{self.id}.toml.")

    @property
    def short_revision(self) -> str:
        return self.revision[:12]

    def link(self, path: str, lines: tuple[int, int] | None = None) -> str:
        """The address of the file at the pinned revision, down to the lines."""
        fragment = "" if lines is None else f"#L{lines[0]}-L{lines[1]}"
        return f"{self.url}/blob/{self.revision}/{path}{fragment}"


class Locks:
    """All locks of a directory, by id, and those that were added since, which are found and not listed."""

    def __init__(self, locks: Mapping[str, Lock]) -> None:
        self._locks = dict(locks)
        self._added: dict[str, Lock] = {}

    def add(self, lock: Lock) -> None:
        """Know a lock that was made for a file that is installed here and that no lock of the directory pins."""
        self._added[lock.id] = lock

    @classmethod
    def read(cls, directory: Path) -> Locks:
        """Raises `DeclarationError` naming the file that is not a good lock."""
        locks: dict[str, Lock] = {}
        for path in sorted(directory.glob("*.toml")):
            try:
                lock = Lock.model_validate(tomllib.loads(path.read_text("utf-8")))
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in first["loc"])
                raise DeclarationError(f"{path.name} is no good lock: {where}: {first['msg']}.", "Mend it.") from error
            except ValueError as error:  # no TOML, or no text
                raise DeclarationError(f"{path.name} is no good lock: {error}.", "Mend it.") from error
            if lock.id in locks:
                raise DeclarationError(
                    f"{path.name} gives itself the id {lock.id!r}, as another lock does.", "Rename it."
                )
            locks[lock.id] = lock
        return cls(locks)

    def __contains__(self, source: str) -> bool:
        return source in self._locks or source in self._added

    def __iter__(self) -> Iterator[Lock]:
        return iter(self._locks.values())

    def __getitem__(self, source: str) -> Lock:
        lock = self._locks.get(source) or self._added.get(source)
        if lock is None:
            known = ", ".join(self._locks) or "none"
            raise DeclarationError(f"There is no lock {source!r}.", f"Add sources/{source}.toml; there are: {known}.")
        return lock

    def locked(self, ref: SourceRef) -> tuple[Lock, LockedFile]:
        """The lock and the file entry that a declaration refers to."""
        lock = self[ref.source]
        return lock, lock.file(ref.path)
