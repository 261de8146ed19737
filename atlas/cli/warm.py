"""`atlas warm`: all diagrams drawn ahead, so that no reader waits for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from atlas.cli.options import settings, settings_options
from atlas.cli.terminal import counted


@click.command("warm")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@settings_options("data_dir")
def command(models: Sequence[str], **given: Any) -> None:
    """Draw the diagrams of MODEL ahead, by default of all models, and keep them in the data directory.

    A server does it by itself, beside its work, where it has not been done. Doing it before (in an image, say) spares
    its first readers the wait.
    """
    from atlas.catalog import Catalog, open_catalog
    from atlas.render.javascript import KEPT, keep_answers
    from atlas.web.drawn_ahead import draw_ahead, is_drawn

    chosen = settings(given)
    catalog = open_catalog(chosen.data_dir)
    if models:
        catalog = Catalog(catalog.store, [catalog.entry(model) for model in dict.fromkeys(models)])
    keep_answers(chosen.data_dir / KEPT)
    if is_drawn(catalog):
        click.echo("All of these diagrams are drawn already.")
        return
    with counted("diagrams") as tell:
        count = draw_ahead(catalog, tell)
    click.echo(f"{count:,} diagrams are drawn, and kept in {chosen.data_dir / KEPT}.")
