"""The folder of a published site: built aside, and put in the old one's place in one step when it is whole.

Whatever goes wrong before that leaves the old site as it was. Knows nothing of pages.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from atlas import __version__
from atlas.errors import BadRequest, Conflict, StorageError

MARK = "atlas.json"
"""The file that says that a folder is a published atlas: only such a one, or an empty one, is replaced."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_AT_FDCWD, _EXCHANGE = -100, 2


class Folder:
    """Where the files of a site go while it is built."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self.files = 0

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whose name is a path inside the folder."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.bytes += len(content)
        self.files += 1

    def inside(self, name: str) -> Inside:
        """A folder in it, as a place for the members of a recorded run."""
        return Inside(self, name)


class Inside:
    """A sink of recorded runs."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder = folder
        self.name = name
        self.bytes = 0

    def add(self, name: str, content: bytes) -> None:
        """Write a member."""
        self.folder.write(f"{self.name}/{name}", content)
        self.bytes += len(content)


def require_place(out: Path) -> None:
    """Raises `BadRequest` where something else than a published atlas would be replaced."""
    if not out.exists() or (out.is_dir() and (is_published(out) or not any(out.iterdir()))):
        return
    raise BadRequest(
        f"{out} is there already, and is no published atlas, so it is not replaced.",
        "Name another folder, or empty it.",
    )


def is_published(folder: Path) -> bool:
    """Whether a folder was built by `atlas build`."""
    with contextlib.suppress(OSError, ValueError):
        return "openmodelatlas" in json.loads((folder / MARK).read_text(encoding="utf-8"))
    return False


@contextmanager
def built(out: Path) -> Iterator[Folder]:
    """A folder beside `out`, which takes its place when the block has ended well, and is removed otherwise.

    Raises `BadRequest` as `require_place`, `Conflict` where another build of the same folder is under way, and
    `StorageError`, which says whether there was no room.
    """
    out = out.absolute()
    require_place(out)
    aside = out.with_name(f".{out.name}.building")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{aside}.lock", timeout=0):
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            try:
                folder = Folder(aside)
                yield folder
                folder.write(MARK, json.dumps({"openmodelatlas": __version__}).encode())
                _put_in_place(aside, out)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
                Path(f"{aside}.lock").unlink(missing_ok=True)
    except Timeout as error:
        raise Conflict(f"Another build of {out} is under way.", "Wait for it, or name another folder.") from error
    except OSError as error:
        where = error.filename or out
        if error.errno in _FULL:
            raise StorageError(
                f"There is no room for the site: {error.strerror} ({where}). What was there before is as it was.",
                "Free some space, lower --budget, or choose fewer --models.",
            ) from error
        raise StorageError(
            f"Could not write the site: {error.strerror or error} ({where}). What was there before is as it was.",
            "Make the folder writable, or name another one.",
        ) from error


def _put_in_place(aside: Path, out: Path) -> None:
    """The new folder under the old one's name; the old one, if there is one, under the name aside."""
    if not out.exists():
        aside.rename(out)
        return
    if _exchanged(aside, out):
        return
    old = out.with_name(f".{out.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    out.rename(old)
    try:
        aside.rename(out)
    except OSError:
        old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Two folders exchanged at one instant, where the system can do that."""
    try:
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    return bool(exchange(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0)
