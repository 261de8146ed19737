"""`atlas sources`: the pinned sources, whether they are here, and fetching them with git."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import click

from atlas.cli import FAILED
from atlas.cli.options import settings, settings_options
from atlas.cli.terminal import note, table
from atlas.errors import NotFound
from atlas.provenance.store import SourceStore
from atlas.provenance.verification import FileVerdict, verify


@click.group("sources", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, fetch or verify the pinned sources. Alone it lists them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(listed)


@command.command("list")
@settings_options("data_dir")
def listed(**given: Any) -> None:
    """Every pinned repository: its revision, its licence, and where its files are."""
    store = _store(given)
    for lock in store.locks:
        click.echo(f"{lock.id}  {lock.url} at {lock.short_revision}")
        if lock.carrier is not None:
            click.echo(f"  carried by {lock.carrier.distribution}=={lock.carrier.version}")
        click.echo(f"  {lock.license}: {lock.license_url}")
        click.echo(table([(v.locked.path, _where(v)) for v in verify(store, [lock.id])], indent="  "))


@command.command("verify")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@settings_options("data_dir")
def verified(ids: Sequence[str], **given: Any) -> int:
    """Compare every file with its pinned hash, and the cited lines with those that the lock keeps.

    What no package carries is pending until it is fetched. The exit code is 1 if anything failed.
    """
    store = _store(given)
    verdicts = verify(store, _known(store, ids))
    click.echo(table([(v.status, v.lock.id, v.locked.path, v.locked.sha256[:12], _where(v)) for v in verdicts]))
    failed = [verdict for verdict in verdicts if verdict.status == "failed"]
    for verdict in failed:
        note(f"{verdict.lock.id}:{verdict.locked.path}: {verdict.detail} {verdict.hint}")
    return FAILED if failed else 0


@command.command("sync")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@settings_options("data_dir")
def synced(ids: Sequence[str], **given: Any) -> None:
    """Fetch pinned files with git and verify them: those of ID, by default all that are not here yet."""
    from atlas.provenance.sync import sync

    store = _store(given)
    chosen = _known(store, ids) if ids else _missing(store)
    if not chosen:
        click.echo("Every pinned file is here.")
    for source in chosen:
        for path in sync(store.locks[source], store.cache_dir, lambda message, _: note(message)):
            click.echo(path)


def _store(given: dict[str, Any]) -> SourceStore:
    from atlas.catalog import open_store

    return open_store(settings(given).data_dir)


def _known(store: SourceStore, ids: Sequence[str]) -> list[str]:
    known = [lock.id for lock in store.locks]
    for source in ids:
        if source not in store.locks:
            near = difflib.get_close_matches(source, known, 1, 0.0)
            hint = f"Did you mean {near[0]!r}?" if near else "See: atlas sources list"
            raise NotFound(f"There is no source {source!r}.", hint)
    return list(ids) or known


def _missing(store: SourceStore) -> list[str]:
    return list(dict.fromkeys(verdict.lock.id for verdict in verify(store) if verdict.status != "verified"))


def _where(verdict: FileVerdict) -> str:
    if verdict.status == "verified":
        return verdict.origin
    return f"not here ({verdict.hint})" if verdict.status == "pending" else "not usable"
