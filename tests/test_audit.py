"""`.ci/audit.py`: what it makes of the answers of pip-audit, in whose place a program gives them without a network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

AUDIT = Path(__file__).parents[1] / ".ci/audit.py"
WELL = {"name": "jinja2", "version": "3.1.6", "vulns": []}
WEAK = {
    "name": "jinja2",
    "version": "3.1.0",
    "vulns": [{"id": "CVE-2024-22195", "fix_versions": ["3.1.3"]}, {"id": "CVE-0000-0", "fix_versions": []}],
}
UNKNOWN = {"name": "torch", "version": "2.13.0+cpu", "skip_reason": "not found"}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python beside which a test can put a pip-audit of its own."""
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    return python


def audit(python: Path, prints: str | None) -> subprocess.CompletedProcess[str]:
    if prints is not None:
        program = python.with_name("pip-audit")
        program.with_suffix(".out").write_text(prints)
        program.write_text(f'#!/bin/sh\ncat "{program.with_suffix(".out")}"\nexit 1\n')
        program.chmod(0o755)
    return subprocess.run([str(python), str(AUDIT)], capture_output=True, text=True, timeout=60)


def answer(*dependencies: object) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


def test_a_known_weakness_fails_and_is_named_with_the_release_that_mends_it(python: Path) -> None:
    done = audit(python, answer(WELL, WEAK, UNKNOWN))
    assert done.returncode == 1
    assert "jinja2 3.1.0: CVE-2024-22195, fixed in 3.1.3" in done.stdout
    assert "jinja2 3.1.0: CVE-0000-0, fixed in no release yet" in done.stdout
    assert "2 packages looked up, 1 with known weaknesses, 1 not known there." in done.stdout


def test_without_a_weakness_it_passes_and_says_how_much_it_looked_at(python: Path) -> None:
    done = audit(python, answer(WELL, UNKNOWN))
    assert (done.returncode, done.stdout) == (
        0,
        "1 packages looked up, 0 with known weaknesses, 1 not known there.\n",
    )


@pytest.mark.parametrize(
    ("prints", "why"),
    [
        (None, "pip-audit gave no answer (FileNotFoundError)"),
        ("", "pip-audit gave no answer (JSONDecodeError)"),
        ("ConnectionError: no route", "pip-audit gave no answer (JSONDecodeError)"),
        ('{"packages": []}', "pip-audit gave no answer (KeyError)"),
        ("[]", "pip-audit gave no answer (TypeError)"),
        (answer(UNKNOWN), "its data could not be reached"),
    ],
)
def test_without_data_it_says_aloud_that_it_was_skipped(python: Path, prints: str | None, why: str) -> None:
    done = audit(python, prints)
    assert (done.returncode, done.stdout) == (0, f"SKIPPED: installed packages were not audited: {why}.\n")
