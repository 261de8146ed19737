"""What commands share: tables, stages, and whether this Python will do."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import pytest

from atlas.cli.terminal import megabytes, require_positions, stages, table
from atlas.errors import EnvironmentUnfit


def test_a_table_is_as_wide_as_it_needs_to_be() -> None:
    assert table([("a", "long", "x"), ("bbb", "c", "")], indent="  ") == "  a    long  x\n  bbb  c"
    assert table([]) == ""


def test_sizes_in_megabytes() -> None:
    assert megabytes(98_400_000) == "98.4 MB"
    assert megabytes(1_234_500_000) == "1,234.5 MB"


@dataclass
class Status:
    stage: str
    progress: float | None = None


def test_each_stage_is_told_once_and_what_has_a_bar_is_left_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    status = Status("importing torch")
    with stages(lambda: status):
        for stage, progress in (("importing torch", None), ("downloading", 0.5), ("building", None), ("ready", 1.0)):
            status.stage, status.progress = stage, progress
            time.sleep(0.3)
    assert capsys.readouterr().err == "Importing torch\nBuilding\nReady\n"


def test_this_python_keeps_positions() -> None:
    require_positions()


def test_code_from_a_file_compiled_without_positions_is_named_with_its_place(tmp_path: Path) -> None:
    """Such a .pyc stays, whatever the next Python is told."""
    compiled = tmp_path / "compiled"
    program = "import marshal, sys; code = compile('def f(x): return -x', '/lib/stale.py', 'exec')"
    program += "; marshal.dump(code, open(sys.argv[1], 'wb'))"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-X", "no_debug_ranges", "-c", program, str(compiled)]
    subprocess.run(command, check=True, env=environment, timeout=30)
    code = marshal.loads(compiled.read_bytes())
    assert isinstance(code, CodeType)
    with pytest.raises(EnvironmentUnfit) as caught:
        require_positions(code)
    assert "delete the __pycache__ beside /lib/stale.py" in caught.value.hint
