"""`atlas bundle`: a run and its tensors in one file, for somebody who has no weights."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from atlas.catalog import open_catalog
from atlas.cli.engines import ready_engine, require_finished, side_by_side
from atlas.cli.options import ByteCount, own_option, settings, settings_options
from atlas.cli.ranks import follow
from atlas.cli.terminal import counted, megabytes, require_positions
from atlas.errors import StorageError
from atlas.runtime.distributed.place import Place


@click.command("bundle")
@click.argument("run")
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT.atlas")
@own_option(
    "bundle",
    "--node",
    multiple=True,
    help="Record this tensor, cache or parameter, or all in this component. Several may be given. Default: all.",
)
@own_option(
    "bundle",
    "--budget",
    type=ByteCount(),
    default="500MB",
    show_default=True,
    help="Most bytes that it may have.",
)
@settings_options("data_dir", "checkpoint", "threads", "dtype", "device")
def command(run: str, out: Path, node: tuple[str, ...], budget: int, **given: Any) -> int:
    """Write the finished RUN into the file OUT.atlas: its tokens, its tensors and their hashes.

    RUN is an id, as `atlas run` prints it, and as it stands in the address of a page behind run=. Whoever gets the file
    looks at it with `atlas serve OUT.atlas`, or drops it on any page of a running atlas. Nothing in it can execute.

    A model that is too large for one process is split over several, as with `atlas serve`:
    torchrun --nproc-per-node N -m atlas bundle RUN OUT.atlas --checkpoint MODEL=PATH

    \b
    atlas bundle 6ac2ec8da5f23d3a8e2c attention.atlas --node blocks/attention --budget 20MB
    """
    side_by_side()
    chosen = settings(given)
    place = Place.here()
    require_positions()
    if place is not None and not place.serves:
        return follow(chosen, place)
    if not out.absolute().parent.is_dir():
        raise StorageError(f"Could not write {out}: there is no directory {out.parent}.", "Choose another place.")
    require_finished(chosen.data_dir, run)
    catalog = open_catalog(chosen.data_dir)
    from atlas.inspection.recorded.bundle import written
    from atlas.inspection.recorded.record import Choice, record

    with ready_engine(catalog, chosen, place) as engine:
        engine.run(run)  # whose weights are here, or nothing is written
        with written(out) as sink, counted("tensors") as tell:
            recorded = asyncio.run(record(engine, run, Choice(node, budget), sink, tell))
    held, whole = sum(one.held for one in recorded.held), sum(one.of for one in recorded.held)
    left = "" if held == whole else f"; the other {whole - held:,} were left out to keep within the budget"
    click.echo(f"Wrote {out}: {held:,} tensors, {megabytes(out.stat().st_size)}{left}.")
    return 0
