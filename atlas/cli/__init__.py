"""The command line: finds the command, and turns whatever goes wrong into one line and an exit code.

0 is success, 1 a check that failed, 2 everything else, interruption included. Commands are modules of this package
and are imported when they are asked for, so that `atlas --help` is quick.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from atlas import __version__
from atlas.errors import AtlasError

FAILED, UNFIT = 1, 2
COMMANDS = {
    "serve": "Serve the pages and the API, with live values.",
    "add": "Hand a running server another checkpoint.",
    "run": "Run a prompt through a model; print its tokens, and a tensor's statistics.",
    "build": "Write the atlas as a static site with recorded runs.",
    "bundle": "Write a run with its tensors into one file, for who has no weights.",
    "check": "Check sources, shapes, edges, equations and weights by running them.",
    "draft": "Print the skeleton of a declaration, read off the code of a model that has none.",
    "warm": "Draw all diagrams ahead, so that no reader waits for one.",
    "sources": "List, fetch or verify the pinned sources.",
    "weights": "List or fetch the weights that can be fetched.",
}
"""Each is a module of this package that has `command`."""


class Commands(click.Group):
    """A group whose commands are imported when they are needed, and not for their names and purposes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        gc.disable()  # modules stay: looking for garbage in them takes a third of the time
        try:
            command = importlib.import_module(f"{__name__}.{cmd_name}").command
        finally:
            gc.enable()
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> object:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read the output has left. Nothing more can be said there, not even when Python flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(UNFIT)
        return code


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every option may also be given as an environment variable; `atlas COMMAND --help` names it.",
)
@click.version_option(__version__, prog_name="atlas", message="%(prog)s %(version)s")
def commands() -> None:
    """OpenModelAtlas: look inside language models, down to the source line and the number that it computes."""


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Every error becomes one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # tokens hold what a terminal may not be able to show
    try:
        code = commands.main(arguments, prog_name="atlas", standalone_mode=False)
    except AtlasError as error:
        return _say(f"Error: {error}")
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return UNFIT
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "atlas"
        return _say(f"Error: {error.format_message()} Try: {path} --help")
    except click.ClickException as error:
        return _say(f"Error: {error.format_message()}")
    except (click.Abort, KeyboardInterrupt):
        return _say("Interrupted.")
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """The entry point. What has to be closed is closed by the command itself, so the process ends at once.

    An interpreter that shuts down while a library's own thread still computes may abort instead, without a word on why.
    """
    code = execute()
    with contextlib.suppress(KeyboardInterrupt):  # a second interruption changes nothing
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    os._exit(code)


def _say(message: str) -> int:
    click.echo(" ".join(message.split()), err=True)
    return UNFIT
