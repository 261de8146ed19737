"""The set-up: what make does when, and that the pins are whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
MADE_FROM = (
    "pyproject.toml",
    "constraints.txt",
    "hatch_build.py",
    "package.json",
    "package-lock.json",
    ".npmrc",
)
STAMPS = (".venv/bin/python", ".venv/packages", "static/vendor/manifest.json")


def make(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make as a person would: without what an outer make and its command line say to its children."""
    ours = ("MAKE", "MFLAGS", "ARGS", "PIP_ARGS", "PORT", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(["make", *arguments], cwd=tree, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree as set-up leaves it: stamps newer than what they were made from."""
    for moment, name in enumerate((*MADE_FROM, "Makefile", *STAMPS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1_000_000 + moment, 1_000_000 + moment))
    shutil.copy(ROOT / "Makefile", tmp_path / "Makefile")
    return tmp_path


def test_a_second_start_only_serves(tree: Path) -> None:
    done = make(tree, "-n", "serve", "PORT=9000")
    assert done.stdout.strip() == "exec .venv/bin/atlas serve --port 9000"


def test_the_port_is_8000_by_default(tree: Path) -> None:
    assert "--port 8000" in make(tree, "-n", "serve").stdout


@pytest.mark.parametrize("name", MADE_FROM)
def test_what_changed_is_installed_again(tree: Path, name: str) -> None:
    (tree / name).touch()
    assert "pip install" in make(tree, "-n", "serve").stdout


@pytest.mark.parametrize("name", STAMPS)
def test_what_is_missing_is_installed_again(tree: Path, name: str) -> None:
    (tree / name).unlink()
    done = make(tree, "-n", "serve")
    assert re.search("pip install|-m venv", done.stdout)
    assert done.stdout.strip().endswith("atlas serve --port 8000")


@pytest.mark.parametrize(
    ("choice", "says"),
    [("PYTHON=", "Python 3.11 or newer was not found"), ("PYTHON=false", "python3-venv")],
)
def test_a_python_that_will_not_do_is_one_clear_message(tree: Path, choice: str, says: str) -> None:
    shutil.rmtree(tree / ".venv")
    done = make(tree, "serve", choice)
    assert done.returncode != 0
    assert says in done.stderr
    assert not (tree / ".venv").exists()


def test_a_failed_installation_says_what_to_do_and_is_tried_again(tree: Path) -> None:
    (tree / ".venv/bin/python").write_text("#!/bin/sh\nexit 1\n")
    (tree / ".venv/bin/python").chmod(0o755)
    (tree / ".venv/packages").unlink()
    done = make(tree, "serve")
    assert done.returncode != 0
    assert "run make again" in done.stderr
    assert not (tree / ".venv/packages").exists()


def test_every_dependency_is_pinned_to_what_was_tested() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"==[^*,+]+", str(pin.specifier)) for pin in pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [Requirement(line) for line in project["dependencies"] + project["optional-dependencies"]["dev"]]
    pinned = {canonicalize_name(pin.name): pin for pin in pins}
    for requirement in asked:
        pin = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(str(pin.specifier).removeprefix("==")), f"{pin} is not {requirement}"
    assert str(pinned[canonicalize_name("torch")].specifier) == "==2.13.0"


def test_the_npm_lock_pins_contents_not_addresses() -> None:
    text = (ROOT / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    asked = json.loads((ROOT / "package.json").read_text())["dependencies"]
    assert asked == packages[""]["dependencies"]
    for path, package in packages.items():
        if path:
            assert package["integrity"].startswith("sha512-")
            assert "resolved" not in package
    for name, version in asked.items():
        assert packages[f"node_modules/{name}"]["version"] == version


def test_ci_runs_the_checks_and_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], timeout=10).returncode == 0
    steps = [line for line in script.read_text().splitlines() if line.startswith(("make", ".venv"))]
    assert steps == ["make check", "make test", ".venv/bin/atlas check"]
