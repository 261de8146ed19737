"""Bundles: a recorded run in one zip file without compression, written whole or not at all, and opened with suspicion.

Nothing of a bundle is believed before it has been checked: first the file's size and its table of contents against
the manifest, then every hash, then that each piece lies inside its sheet and has the size that its tensor's shape
says. Nothing is allocated by a number in the file alone. Knows no runs and no models.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

from pydantic import BaseModel, ValidationError

from atlas.errors import BundleError, StorageError, TooLarge
from atlas.inspection.recorded.coverage import megabytes
from atlas.inspection.recorded.layout import FORMAT, KIND, MANIFEST, Head, Manifest, Member

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time that every member has: the same run gives the same bytes."""
LARGEST_TEXT = 64 << 20
"""Bytes of a member that is read as JSON."""
MOST_MEMBERS = 200_000
UNREADABLE = (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, struct.error)
"""What zipfile raises of a file that is no zip file, or a broken, packed or encrypted one."""
_CHUNK = 1 << 20
_END = struct.Struct("<4s4H2IH")  # of a zip file, where it has no comment


Kind = TypeVar("Kind", bound=BaseModel)


class BundleSink:
    """Members into a zip file, in the order in which they come."""

    def __init__(self, file: IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)

    def add(self, name: str, content: bytes) -> None:
        """Write a member."""
        info = zipfile.ZipInfo(name, EPOCH)
        info.create_system, info.external_attr = 3, 0o644 << 16
        self._zip.writestr(info, content)

    def close(self) -> None:
        """Write the table of contents."""
        self._zip.close()

    def let_go(self) -> None:
        """The same where nobody wants the file any more, so that it does not matter whether that succeeds."""
        with suppress(OSError, ValueError):
            self.close()


@contextmanager
def written(out: Path) -> Iterator[BundleSink]:
    """A sink whose file takes its name when all is written; until then, and if anything goes wrong, there is none.

    Raises `StorageError` where it cannot be written.
    """
    part = ""
    try:
        handle, part = tempfile.mkstemp(prefix=f".{out.name}-", dir=out.parent)
        with os.fdopen(handle, "wb") as file:
            sink = BundleSink(file)
            with ExitStack() as broken_off:
                broken_off.callback(sink.let_go)
                yield sink
                broken_off.pop_all()
            sink.close()
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(part).chmod(0o666 & ~mask)
        Path(part).replace(out)
        part = ""
    except OSError as error:
        raise StorageError(
            f"Could not write {out}: {error.strerror or error}.",
            "Free some space there, or choose another place; nothing was left behind.",
        ) from error
    finally:
        if part:
            Path(part).unlink(missing_ok=True)


