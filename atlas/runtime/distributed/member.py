"""A rank that does not serve: it meets the others, loads its share, and follows rank 0 until that ends.

It lives as long as rank 0: signals that a launcher sends to all are left to rank 0 for a while, so that what is under
way can end in good order.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import torch

from atlas.catalog import Catalog
from atlas.errors import AtlasError
from atlas.runtime.distributed.facts import facts
from atlas.runtime.distributed.follower import Follower
from atlas.runtime.distributed.group import Group, join
from atlas.runtime.distributed.place import Place
from atlas.runtime.meter import Progress
from atlas.runtime.placement import chosen_placement
from atlas.runtime.roster import Roster, Status
from atlas.settings import Settings

log = logging.getLogger(__name__)
GRACE = 10.0
"""Seconds beyond rank 0's own in which it may tell this rank to close, after a signal."""
UNFIT = 2


def gather_together(place: Place, settings: Settings, catalog: Catalog, progress: Progress | None = None) -> Group:
    """Meet the others, and see that all were started alike. Raises `RanksDiffer`, `EnvironmentUnfit`, `GroupLost`."""
    group = join(place, settings.rank_seconds, progress)
    group.agree("start", facts(settings, catalog), progress)
    group.connect(chosen_placement(settings).device)
    return group


def load_together(group: Group, roster: Roster) -> None:
    """Open all models, each its share, see that all ranks have the same weights, and rehearse. Raises as `Roster.load`.

    Until the weights are compared no rank waits for another within a pass: one may take minutes longer to read them.
    """
    roster.load()
    opened = {
        f"the weights of {model}": f"sha256 {runner.checkpoint.sha256[:16]}" for model, runner in roster.runners.items()
    }
    group.agree("weights", opened, roster.progress)
    roster.rehearse()


def run_member(place: Place, settings: Settings, catalog: Catalog, say: Callable[[str], None]) -> int:
    """Follow rank 0; the exit code. `say` tells the person at the terminal."""
    ended: list[int] = []
    groups: list[Group] = []

    def work() -> None:
        try:
            if settings.threads:
                torch.set_num_threads(settings.threads)
            group = gather_together(place, settings, catalog)
            groups.append(group)
            group.liveness.tell(lambda lost: _leave_at_once(group, str(lost), say))
            roster = Roster(settings, catalog, Status(), group)
            load_together(group, roster)
            Follower(group, roster.runners).follow()
            group.close()
            ended.append(0)
        except AtlasError as error:
            for group in groups:
                group.liveness.leave(str(error))
            say(f"Rank {place.rank}: {error}")
            ended.append(UNFIT)
        except Exception as error:  # whatever it is, the others must not wait for this rank
            log.exception("Rank %d failed", place.rank)
            for group in groups:
                group.liveness.leave(f"it failed: {error!r}.")
            ended.append(UNFIT)

    signalled: list[float] = []
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: signalled.append(time.monotonic()))
    thread = threading.Thread(target=work, name="rank", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
        if signalled and time.monotonic() > signalled[0] + settings.drain_seconds + GRACE:
            for group in groups:
                group.liveness.leave("it was told to stop.")
            return UNFIT
        if signalled and not groups:
            return UNFIT  # it has not met the others yet
    return ended[0] if ended else UNFIT


def _leave_at_once(group: Group, why: str, say: Callable[[str], None]) -> None:
    """End this process: its thread may be waiting for a rank that will never answer."""
    group.liveness.leave(why)
    say(f"Rank {group.rank}: {why}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(UNFIT)
