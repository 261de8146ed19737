"""Fetching from a real git repository: as little as needed, verified, whole; and one clear message where it fails."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from atlas.errors import AnchorError, AtlasError, EnvironmentUnfit, FetchError, SourceMismatch, StorageError
from atlas.graph.evidence import SourceRef
from atlas.provenance import sync as syncing
from atlas.provenance.locks import Lock, Locks
from atlas.provenance.store import SourceStore
from atlas.provenance.sync import fetch, sync

PINNED = b"def scaled(x, width):\r\n    # Gr\xc3\xb6\xc3\x9fe\n    product = x * width\n    return product / 2\n"
LINES = {"scaled.assigns(product)": (3, 3), "scaled.returns.left": (4, 4), "scaled": (1, 4)}
UNKNOWN = "1" * 40


@dataclass
class Origin:
    """A git repository with a pinned file, other files, and a later commit."""

    path: Path
    revision: str = ""

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=self.path, check=True, capture_output=True, text=True, timeout=30
        )
        return done.stdout.strip()

    def lock(self, **changes: Any) -> Lock:
        """A lock of the pinned file; `changes` are fields of the lock or of its file."""
        file = {"path": "code/scaled.py", "sha256": hashlib.sha256(PINNED).hexdigest(), "lines": LINES}
        fields: dict[str, Any] = {
            "id": "made-up",
            "repository": "somebody/made-up",
            "url": f"file://{self.path}",
            "revision": self.revision,
            "license": "CC0-1.0",
            "license_url": "https://example.org/license",
        }
        for name, value in changes.items():
            (file if name in file else fields)[name] = value
        return Lock.model_validate({"files": [file], **fields})


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    made = Origin(tmp_path_factory.mktemp("origin"))
    made.git("init", "--quiet", "--initial-branch=main")
    made.git("config", "uploadpack.allowFilter", "true")
    made.git("config", "core.autocrlf", "false")
    (made.path / "code").mkdir()
    (made.path / "code" / "scaled.py").write_bytes(PINNED)
    (made.path / "code" / "other.py").write_text("nobody = 'asked for this'\n")
    (made.path / "weights.bin").write_bytes(os.urandom(200_000))
    made.git("add", ".")
    made.git("commit", "--quiet", "--message=One")
    made.git("tag", "--annotate", "--message=One", "v1.0")
    made.revision = made.git("rev-parse", "HEAD")
    (made.path / "code" / "scaled.py").write_text("gone = True\n")
    made.git("commit", "--quiet", "--all", "--message=Two")
    return made


@pytest.fixture
def old_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """git as it speaks to servers that give no object by its hash unless a branch or a tag points to it."""
    for name, value in (("COUNT", "1"), ("KEY_0", "protocol.version"), ("VALUE_0", "0")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)


def blobs(repository: Path) -> set[str]:
    """The hashes of the files that a repository holds."""
    done = subprocess.run(
        ["git", "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"],
        cwd=repository,
        env=os.environ | {"GIT_NO_LAZY_FETCH": "1"},
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("blob ")}


def nothing_left(cache: Path) -> bool:
    return not cache.exists() or not [path for path in cache.rglob("*") if path.is_file() or path.name.startswith(".")]


def test_a_file_is_fetched_at_its_revision_byte_for_byte(origin: Origin, tmp_path: Path) -> None:
    lock, cache = origin.lock(), tmp_path / "sources"
    paths = sync(lock, cache)
    assert paths == [cache / "made-up" / origin.revision / "code" / "scaled.py"]
    assert paths[0].read_bytes() == PINNED
    assert list(cache.rglob(".*")) == []
    file = SourceStore(Locks({lock.id: lock}), cache).read(SourceRef(source="made-up", path="code/scaled.py"))
    assert file.origin == "cache"


def test_only_what_is_locked_is_fetched(origin: Origin, tmp_path: Path) -> None:
    lock = origin.lock()
    contents = fetch(lock, lock.files, tmp_path, lambda _message, _fraction: None)
    assert contents == {"code/scaled.py": PINNED}
    assert blobs(tmp_path / "git0") == {origin.git("rev-parse", f"{origin.revision}:code/scaled.py")}
    assert not (tmp_path / "git1").exists()
    commits = subprocess.run(
        ["git", "rev-list", "--count", "refs/pinned"], cwd=tmp_path / "git0", capture_output=True, text=True, timeout=30
    )
    assert commits.stdout.strip() == "1"


def test_a_tag_is_a_revision_too(origin: Origin, tmp_path: Path) -> None:
    assert sync(origin.lock(revision="v1.0"), tmp_path)[0].read_bytes() == PINNED


@pytest.mark.usefixtures("old_protocol")
@pytest.mark.parametrize("filtered", ["true", "false"])
def test_a_server_that_gives_no_commit_by_its_hash_gives_its_branches(
    origin: Origin, tmp_path: Path, filtered: str
) -> None:
    origin.git("config", "uploadpack.allowFilter", filtered)
    try:
        told: list[str] = []
        # The pinned commit has a tag; without it only the history leads there.
        origin.git("tag", "--delete", "v1.0")
        paths = sync(origin.lock(), tmp_path, lambda message, _fraction: told.append(message))
        assert paths[0].read_bytes() == PINNED
        assert f"Asking file://{origin.path} for its history" in told
    finally:
        origin.git("config", "uploadpack.allowFilter", "true")
        origin.git("tag", "--annotate", "--message=One", "v1.0", origin.revision)


def test_what_is_there_is_not_fetched_again(origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = sync(origin.lock(), tmp_path)
    monkeypatch.setenv("PATH", "")  # without git, so without the network
    assert sync(origin.lock(), tmp_path) == paths


def test_a_damaged_copy_is_fetched_again(origin: Origin, tmp_path: Path) -> None:
    [path] = sync(origin.lock(), tmp_path)
    path.write_bytes(PINNED[:-1])
    assert sync(origin.lock(), tmp_path)[0].read_bytes() == PINNED


def test_progress_is_told(origin: Origin, tmp_path: Path) -> None:
    told: list[tuple[str, float | None]] = []
    sync(origin.lock(), tmp_path, lambda message, fraction: told.append((message, fraction)))
    assert [message for message, _ in told] == [
        f"Asking file://{origin.path} for {origin.revision[:12]}",
        "Fetching somebody/made-up code/scaled.py",
        "Comparing the lines cited in somebody/made-up",
    ]


def test_another_file_is_refused_and_both_hashes_are_named(origin: Origin, tmp_path: Path) -> None:
    wrong = "0123456789abcdef" * 4
    with pytest.raises(SourceMismatch) as caught:
        sync(origin.lock(sha256=wrong), tmp_path)
    assert wrong in caught.value.detail
    assert hashlib.sha256(PINNED).hexdigest() in caught.value.detail
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"path": "code/nowhere.py"}, "has no file code/nowhere.py at the revision"),
        ({"revision": UNKNOWN}, f"does not give the revision {UNKNOWN}"),
        ({"revision": "v9.9"}, "does not give the revision v9.9"),
        ({"url": "http://127.0.0.1:1/somebody/made-up"}, "could not be fetched: unable to access"),
        ({"url": "file:///nowhere/at/all"}, "could not be fetched: '/nowhere/at/all' does not appear"),
    ],
    ids=["file", "commit", "tag", "network", "repository"],
)
def test_what_cannot_be_had_is_named_and_nothing_is_left(
    origin: Origin, tmp_path: Path, changes: dict[str, str], says: str
) -> None:
    with pytest.raises(FetchError) as caught:
        sync(origin.lock(**changes), tmp_path)
    assert says in caught.value.detail
    assert "made-up" in caught.value.hint
    assert "\n" not in str(caught.value)
    assert nothing_left(tmp_path)


def test_every_line_that_moved_is_named(origin: Origin, tmp_path: Path) -> None:
    moved = {**LINES, "scaled.returns.left": (5, 5), "scaled": (1, 3), "scaled.assigns(quotient)": (2, 2)}
    with pytest.raises(AnchorError) as caught:
        sync(origin.lock(lines=moved), tmp_path)
    assert "scaled.returns.left is at 4-4, not 5-5" in caught.value.detail
    assert "scaled is at 1-4, not 1-3" in caught.value.detail
    assert "0 matches of assigns(quotient)" in caught.value.detail
    assert "scaled.assigns(product)" not in caught.value.detail


@pytest.mark.parametrize(
    ("environment", "error"), [({"PATH": ""}, EnvironmentUnfit), ({"GIT_DIR": "/nowhere", "GIT_WORK_TREE": "/"}, None)]
)
def test_the_environment_of_git(
    origin: Origin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    error: type[AtlasError] | None,
) -> None:
    """Without git there is a message; started from inside git (a hook) it works all the same."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if error is None:
        assert sync(origin.lock(), tmp_path)
        return
    with pytest.raises(error, match="git"):
        sync(origin.lock(), tmp_path)
    assert nothing_left(tmp_path)


def test_a_server_that_does_not_answer_is_given_up(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_server: str
) -> None:
    monkeypatch.setattr(syncing, "TIMEOUT", 0.5)
    began = time.monotonic()
    with pytest.raises(FetchError, match="did not answer within"):
        sync(origin.lock(url=f"{silent_server}/somebody/made-up"), tmp_path)
    assert time.monotonic() - began < 10
    assert nothing_left(tmp_path)


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_cache_that_cannot_be_written_is_a_storage_error(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "sources").write_text("a file, where a directory should be")
    with pytest.raises(StorageError, match="--data-dir"):
        sync(origin.lock(), tmp_path / "sources")


def test_what_a_killed_fetch_left_is_swept_up_later(origin: Origin, tmp_path: Path) -> None:
    old, young = tmp_path / ".fetch-old", tmp_path / ".fetch-young"
    for directory in (old, young):
        directory.mkdir()
    os.utime(old, (1, 1))
    sync(origin.lock(), tmp_path)
    assert not old.exists()
    assert young.exists(), "it may belong to a process that runs now"
