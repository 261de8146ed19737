"""`atlas weights`: which weights can be fetched, and fetching them."""

from __future__ import annotations

import difflib
from typing import Any

import click

from atlas.cli.options import settings, settings_options
from atlas.cli.terminal import megabytes, table
from atlas.errors import NotFound


@click.group("weights", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List or fetch the weights that can be fetched. Alone it lists them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(listed)


@command.command("list")
@settings_options("data_dir")
def listed(**given: Any) -> None:
    """What can be fetched, whether it is here, its licence and its hash."""
    from atlas.runtime.weights import listing

    for entry in listing(settings(given).data_dir):
        click.echo(f"{entry.name} ({entry.model})")
        rows = [
            ("here" if entry.present else "not here", str(entry.path)),
            ("size", megabytes(entry.size)),
            ("sha256", entry.sha256),
            ("licence", entry.licence),
        ]
        click.echo(table(rows, indent="  "))


@command.command("fetch")
@click.argument("name", required=False)
@settings_options("data_dir")
def fetched(name: str | None, **given: Any) -> None:
    """Fetch weights and verify them: NAME as `atlas weights list` has it, by default the first."""
    from atlas.runtime.weights import fetch, locked

    known = {entry.name: entry for entry in locked()}
    chosen = name or next(iter(known))
    if chosen not in known:
        near = difflib.get_close_matches(chosen, known, 1, 0.0)
        raise NotFound(f"There are no weights {chosen!r}.", f"Did you mean {near[0]!r}? See: atlas weights list")
    click.echo(fetch(known[chosen], settings(given).data_dir))
