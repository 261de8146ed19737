"""`atlas warm`: draws what is asked for into the data directory, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from atlas.render.javascript import keep_answers, shared

from .conftest import Atlas


@pytest.fixture(autouse=True)
def _answers_of_its_own() -> Iterator[None]:
    before = shared().kept.path
    yield
    if before is not None:
        keep_answers(before.parent)


def test_it_draws_once_and_keeps(atlas: Atlas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_DATA_DIR", str(tmp_path))
    said = atlas("warm", "gpt2-124m", "gpt2-124m")
    assert said.code == 0, said.err
    assert said.out == f"30 diagrams are drawn, and kept in {tmp_path / 'cache'}.\n"
    assert (tmp_path / "cache/drawings.sqlite3").is_file()
    assert atlas("warm", "gpt2-124m").out == "All of these diagrams are drawn already.\n"


def test_an_unknown_model_is_named(atlas: Atlas) -> None:
    said = atlas("warm", "gpt2")
    assert said.code == 2
    assert "Did you mean 'gpt2-124m'?" in said.err
