"""The command line, in this process and in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from atlas import cli

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-c", "from atlas.cli import main; main()")
Start = Callable[..., "subprocess.Popen[str]"]


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str


Atlas = Callable[..., Said]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> None:
    """Variables of whoever runs the tests do not count, but for where the weights are."""
    for name in [name for name in os.environ if name.startswith("ATLAS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ATLAS_DATA_DIR", str(data_dir))
    monkeypatch.setenv("ATLAS_NO_RECHECK", "1")


@pytest.fixture
def atlas(capsys: pytest.CaptureFixture[str]) -> Atlas:
    """Runs a command in this process: `atlas("sources", "list")`."""

    def invoke(*arguments: str) -> Said:
        code = cli.execute(arguments)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return invoke


@pytest.fixture
def start() -> Start:
    """Starts a command in a process of its own, with its output in pipes."""

    def begin(
        *arguments: str, options: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        command = [PROGRAM[0], *options, *PROGRAM[1:], *arguments]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


def finish(process: subprocess.Popen[str], timeout: float = 60) -> Said:
    """Wait for a process and take all it said; one that does not end is ended."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Said(process.returncode, out, err)
