"""Checks beside a server: started for what has no record once the server is ready, and gone when it goes."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from atlas.catalog import Catalog
from atlas.cli import rechecks as module
from atlas.cli.rechecks import rechecks
from atlas.inspection.checks.result import ModelReport
from atlas.inspection.ledger import Ledger
from atlas.settings import Settings

from .conftest import Atlas

TELL = """
import json, os, sys, time
from pathlib import Path
told = {"arguments": sys.argv[1:], "data": os.environ["ATLAS_DATA_DIR"], "pid": os.getpid()}
path = Path(os.environ["ATLAS_DATA_DIR"]) / "told.json"
path.with_suffix(".part").write_text(json.dumps(told))
path.with_suffix(".part").replace(path)
time.sleep(60)
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """In place of a check, a process that says how it was started, and stays."""
    monkeypatch.setattr(module, "COMMAND", TELL)
    monkeypatch.setattr(module, "is_drawn", lambda _: True)
    return tmp_path / "told.json"


def waited_for(path: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return path.exists()


def test_models_without_a_record_are_checked_and_the_process_ends_with_the_server(
    catalog: Catalog, tmp_path: Path, started: Path
) -> None:
    settings = Settings(data_dir=tmp_path, no_recheck=False)
    report = ModelReport(model="llama-3-8b", name="Llama 3 8B", results=(), seconds=0.0)
    Ledger(settings, catalog).write(report, datetime.now(UTC))
    with rechecks(settings, catalog, lambda: True, after=0.0):
        assert waited_for(started, 30)
        told = json.loads(started.read_text())
        assert told["arguments"][0] == "check"
        assert set(told["arguments"][1:]) == {entry.id for entry in catalog} - {"llama-3-8b"}
        assert told["data"] == str(tmp_path)
        if hasattr(os, "getpriority"):
            assert os.getpriority(os.PRIO_PROCESS, told["pid"]) == module.LOWEST
    with pytest.raises(ProcessLookupError):
        os.kill(told["pid"], 0)


def test_diagrams_are_drawn_first_where_they_are_not(
    catalog: Catalog, tmp_path: Path, started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_drawn", lambda _: False)
    with rechecks(Settings(data_dir=tmp_path, no_recheck=False), catalog, lambda: True, after=60.0):
        assert waited_for(started, 30)
        told = json.loads(started.read_text())
    assert (told["arguments"], told["data"]) == (["warm"], str(tmp_path))
    with pytest.raises(ProcessLookupError):
        os.kill(told["pid"], 0)


@pytest.mark.parametrize(("wanted", "ready"), [(False, True), (True, False)])
def test_nothing_is_checked_before_the_server_is_ready_or_if_it_is_not_wanted(
    catalog: Catalog, tmp_path: Path, started: Path, wanted: bool, ready: bool
) -> None:
    with rechecks(Settings(data_dir=tmp_path, no_recheck=not wanted), catalog, lambda: ready, after=0.0):
        assert not waited_for(started, 0.7)


def test_a_whole_check_is_kept_for_pages_and_a_part_is_not(
    atlas: Atlas, catalog: Catalog, own_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for entry in own_data_dir.iterdir():
        if entry.name in ("checkpoints", "hashes", "weights"):
            (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.setenv("ATLAS_DATA_DIR", str(tmp_path))
    ledger = Ledger(Settings(data_dir=tmp_path), catalog)
    assert atlas("check", "llama-3.2-1b", "--only", "sources").code == 0
    assert ledger.read("llama-3.2-1b") is None
    said = atlas("check", "llama-3.2-1b", "--json")
    assert said.code == 0, said.err
    document = json.loads(said.out)
    record = ledger.read("llama-3.2-1b")
    assert record is not None
    assert len(record.report.results) == len(document["models"][0]["results"])
    counts = document["models"][0]["counts"]
    assert set(counts) == {"sources", "shapes", "edges", "equations", "consistency", "checkpoint"}
    assert all(count["failed"] == 0 for count in counts.values())
    assert counts["shapes"]["passed"] > 45
    assert "fairscale" not in said.out
