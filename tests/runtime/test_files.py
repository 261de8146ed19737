from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from atlas.errors import StorageError
from atlas.runtime.files import (
    directory_aside,
    file_aside,
    need_space,
    only_builder,
    remember_sha256,
    remembered_sha256,
    sha256_of,
    storage_errors,
)


def test_a_hash_is_remembered_until_the_file_is_touched(tmp_path: Path) -> None:
    path, data_dir = tmp_path / "file", tmp_path / "data"
    path.write_bytes(b"one")
    assert remembered_sha256(path, data_dir) == hashlib.sha256(b"one").hexdigest() == sha256_of(path)
    remember_sha256(path, data_dir, "as remembered")
    assert remembered_sha256(path, data_dir) == "as remembered"
    modified = path.stat().st_mtime_ns
    path.write_bytes(b"two")
    os.utime(path, ns=(modified, modified))
    assert remembered_sha256(path, data_dir) == hashlib.sha256(b"two").hexdigest()


def test_a_hash_is_found_without_a_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    no_directory = tmp_path / "file"
    assert remembered_sha256(path, no_directory) == hashlib.sha256(b"one").hexdigest()
    for note in (b"", b"{", b"[1]", b"[1, 2, 3]", b"7"):
        remembered_sha256(path, tmp_path / "data")
        for written in (tmp_path / "data" / "hashes").iterdir():
            written.write_bytes(note)
        assert remembered_sha256(path, tmp_path / "data") == hashlib.sha256(b"one").hexdigest()


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "final"

    def fail() -> None:
        with file_aside(final) as part:
            part.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with file_aside(final) as part:
        part.write_bytes(b"whole")
        assert not final.exists()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


def test_a_directory_takes_the_place_of_another(tmp_path: Path) -> None:
    final = tmp_path / "final"
    for content in (b"old", b"new"):
        with directory_aside(final) as part:
            (part / content.decode()).write_bytes(content)

    def fail() -> None:
        with directory_aside(final) as part:
            (part / "newest").write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
    assert [path.name for path in final.iterdir()] == ["new"]


def test_one_builder_at_a_time(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from atlas.runtime.files import only_builder
with only_builder(Path(sys.argv[1]), lambda message, _: print(message, flush=True)):
    print("built", flush=True)
"""
    with only_builder(tmp_path):
        other = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "Waiting for another process that prepares the same files\n"
    rest, _ = other.communicate(timeout=60)
    assert rest == "built\n"
    assert other.returncode == 0


def test_storage_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="free") as raised:
        need_space(tmp_path / "not" / "yet", 1 << 62, "This")
    assert raised.value.facts["needed"] == 1 << 62
    need_space(tmp_path / "not" / "yet", 1, "This")
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(StorageError, match="Could not make a directory: ") as raised, only_builder(blocked / "below"):
        pass
    assert "--data-dir" in raised.value.hint
    with pytest.raises(StorageError, match="Could not write it"), storage_errors("write it", tmp_path):
        (tmp_path / "absent" / "file").write_bytes(b"")