class Bundle:
    """A bundle whose members have been checked. Close it, or use it in a `with`."""

    def __init__(self, path: Path, limit: int) -> None:
        """Checks all of it. Raises `BundleError`, `TooLarge` for more than `limit` bytes, `StorageError`."""
        self.path = path
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for somebody to write
                raise OSError(0, "it is no file")
            self._file = path.open("rb")
        except OSError as error:
            raise StorageError(f"Could not read {path}: {error.strerror}.", "Name a bundle that is there.") from error
        with ExitStack() as refused:
            refused.callback(self._file.close)
            self.manifest = self._checked(limit)
            refused.pop_all()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def read(self, name: str) -> bytes:
        """A member, checked again: the file may have been changed since it was opened. Raises `BundleError`."""
        member = self.manifest.members.get(name)
        if member is None:
            raise self.refused(f"it has no {name}")
        try:
            content = self._zip.read(name)
        except UNREADABLE as error:
            raise self.refused(f"{name} can no longer be read ({error})") from error
        if len(content) != member.size or hashlib.sha256(content).hexdigest() != member.sha256:
            raise self.refused(f"{name} was changed after it had been opened")
        return content

    def text(self, name: str, most: int = LARGEST_TEXT) -> bytes:
        """A member that is read as JSON, which may be so large and no larger."""
        member = self.manifest.members.get(name)
        if member is not None and member.size > most:
            raise self.refused(f"{name} is larger than {megabytes(most)}")
        return self.read(name)

    def model(self, kind: type[Kind], content: bytes, name: str) -> Kind:
        """JSON as data of a kind. Raises `BundleError` that names the first thing that is wrong."""
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part)[:60] for part in first["loc"][:6]) or "all of it"
            raise self.refused(f"{name} is not what it should be ({where}: {first['msg'][:120]})") from error

    # --- opening

    def _checked(self, limit: int) -> Manifest:
        size = os.fstat(self._file.fileno()).st_size
        if size > limit:
            raise TooLarge(
                f"{self.path.name} has {size:,} bytes; at most {limit:,} are opened.",
                "Ask for a smaller bundle, or raise --max-bundle-bytes.",
                limit=limit,
            )
        self._whole(size)
        try:
            self._zip = zipfile.ZipFile(self._file)
        except UNREADABLE as error:
            raise self.refused(f"its table of contents cannot be read ({error})") from error
        listed = self._zip.infolist()
        if len(listed) > MOST_MEMBERS:
            raise self.refused(f"it lists {len(listed):,} members")
        sizes: dict[str, int] = {}
        for info in listed:
            plain = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
            if info.filename in sizes or not plain or info.flag_bits & 1:
                raise self.refused(f"{info.filename[:100]!r} is there twice, packed or encrypted")
            if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
                raise self.refused(f"{info.filename[:100]!r} is a link or a folder, and no file")
            sizes[info.filename] = info.file_size
        if sum(sizes.values()) > size:
            raise self.refused("its members are said to be larger than the file")
        manifest = self._manifest(sizes)
        for name, member in manifest.members.items():
            self._hashed(name, member)
        return manifest

    def _whole(self, size: int) -> None:
        """Whether the file begins and ends as a bundle does. A copy that was broken off has no end."""
        start = self._file.read(4)
        if start != b"PK\x03\x04":
            raise self.refused("it does not begin as a bundle does")
        self._file.seek(max(0, size - _END.size))
        end = self._file.read(_END.size)
        if len(end) != _END.size or end[:4] != b"PK\x05\x06":
            raise self.refused("its end is missing, so it was cut short, or something was put behind it")

    def _manifest(self, sizes: dict[str, int]) -> Manifest:
        size = sizes.pop(MANIFEST, None)
        if size is None:
            raise self.refused(f"it has no {MANIFEST}, so it is another kind of file")
        if size > LARGEST_TEXT:
            raise self.refused(f"its {MANIFEST} is larger than {megabytes(LARGEST_TEXT)}")
        try:
            content = self._zip.read(MANIFEST)
        except UNREADABLE as error:
            raise self.refused(f"its {MANIFEST} was altered ({error})") from error
        head = self.model(Head, content, MANIFEST)
        if head.kind != KIND:
            raise self.refused("it is another kind of file")
        if head.format > FORMAT:
            raise BundleError(
                f"{self.path.name} is of format {head.format}, and this version knows formats up to {FORMAT}.",
                "Open it with the version of OpenModelAtlas that wrote it, or a newer one.",
                format=head.format,
                known=FORMAT,
            )
        manifest = self.model(Manifest, content, MANIFEST)
        if set(sizes) != set(manifest.members):
            odd = sorted(set(sizes) ^ set(manifest.members))[0]
            raise self.refused(f"{odd[:100]!r} is in it or in its manifest, but not in both")
        for name, member in manifest.members.items():
            if sizes[name] != member.size:
                raise self.refused(f"{name} has {sizes[name]:,} bytes, and its manifest says {member.size:,}")
        return manifest

    def _hashed(self, name: str, member: Member) -> None:
        digest = hashlib.sha256()
        try:
            with self._zip.open(name) as content:
                while chunk := content.read(_CHUNK):
                    digest.update(chunk)
        except UNREADABLE as error:
            raise self.refused(f"{name} was altered or cut short ({error})") from error
        if digest.hexdigest() != member.sha256:
            raise self.refused(f"{name} was altered: its sha256 is not the one that the manifest says")

    def refused(self, why: str) -> BundleError:
        """The error for what is wrong with it."""
        name = re.sub(r"[^\w. -]", "?", self.path.name)[:100]
        return BundleError(f"{name} is refused: {why}.", "Get it again from whoever made it with atlas bundle.")
