"""An engine for one command: started, waited for, closed; and runs, waited for and recalled."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas.catalog import Catalog
from atlas.cli.terminal import stages
from atlas.errors import AtlasError, Conflict, NotFound
from atlas.runtime.distributed.place import Place
from atlas.settings import Settings

if TYPE_CHECKING:
    from atlas.runtime.engine import Engine
    from atlas.runtime.runs import RunView


@contextmanager
def ready_engine(catalog: Catalog, chosen: Settings, place: Place | None = None) -> Iterator[Engine]:
    """The engine, ready, for one command: it finds the finished runs of the data directory, and adds its own.

    With a `place` among several processes it leads them.
    """
    from atlas.runtime.engine import Engine
    from atlas.runtime.journal import RUNS, CommandJournal

    journal = CommandJournal(chosen.data_dir / RUNS)
    engine = Engine(chosen, catalog, demonstrate=False, journal=journal, place=place)
    with ExitStack() as broken_off:
        broken_off.callback(engine.close, timeout=0)  # nobody waits for what the engine does then
        with stages(lambda: engine.status):
            engine.start()
            while not engine.status.ready:
                if engine.status.error is not None:
                    raise engine.status.error
                time.sleep(0.02)
        yield engine
        broken_off.pop_all()
    engine.close()


def side_by_side() -> None:
    """Recording looks at several tensors at a time, so the linear algebra of each gets one thread.

    It reads that where it is loaded; here nothing may have done so before.
    """
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


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


def require_finished(data_dir: Path, identity: str) -> None:
    """Raises `NotFound` for a run that is not in this data directory, and `Conflict` for one that is not finished."""
    from atlas.runtime.journal import RUNS, Journal

    path = data_dir / RUNS
    entry = None
    if path.is_file():
        journal = Journal(path)
        entry = journal.find(identity)
        journal.close()
    if entry is None:
        raise NotFound(
            f"There is no run {identity!r} in {data_dir}.",
            "`atlas run` prints a run's id, and the address of its page has it behind run=; another server's runs are "
            "in its --data-dir.",
        )
    if entry.status != "done":
        raise Conflict(
            f"The run {identity} is {entry.status}; only a finished one can be recorded.", "Ask again later."
        )
