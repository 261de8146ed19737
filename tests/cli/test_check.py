"""Checking from the command line: a table for people, a document for programs, 1 where anything failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atlas.provenance.locks import Locks
from atlas.render.assets import sources_dir

from .conftest import Atlas


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with nothing in it."""
    monkeypatch.setenv("ATLAS_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def edited(clean: Path) -> Path:
    """A data directory in which the fetched source is not the pinned one."""
    lock = Locks.read(sources_dir())["llama3"]
    path = clean / "sources" / lock.id / lock.revision / lock.files[0].path
    path.parent.mkdir(parents=True)
    path.write_text("edited = True\n")
    return clean


@pytest.mark.usefixtures("clean")
def test_the_table_says_what_was_checked_and_what_is_pending(atlas: Atlas) -> None:
    said = atlas("check", "llama-3-8b", "--only", "sources")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].startswith("Llama 3 8B (llama-3-8b): as declared, ")
    assert lines[1].split()[:4] == ["passed", "failed", "pending", "noted"]
    kind, passed, failed, pending, noted = lines[2].split()[:5]
    assert (kind, failed, noted) == ("sources", "0", "0")
    assert int(passed) > 250
    assert int(pending) > 100
    assert "Run: atlas sources sync llama3" in lines[3]


@pytest.mark.usefixtures("clean")
def test_the_document_has_every_result(atlas: Atlas) -> None:
    said = atlas("check", "llama-3-8b", "smollm2-135m", "--only", "sources", "--json")
    assert said.code == 0
    document = json.loads(said.out)
    assert document["ok"] is True
    assert [model["id"] for model in document["models"]] == ["llama-3-8b", "smollm2-135m"]
    first = document["models"][0]
    assert sum(first["counts"]["sources"].values()) == len(first["results"])
    hook = next(r for r in first["results"] if r["what"] == "Attention.forward.returns leads to one expression")
    assert hook["node"] == "blocks/attention/attention-update"
    assert hook["numbers"] == {"lines": "202", "code": "self.wo(output)"}


@pytest.mark.usefixtures("edited")
def test_a_failure_is_shown_and_is_the_exit_code(atlas: Atlas) -> None:
    said = atlas("check", "llama-3-8b", "--only", "sources")
    assert said.code == 1
    assert "FAILED" in said.out.splitlines()[0]
    failures = [line for line in said.out.splitlines() if line.startswith("  failed: ")]
    assert len(failures) == 1, "the same reason is told once"
    assert "is not the pinned meta-llama/llama3 llama/model.py" in failures[0]
    assert "Run: atlas sources sync llama3" in failures[0]
    document = json.loads(atlas("check", "llama-3-8b", "--only", "sources", "--json").out)
    assert document["ok"] is document["models"][0]["ok"] is False
    assert document["models"][0]["counts"]["sources"]["passed"] > 250, "the rest is checked all the same"
