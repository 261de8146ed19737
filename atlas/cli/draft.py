"""`atlas draft`: the skeleton of a declaration, for who describes an architecture that nothing describes yet."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from atlas.cli.options import settings, settings_options
from atlas.cli.terminal import require_positions


@click.command("draft")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@settings_options("data_dir")
def command(path: Path, **given: Any) -> None:
    """Print the skeleton of a declaration of the model in PATH, read off its code while it runs.

    PATH is a Hugging Face directory; its config.json is enough. What is printed loads as it is, and is where its author
    begins: atlas draft PATH > atlas/architectures/new.py
    """
    from atlas.runtime.derivation.draft import draft
    from atlas.runtime.hugging_face_directory import undescribed

    chosen = settings(given)
    require_positions()
    # Libraries may speak on stdout, which is a file of code here.
    with contextlib.redirect_stdout(sys.stderr):
        text = draft(undescribed(path, chosen.data_dir))
    click.echo(text, nl=False)
