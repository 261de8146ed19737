"""Whether what is cited is what is pinned: each file against its hash, its lines against the lock, code against code.

Owns the comparisons that need no model. What a model cites, and where, is `atlas.inspection`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from atlas.errors import AnchorError, SourceMismatch, SourceUnavailable
from atlas.graph.anchors import Anchor
from atlas.graph.evidence import SourceRef
from atlas.provenance.locks import Lock, LockedFile
from atlas.provenance.resolution import Module
from atlas.provenance.store import SourceFile, SourceStore
from atlas.provenance.sync import differences


@dataclass(frozen=True)
class FileVerdict:
    """One locked file, looked at.

    *verified*: a copy with the pinned hash is here, and the `anchors` whose lines the lock keeps are where it says.
    *pending*: no package carries the file, and it has not been fetched. *failed*: `detail` says what is wrong and
    `hint` what to do.
    """

    lock: Lock
    locked: LockedFile
    status: Literal["verified", "pending", "failed"]
    origin: Literal["installed", "cache", ""] = ""
    anchors: int = 0
    detail: str = ""
    hint: str = ""


def verify(store: SourceStore, sources: Iterable[str] | None = None) -> list[FileVerdict]:
    """Every file of the locks of these ids (by default of all), in the locks' order."""
    chosen = list(store.locks) if sources is None else [store.locks[source] for source in sources]
    return [verify_file(store, lock, locked) for lock in chosen for locked in lock.files]


def verify_file(store: SourceStore, lock: Lock, locked: LockedFile) -> FileVerdict:
    """One file against its lock."""
    try:
        file = store.read(SourceRef(source=lock.id, path=locked.path))
    except SourceUnavailable as error:
        status: Literal["pending", "failed"] = "pending" if lock.carrier is None else "failed"
        return FileVerdict(lock, locked, status, detail=error.detail, hint=error.hint)
    except (SourceMismatch, AnchorError) as error:
        return FileVerdict(lock, locked, "failed", detail=error.detail, hint=error.hint)
    wrong = differences(locked, file.module)
    if wrong:
        hint = f"The file is the pinned one, so mend sources/{lock.id}.toml."
        return FileVerdict(lock, locked, "failed", origin=file.origin, detail=f"{'; '.join(wrong)}.", hint=hint)
    return FileVerdict(lock, locked, "verified", origin=file.origin, anchors=len(locked.lines))


def definitions(anchors: Iterable[Anchor]) -> tuple[str, ...]:
    """The functions, methods and classes in which anchors lie, by qualified name, each once."""
    found: dict[str, None] = {}
    for anchor in anchors:
        for part in (anchor, anchor.until):
            if part is not None and part.place:
                found[part.place] = None
    return tuple(found)


def same_syntax(earlier: SourceFile, running: SourceFile, cited: Iterable[str]) -> dict[str, bool]:
    """For each definition, by qualified name, whether both files have it with the same syntax tree.

    Layout and comments are no part of a syntax tree; annotations, defaults and docstrings are.
    """
    return {name: _same(earlier.module, running.module, name) for name in cited}


def _same(one: Module, other: Module, name: str) -> bool:
    try:
        return one.same_syntax(other, name)
    except AnchorError:  # one of them has no such definition
        return False
