"""An engine for one command: started, waited for, closed; and runs, waited for and recalled."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas.catalog import Catalog
from atlas.cli.terminal import stages
from atlas.errors import AtlasError, Conflict, NotFound
from atlas.settings import Settings

if TYPE_CHECKING:
    from atlas.runtime.engine import Engine
    from atlas.runtime.runs import RunRequest, RunView


@contextmanager
def ready_engine(catalog: Catalog, chosen: Settings) -> Iterator[Engine]:
    """The engine, ready, for one command. Its runs are not written down."""
    from atlas.runtime.engine import Engine

    engine = Engine(chosen, catalog, demonstrate=False, journal=Path(":memory:"))
    try:
        with stages(lambda: engine.status):
            engine.start()
            while not engine.status.ready:
                if engine.status.error is not None:
                    raise engine.status.error
                time.sleep(0.02)
        yield engine
    except BaseException:  # an interruption above all: nobody waits for what the engine does now
        engine.close(timeout=0)
        raise
    engine.close()


def finished_run(engine: Engine, identity: str) -> RunView:
    """Wait for a run. Raises what it failed of."""
    while (run := engine.view(identity)).status in ("queued", "running"):
        if sys.stderr.isatty():
            click.echo(f"\r{len(run.tokens) - run.prompt_length} tokens generated ", err=True, nl=False)
        time.sleep(0.05)
    if sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)
    if run.error is not None:
        raise AtlasError(run.error.detail, run.error.hint)
    return run


def recalled(data_dir: Path, identity: str) -> RunRequest:
    """What a finished run of this data directory was asked for. Raises `NotFound`, and `Conflict` for an unfinished."""
    from atlas.runtime.journal import Journal
    from atlas.runtime.runs import RunRequest

    path = data_dir / "runs.sqlite3"
    entry = None
    if path.is_file():
        journal = Journal(path)
        entry = journal.find(identity)
        journal.close()
    if entry is None:
        raise NotFound(
            f"There is no run {identity!r} in {data_dir}.",
            "A run's id stands in the address of its page, behind run=; another server's runs are in its --data-dir.",
        )
    if entry.status != "done":
        raise Conflict(
            f"The run {identity} is {entry.status}; only a finished one can be recorded.", "Ask again later."
        )
    return RunRequest.model_validate_json(entry.request)


def same_run(engine: Engine, identity: str, request: RunRequest) -> RunView:
    """A recalled run, computed again. Raises `Conflict` where other weights or another reference code are here."""
    again = engine.submit(request)
    if again.id != identity:
        engine.delete(again.id)
        raise Conflict(
            f"The run {identity} was made with other weights or other reference code of {request.model}.",
            f"Open those with --checkpoint {request.model}=PATH.",
        )
    return finished_run(engine, identity)
