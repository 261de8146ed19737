"""`atlas build`: the atlas as a site of files without a server, with recorded runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas.catalog import Catalog, open_catalog
from atlas.cli import logs
from atlas.cli.engines import finished_run, ready_engine, require_finished, side_by_side
from atlas.cli.options import ByteCount, own_option, settings, settings_options
from atlas.cli.ranks import follow
from atlas.cli.terminal import counted, megabytes, note, require_positions
from atlas.errors import BadRequest
from atlas.runtime.distributed.place import Place

if TYPE_CHECKING:
    from atlas.inspection.recorded.layout import RecordedRun
    from atlas.settings import Settings
    from atlas.web.published.folder import Folder


@click.command("build")
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@own_option("build", "--models", multiple=True, metavar="MODEL,...", help="Publish these models. Default: all.")
@own_option("build", "--part", multiple=True, metavar="PATH", help="Publish the pages of this node and all in it only.")
@own_option("build", "--run", "runs", multiple=True, metavar="RUN", help="Record this finished run.")
@own_option("build", "--prompt", multiple=True, help="Run this prompt through the default model, and record it.")
@own_option(
    "build", "--max-new-tokens", type=click.IntRange(0), default=8, show_default=True, help="Tokens to generate for it."
)
@own_option(
    "build", "--node", multiple=True, metavar="PATH", help="Record this tensor, or all in this component. Default: all."
)
@own_option(
    "build", "--budget", type=ByteCount(), default="500MB", show_default=True, help="Most bytes of all recorded runs."
)
@own_option("build", "--url", default="", help="Address that the site will have, which its pages then name.")
@settings_options("data_dir", "checkpoint", "threads", "dtype", "device")
def command(
    out: Path,
    models: tuple[str, ...],
    part: tuple[str, ...],
    runs: tuple[str, ...],
    prompt: tuple[str, ...],
    max_new_tokens: int,
    node: tuple[str, ...],
    budget: int,
    url: str,
    **given: Any,
) -> int:
    """Write the atlas into the folder OUT, as a static site with recorded runs.

    Any static host or CDN can serve it, below any path. The default run is the demonstration. The folder is replaced
    only when the new site is whole; the same input gives the same bytes. --models, --part, --run, --prompt and --node
    may each be given several times.

    \b
    atlas build site --budget 200MB
    atlas build site --models smollm2-135m,llama-3-8b --prompt "The capital of France is"
    python -m http.server --directory site
    """
    side_by_side()
    chosen = settings(given)
    chosen = chosen.model_copy(update={"max_new_tokens": max(chosen.max_new_tokens, max_new_tokens)})
    place = Place.here()
    require_positions()
    if place is not None and not place.serves:
        return follow(chosen, place)
    logs.set_up(chosen.log_level, chosen.log_format)
    if url and not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", url):
        raise BadRequest(f"--url is {url!r}, which is no address.", "Write it as https://example.org/atlas")
    from atlas.web.published.folder import built, require_place

    require_place(out)
    catalog = open_catalog(chosen.data_dir)
    listed = tuple(dict.fromkeys(one for given_ids in models for one in given_ids.split(",") if one))
    for one in listed:
        if not any(choice.model == one for choice in chosen.checkpoint):
            catalog.entry(one)
    for one in runs:
        require_finished(chosen.data_dir, one)
    with built(out) as folder:
        recorded, sizes = _recorded(folder, catalog, chosen, place, runs, prompt, max_new_tokens, node, budget)
        _pages(folder, catalog, chosen, listed, part, recorded, sizes, budget, url)
        files, size = folder.files, folder.bytes
    said = ", ".join(f"{run.id[:8]} {megabytes(sizes[run.id])}" for run in recorded)
    click.echo(
        f"Wrote {out}: {files:,} files, {megabytes(size)}; recorded runs {megabytes(sum(sizes.values()))} of "
        f"{megabytes(budget)} ({said})."
    )
    left = sum(one.of - one.held for run in recorded for one in run.held)
    if left:
        where = out / "published" / "index.html"
        click.echo(f"{left:,} tensors were left out to keep within the budget; {where} names them.")
    return 0


def _recorded(
    folder: Folder,
    catalog: Catalog,
    chosen: Settings,
    place: Place | None,
    runs: tuple[str, ...],
    prompts: tuple[str, ...],
    max_new_tokens: int,
    nodes: tuple[str, ...],
    budget: int,
) -> tuple[tuple[RecordedRun, ...], dict[str, int]]:
    """Record the runs, one after another, the first with the whole budget; and the bytes that each has taken."""
    from atlas.inspection.recorded.record import Choice, record
    from atlas.runtime.engine import DEMONSTRATION
    from atlas.runtime.runs import RunRequest

    found: list[RecordedRun] = []
    sizes: dict[str, int] = {}
    with ready_engine(catalog, chosen, place) as engine:
        ids = [engine.run(identity).id for identity in runs]
        for text in prompts or (() if ids else (DEMONSTRATION,)):
            model = catalog.default.id
            order = RunRequest(
                model=model,
                token_ids=tuple(engine.tokens(model, text)),
                max_new_tokens=max_new_tokens,
                temperature=0.0,
                seed=0,
            )
            ids.append(finished_run(engine, engine.submit(order).id).id)
        for identity in dict.fromkeys(ids):
            note(f"Recording the run {identity}")
            inside = folder.inside(f"runs/{identity}")
            rest = budget - sum(sizes.values())
            with counted("tensors") as tell:
                found.append(asyncio.run(record(engine, identity, Choice(nodes, rest), inside, tell)))
            sizes[identity] = inside.bytes
    return tuple(found), sizes


def _pages(
    folder: Folder,
    catalog: Catalog,
    chosen: Settings,
    listed: tuple[str, ...],
    part: tuple[str, ...],
    recorded: tuple[RecordedRun, ...],
    sizes: dict[str, int],
    budget: int,
    url: str,
) -> None:
    """Make the pages."""
    from atlas.render.javascript import KEPT, keep_answers
    from atlas.web.published.building import SiteBuilder
    from atlas.web.published.listing import ChosenModels
    from atlas.web.readable import readable

    models = listed or tuple(model.id for model in readable(catalog))
    for path in part:
        if not any(path in catalog[one].graph.nodes for one in models):
            raise BadRequest(f"No published model has a node {path!r}.", "Give a path, such as blocks/attention.")
    entries = tuple(catalog.entry(entry.id) for entry in catalog)
    shown = ChosenModels(catalog.store, entries, frozenset(models))
    note("Making the pages")
    keep_answers(chosen.data_dir / KEPT)
    builder = SiteBuilder(chosen, shown, models, part, recorded, sizes, budget, url)
    told: dict[str, Callable[[int, int], None]] = {}
    with ExitStack() as bars:

        def tell(what: str, done: int, whole: int) -> None:
            if what not in told:
                bars.close()
                told[what] = bars.enter_context(counted(what))
            told[what](done, whole)

        asyncio.run(builder.build(folder, tell))
