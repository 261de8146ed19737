"""Work beside a running server, by processes of its own, out of the way: diagrams are drawn ahead, models are checked.

They run `atlas warm` and `atlas check` at the lowest priority once the server is ready, where that has not been done,
and end with it. What they make reaches the pages through the data directory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

from atlas.catalog import Catalog
from atlas.cli.terminal import beside
from atlas.inspection.ledger import Ledger
from atlas.settings import Settings
from atlas.web.drawn_ahead import is_drawn

AFTER = 15.0
"""Seconds after the server is ready: whoever has just started it looks at pages first."""
LOWEST = 19
COMMAND = "from atlas.cli import main; main()"


def rechecks(
    chosen: Settings, catalog: Catalog, ready: Callable[[], bool], after: float = AFTER
) -> AbstractContextManager[None]:
    """While entered, draw and check what has not been, if the settings want that; checks `after` some seconds."""
    if chosen.no_recheck:
        return nullcontext()
    return beside("rechecks", lambda stop: _work(chosen, catalog, ready, after, stop))


def _work(chosen: Settings, catalog: Catalog, ready: Callable[[], bool], after: float, stop: threading.Event) -> None:
    while not ready():
        if stop.wait(0.5):
            return
    if not is_drawn(catalog):
        _run(chosen, ["warm"], stop)
    if stop.wait(after):
        return
    models = Ledger(chosen, catalog).missing()
    if models:
        _run(chosen, ["check", *models], stop)


def _run(chosen: Settings, arguments: list[str], stop: threading.Event) -> None:
    """Run one of our commands until it has ended, or is to stop."""
    weights = [f"{choice.model}={choice.path}" for choice in chosen.checkpoint]
    own = {"ATLAS_DATA_DIR": str(chosen.data_dir), "ATLAS_CHECKPOINT": os.pathsep.join(weights), "ATLAS_THREADS": "1"}
    own |= {"ATLAS_DTYPE": chosen.dtype, "ATLAS_DEVICE": chosen.device}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with suppress(OSError, AttributeError):  # where there are no priorities, it has ours
        os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST)
    while process.poll() is None:
        if stop.wait(0.5):
            process.terminate()
            process.wait()
