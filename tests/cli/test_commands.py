"""The frame of the command line: help, variables, errors of one line, and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from atlas import __version__
from atlas.cli import COMMANDS, commands
from atlas.settings import Settings

from .conftest import ROOT, Atlas, Start, finish


def all_commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that lead to it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from all_commands(found, (*path, name))


EVERY = dict(all_commands(commands))


def test_help_names_every_command(atlas: Atlas) -> None:
    said = atlas("--help")
    assert (said.code, said.err) == (0, "")
    for name in COMMANDS:
        assert f"\n  {name} " in said.out


def test_help_loads_nothing_that_takes_time() -> None:
    code = (
        "import json, sys\nfrom atlas.cli import execute\nexecute(['--help'])\nprint(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert not loaded & {"torch", "numpy", "pydantic", "fastapi", "uvicorn", "transformers", "tqdm", "atlas.settings"}


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_command_says_what_it_does_and_every_option_has_its_variable(atlas: Atlas, path: tuple[str, ...]) -> None:
    command = EVERY[path]
    assert command.help
    said = atlas(*path, "--help")
    assert said.code == 0
    shown = " ".join(said.out.split())
    for parameter in command.params:
        if not isinstance(parameter, click.Option) or parameter.name in ("help", "version"):
            continue
        assert parameter.help, parameter.name
        assert isinstance(parameter.envvar, str)
        assert parameter.envvar.startswith("ATLAS_")
        assert parameter.envvar in shown.replace(" ", "").replace("-", "_") or parameter.envvar in shown


def test_every_setting_is_an_option_of_serve() -> None:
    serve = EVERY["serve",]
    options = {parameter.name for parameter in serve.params if isinstance(parameter, click.Option)}
    assert options == set(Settings.model_fields)


def test_the_version_is_said(atlas: Atlas) -> None:
    assert atlas("--version").out == f"atlas {__version__}\n"


def test_without_a_command_the_help_is_shown(atlas: Atlas) -> None:
    said = atlas()
    assert said.code == 2
    assert "Usage: atlas" in said.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nosuch"], "No such command 'nosuch'. Try: atlas --help"),
        (["--zzzz"], "No such option '--zzzz'. Try: atlas --help"),
        (["serve", "--zzzz"], "No such option '--zzzz'. Try: atlas serve --help"),
        (["serve", "--port", "http"], "--port (or ATLAS_PORT) is 'http': Input should be a valid integer"),
        (
            ["serve", "--port", "70000"],
            "--port (or ATLAS_PORT) is '70000': Input should be less than or equal to 65535",
        ),
        (["serve", "--max-queue", "0"], "--max-queue (or ATLAS_MAX_QUEUE) is '0'"),
        (["serve", "--checkpoint", "mine=/nowhere.gguf"], "there is no '/nowhere.gguf'"),
        (["serve", "--checkpoint", "My Model=pyproject.toml"], "'My Model' is no model id"),
        (["serve", "--checkpoint", "mine="], "names no file"),
        (["serve", "--checkpoint", "a=README.md", "--checkpoint", "a=Makefile"], "two checkpoints are given for 'a'"),
        (["serve", "--host", "nowhere.invalid"], "'nowhere.invalid' is no address of this machine"),
        (["run"], "Missing argument 'MODEL'"),
        (["run", "smollm2-135m"], "Missing option '--prompt'"),
        (["run", "smollm2-135", "--prompt", "x"], "There is no model 'smollm2-135'. Did you mean 'smollm2-135m'?"),
        (
            ["run", "smollm2-135m", "--prompt", "x", "--node", "blocks/attention/attention-weight"],
            "There is no node 'blocks/attention/attention-weight'. Did you mean 'blocks/attention/attention-weights'?",
        ),
        (
            ["run", "smollm2-135m", "--prompt", "x", "--node", "blocks/attention/softmax"],
            "of the kind operation, which has no values of its own. Give a tensor, such as "
            "'blocks/attention/attention-weights'.",
        ),
        (
            ["run", "smollm2-135m", "--prompt", "x", "--node", "final-norm/gain", "--out", "/nowhere/x.npy"],
            "Could not write /nowhere/x.npy: there is no directory /nowhere",
        ),
        (["run", "smollm2-135m", "--prompt", "x", "--view", "all"], "'all' is not one of 'full', 'prefill', 'decode'"),
        (["run", "smollm2-135m", "--prompt", "x", "--out", "x.npy"], "--out writes a tensor: name it with --node."),
        (["run", "smollm2-135m", "--prompt", "x", "--step", "1"], "give it with --view decode"),
        (["run", "smollm2-135m", "--prompt", "x", "--max-new-tokens", "-1"], "is not in the range x>=0"),
        (["check", "llama-4"], "There is no model 'llama-4'. Did you mean"),
        (["check", "--only", "everything"], "'everything' is not one of 'sources'"),
        (["sources", "nosuch"], "No such command 'nosuch'"),
        (["sources", "verify", "llama"], "There is no source 'llama'. Did you mean 'llama3'?"),
        (["sources", "sync", "llama"], "There is no source 'llama'"),
        (["weights", "fetch", "smollm"], "There are no weights 'smollm'. Did you mean 'SmolLM2-135M-Instruct'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_is_one_line_on_stderr_with_the_next_step(atlas: Atlas, arguments: list[str], says: str) -> None:
    said = atlas(*arguments)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("Error: ")
    assert said.err.count("\n") == 1
    assert says in said.err


def test_a_variable_that_is_wrong_is_named(atlas: Atlas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_PORT", "http")
    assert "ATLAS_PORT" in atlas("serve").err
    monkeypatch.setenv("ATLAS_CHECKPOINT", f"mine=/nowhere{os.pathsep}other=/there")
    assert "there is no '/nowhere'" in atlas("serve").err
    monkeypatch.setenv("ATLAS_RUN_VIEW", "all")
    assert "ATLAS_RUN_VIEW" in atlas("run", "smollm2-135m", "--prompt", "x").err


def test_a_reader_that_leaves_is_no_traceback(start: Start) -> None:
    process = start("sources", "list")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # before anything is written
    error = process.stderr.read()
    process.stderr.close()
    assert (process.wait(30), error) == (2, "")


def test_an_interruption_is_one_line(start: Start) -> None:
    process = start("run", "smollm2-135m", "--prompt", "x", "--max-new-tokens", "200")
    assert process.stderr is not None
    first = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.code == 2
    assert first.strip()
    assert "Traceback" not in said.err
    assert said.err.splitlines()[-1] == "Interrupted."


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("run", "smollm2-135m", "--prompt", "x"), ("check",)])
@pytest.mark.parametrize("way", ["option", "variable"])
def test_a_python_without_positions_is_refused(start: Start, command: tuple[str, ...], way: str) -> None:
    told = {"PYTHONNODEBUGRANGES": "1"} if way == "variable" else {}
    options = ("-X", "no_debug_ranges") if way == "option" else ()
    said = finish(start(*command, options=options, environment=told))
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "unset PYTHONNODEBUGRANGES" in said.err


def test_output_that_the_terminal_cannot_show_is_escaped(start: Start, tmp_path: Path) -> None:
    latin = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    said = finish(start("weights", "list", "--data-dir", str(tmp_path / "目次"), environment=latin))
    assert said.code == 0
    assert r"\u76ee\u6b21" in said.out
