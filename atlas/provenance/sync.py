"""Fetching pinned files with git: at the locked revision, only what is locked, verified before it is kept.

Owns the conversation with git and nothing that is read afterwards: the store reads what is put into its cache. A
file there is always whole and always the pinned one: it is verified, written aside, and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from atlas.errors import AnchorError, EnvironmentUnfit, FetchError, StorageError
from atlas.provenance.locks import Lock, LockedFile, Locks
from atlas.provenance.resolution import Module
from atlas.provenance.store import SourceStore, check_hash

Progress = Callable[[str, float | None], None]

TIMEOUT = 120.0
"""Seconds that one command of git may take."""

_ASIDE = ".fetch-"
_PINNED = "refs/pinned"
# From the least that a server may give to the most: the commit alone, with its files when they are read; the whole
# history, with files when they are read; everything.
_ATTEMPTS = (
    ("--depth=1", "--filter=blob:none", "--no-tags", "origin", "{revision}"),
    ("--filter=blob:none", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*"),
    ("--tags", "origin", "+refs/heads/*:refs/remotes/origin/*"),
)
# What a server says that has the repository, but not this way, or not this revision.
_REFUSED = re.compile(
    "not our ref|couldn't find remote ref|unadvertised object|dumb http|does not support|from promisor remote"
)
# Variables that would lead git away from the repository that it is started in.
_ELSEWHERE = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
    *("GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_ASKPASS", "SSH_ASKPASS"),
)


def sync(lock: Lock, cache_dir: Path, progress: Progress | None = None) -> list[Path]:
    """Bring every file of a lock into the cache; quick, and without the network, where all are there already.

    Returns their paths, in the lock's order. Then each anchor whose lines the lock keeps is resolved in its file.

    Raises `EnvironmentUnfit` (there is no git), `FetchError` (the repository, the revision or a file cannot be had),
    `SourceMismatch` (a file has another hash than the lock says), `StorageError` (the cache cannot be written), and
    `AnchorError` that names every anchor that is not on the lines that the lock keeps.
    """
    tell = progress or (lambda _message, _fraction: None)
    store = SourceStore(Locks({lock.id: lock}), cache_dir)
    targets = [store.cached_path(lock, locked.path) for locked in lock.files]
    needed = [
        (locked, target) for locked, target in zip(lock.files, targets, strict=True) if not _is_right(locked, target)
    ]
    if needed:
        with _storage_errors(cache_dir), _aside(cache_dir) as aside:
            contents = fetch(lock, [locked for locked, _ in needed], aside, tell)
            for locked, _ in needed:
                check_hash(lock, locked, contents[locked.path], f"What {lock.url} has", "git")
            for locked, target in needed:
                _keep(contents[locked.path], aside / "file", target)
    tell(f"Comparing the lines cited in {lock.repository}", None)
    differ = []
    for locked, target in zip(lock.files, targets, strict=True):
        if locked.lines:
            with _storage_errors(cache_dir):
                text = target.read_bytes().decode("utf-8")
            differ += differences(locked, Module(text, f"{lock.id}:{locked.path}"))
    if differ:
        raise AnchorError(
            f"The lock {lock.id} keeps other lines than its file has: {'; '.join(differ)}.",
            f"The file is the pinned one, so mend sources/{lock.id}.toml.",
        )
    return targets


def differences(locked: LockedFile, module: Module) -> list[str]:
    """Where the lines that a lock keeps are not those of its file, a phrase for each such anchor."""
    found = []
    for anchor, (first, last) in locked.kept.items():
        try:
            lines = module.resolve(anchor).lines
        except AnchorError as error:
            found.append(error.detail.removesuffix("."))
        else:
            if lines != (first, last):
                found.append(f"{anchor} is at {lines[0]}-{lines[1]}, not {first}-{last}")
    return found


def fetch(lock: Lock, files: Sequence[LockedFile], directory: Path, tell: Progress) -> dict[str, bytes]:
    """The contents of files at the pinned revision, by path, not verified yet, by way of repositories in `directory`.

    Raises `FetchError`, `EnvironmentUnfit` and `OSError`.
    """
    refusals = []
    for index, attempt in enumerate(_ATTEMPTS):
        repository = directory / f"git{index}"
        tell(
            f"Asking {lock.url} for {lock.short_revision}" if not index else f"Asking {lock.url} for its history", None
        )
        try:
            return _fetched(lock, files, repository, attempt, tell)
        except _Refused as refused:
            refusals.append(str(refused))
    raise _no_revision(lock, refusals[0])


def _no_revision(lock: Lock, reason: str) -> FetchError:
    return FetchError(
        f"{lock.url} does not give the revision {lock.revision}: {reason}.",
        f"Check the revision in sources/{lock.id}.toml.",
    )


def _fetched(
    lock: Lock, files: Sequence[LockedFile], repository: Path, attempt: Sequence[str], tell: Progress
) -> dict[str, bytes]:
    repository.mkdir()
    _git(lock, repository, "init", "--quiet", "--template=", ".")
    _git(lock, repository, "remote", "add", "origin", lock.url)
    _git(lock, repository, "fetch", "--quiet", *(word.format(revision=lock.revision) for word in attempt))
    revision = "FETCH_HEAD" if "{revision}" in attempt else lock.revision
    try:
        _git(lock, repository, "update-ref", _PINNED, f"{revision}^{{commit}}")
    except FetchError as error:  # the whole history is here, so asking otherwise would not help
        raise _no_revision(lock, "it is on no branch and no tag") from error
    contents = {}
    for index, locked in enumerate(files):
        tell(f"Fetching {lock.repository} {locked.path}", index / len(files))
        if not _git(lock, repository, "ls-tree", _PINNED, "--", locked.path):
            raise FetchError(
                f"{lock.url} has no file {locked.path} at the revision {lock.revision}.",
                f"Check the path in sources/{lock.id}.toml.",
            )
        contents[locked.path] = _git(lock, repository, "cat-file", "blob", f"{_PINNED}:{locked.path}")
    return contents


class _Refused(Exception):
    """The server was reached, but does not give this, or not this way."""


def _git(lock: Lock, repository: Path, *arguments: str) -> bytes:
    """What a command of git prints. It asks nobody for anything, and ends with us.

    Raises `_Refused`, `FetchError`, `EnvironmentUnfit`, and `OSError` where the disk is full.
    """
    command = ["git", "-c", "credential.helper=", "-c", "core.askPass=", "-c", "gc.auto=0", *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GCM_INTERACTIVE": "never"}
    environment |= {"GIT_HTTP_LOW_SPEED_LIMIT": "1", "GIT_HTTP_LOW_SPEED_TIME": "30"}
    environment.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=15")
    try:
        process = subprocess.Popen(
            command,
            cwd=repository,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise EnvironmentUnfit(
            "Fetching a source needs git, which was not found.",
            "Install git (on Debian and Ubuntu: apt-get install git).",
        ) from error
    try:
        output, said = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise FetchError(
            f"{lock.url} did not answer within {TIMEOUT:.0f} seconds.", f"Try again: atlas sources sync {lock.id}"
        ) from error
    finally:
        if process.poll() is None:  # with the children by which git talks to servers
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode == 0:
        return output
    message = said.decode("utf-8", "replace").strip()
    if os.strerror(errno.ENOSPC) in message:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if _REFUSED.search(message):
        raise _Refused(_gist(message))
    raise FetchError(
        f"{lock.url} could not be fetched: {_gist(message)}.",
        f"Check the network (git uses its own proxy settings), then run: atlas sources sync {lock.id}",
    )


def _gist(message: str) -> str:
    """The line of git's messages that says why."""
    lines = [line for line in message.splitlines() if line.startswith(("fatal:", "error:"))] or [
        message or "no reason given"
    ]
    return lines[0].partition(": ")[2].rstrip(".") or lines[0]


def _is_right(locked: LockedFile, path: Path) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == locked.sha256
    except OSError:
        return False


@contextlib.contextmanager
def _aside(cache_dir: Path) -> Iterator[Path]:
    """A directory in the cache that is gone at the end; those that a killed process left an hour ago go too."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    for left in cache_dir.glob(f"{_ASIDE}*"):
        if time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=cache_dir))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _keep(data: bytes, aside: Path, target: Path) -> None:
    """Put a file in its place whole: written aside, flushed, renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(target)


@contextlib.contextmanager
def _storage_errors(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise StorageError(
            f"Could not keep the source in {where}: {error.strerror}.",
            f"{'Free some space there' if full else 'Make it writable'}, or choose another place with --data-dir.",
        ) from error
