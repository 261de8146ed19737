"""Checks beside a running server: models that no record speaks of are checked by a process of its own, out of the way.

It runs `atlas check` at the lowest priority once the server is ready, and ends with it. What it finds reaches the pages
through the ledger.
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

AFTER = 15.0
"""Seconds after the server is ready: whoever has just started it looks at pages first."""
LOWEST = 19
COMMAND = "from atlas.cli import main; main()"


def rechecks(
    chosen: Settings, catalog: Catalog, ready: Callable[[], bool], after: float = AFTER
) -> AbstractContextManager[None]:
    """While entered, check what has no record, if the settings want that."""
    if chosen.no_recheck:
        return nullcontext()
    return beside("rechecks", lambda stop: _work(chosen, catalog, ready, after, stop))


def _work(chosen: Settings, catalog: Catalog, ready: Callable[[], bool], after: float, stop: threading.Event) -> None:
    while not ready():
        if stop.wait(0.5):
            return
    if stop.wait(after):
        return
    models = Ledger(chosen, catalog).missing()
    if not models:
        return
    weights = [f"{choice.model}={choice.path}" for choice in chosen.checkpoint]
    own = {"ATLAS_DATA_DIR": str(chosen.data_dir), "ATLAS_CHECKPOINT": os.pathsep.join(weights), "ATLAS_THREADS": "1"}
    own |= {"ATLAS_DTYPE": chosen.dtype, "ATLAS_DEVICE": chosen.device}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "check", *models],
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
