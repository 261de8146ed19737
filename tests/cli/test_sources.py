"""Sources from the command line: listed, verified, fetched."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from .conftest import Atlas

TEXT = "def f(x):\n    return x + 1\n"


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of a git repository of our own, in place of the atlas's; gives the lock's file."""
    repository, locks = tmp_path / "origin", tmp_path / "locks"
    repository.mkdir()
    locks.mkdir()

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=repository, check=True, capture_output=True, text=True, timeout=30
        )
        return done.stdout.strip()

    git("init", "--quiet")
    (repository / "model.py").write_text(TEXT)
    git("add", "model.py")
    git("commit", "--quiet", "--message=One")
    lock = locks / "made-up.toml"
    lock.write_text(
        f"""\
id = "made-up"
repository = "somebody/made-up"
url = "file://{repository}"
revision = "{git("rev-parse", "HEAD")}"
license = "CC0-1.0"
license_url = "https://example.org/license"

[[files]]
path = "model.py"
sha256 = "{hashlib.sha256(TEXT.encode()).hexdigest()}"

[files.lines]
"f.returns" = [2, 2]
"""
    )
    monkeypatch.setattr("atlas.catalog.sources_dir", lambda: locks)
    monkeypatch.setenv("ATLAS_DATA_DIR", str(tmp_path / "data"))
    return lock


def test_sources_alone_lists_them(atlas: Atlas) -> None:
    said = atlas("sources")
    assert said == atlas("sources", "list")
    assert said.code == 0
    assert "llama-models  https://github.com/meta-llama/llama-models at 0e0b8c519242" in said.out
    assert "carried by llama-models==0.3.0" in said.out
    assert "models/llama3/model.py  installed" in said.out
    assert "Llama 3 Community License Agreement" in said.out


def test_a_source_is_pending_then_fetched_then_verified(atlas: Atlas, made_up: Path) -> None:
    before = atlas("sources", "verify")
    assert (before.code, before.out.split()[0]) == (0, "pending")
    fetched = atlas("sources", "sync")
    assert fetched.code == 0
    assert Path(fetched.out.strip()).read_text() == TEXT
    assert "Fetching somebody/made-up model.py" in fetched.err
    assert atlas("sources", "verify", "made-up").out.split()[0] == "verified"
    assert atlas("sources", "sync").out == "Every pinned file is here.\n"
    assert made_up.exists()


def test_a_file_edited_by_hand_fails_and_is_fetched_again(atlas: Atlas, made_up: Path) -> None:
    path = Path(atlas("sources", "sync").out.strip())
    path.write_text(TEXT.replace("1", "2"))
    said = atlas("sources", "verify")
    assert said.code == 1
    assert said.out.split()[0] == "failed"
    for text in (TEXT, TEXT.replace("1", "2")):
        assert hashlib.sha256(text.encode()).hexdigest() in said.err
    assert atlas("sources", "sync").code == 0
    assert path.read_text() == TEXT
    assert made_up.exists()


def test_what_cannot_be_fetched_is_one_line(atlas: Atlas, made_up: Path) -> None:
    made_up.write_text(made_up.read_text().replace('url = "file://', 'url = "file:///nowhere'))
    said = atlas("sources", "sync")
    assert said.code == 2
    assert said.out == ""
    assert "could not be fetched" in said.err.splitlines()[-1]


def test_a_bad_lock_is_one_line(atlas: Atlas, made_up: Path) -> None:
    made_up.write_text(made_up.read_text().replace('id = "made-up"', "id = 3"))
    said = atlas("sources")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "made-up.toml is no good lock: id" in said.err
