"""Records of checks: what was written is read back, and a record of something else is not shown."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from atlas.catalog import Catalog
from atlas.errors import StorageError
from atlas.inspection import ledger
from atlas.inspection.checks.result import ModelReport, Result
from atlas.inspection.ledger import Ledger
from atlas.settings import CheckpointChoice, Settings

WHEN = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
REPORT = ModelReport(
    model="llama-3-8b",
    name="Llama 3 8B",
    results=(
        Result(
            kind="equations",
            status="failed",
            what="its equation holds",
            subject="the weights of SmolLM2 135M, which stand in",
            node="blocks/attention/queries",
            detail="prefill, layer 3: row [0, 1, 2] is 0.5 of its norm away.",
            hint="Compare.",
            numbers={"worst_row": 0.5, "rows": 30, "worst_at": "prefill"},
        ),
    ),
    seconds=1.5,
)


@pytest.fixture
def written(catalog: Catalog, tmp_path: Path) -> Ledger:
    found = Ledger(Settings(data_dir=tmp_path), catalog)
    found.write(REPORT, WHEN)
    return found


def test_a_record_is_read_back_whole(written: Ledger, catalog: Catalog, tmp_path: Path) -> None:
    for reader in (written, Ledger(Settings(data_dir=tmp_path), catalog)):
        record = reader.read("llama-3-8b")
        assert record is not None
        assert record.report == REPORT
        assert record.checked == WHEN
    assert written.read("llama-3.1-8b") is None
    assert "llama-3-8b" not in written.missing()
    assert "llama-3.1-8b" in written.missing()


def test_a_record_of_other_code_is_not_shown(written: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_code", lambda: "edited")
    assert written.read("llama-3-8b") is None
    assert "llama-3-8b" in written.missing()


@pytest.mark.usefixtures("written")
def test_a_record_of_other_weights_is_not_shown(catalog: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "weights.gguf"
    file.write_bytes(b"x")
    own = Settings(data_dir=tmp_path, checkpoint=(CheckpointChoice(model="llama-3-8b", path=file),))
    assert Ledger(own, catalog).read("llama-3-8b") is None
    Ledger(own, catalog).write(REPORT, WHEN)
    assert Ledger(own, catalog).read("llama-3-8b") is not None
    file.write_bytes(b"xy")
    assert Ledger(own, catalog).read("llama-3-8b") is None


def test_a_file_that_is_no_record_is_left_aside(
    written: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = (tmp_path / "checks").iterdir()
    path.write_text('{"checked": "yesterday"}')
    assert written.read("llama-3-8b") is None
    assert "is no record of a check" in caplog.text


def test_what_cannot_be_kept_says_why(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "checks").write_text("in the way")
    with pytest.raises(StorageError, match="keep what was checked"):
        Ledger(Settings(data_dir=tmp_path), catalog).write(REPORT, WHEN)


def test_reading_loads_nothing_that_computes() -> None:
    code = "import sys; import atlas.inspection.ledger; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"
