"""`atlas serve` as one of several processes: the ranks that do not serve, and how rank 0 ends when one is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import click

from atlas.cli import FAILED, logs
from atlas.cli.terminal import beside, note
from atlas.errors import AtlasError, EnvironmentUnfit
from atlas.graph.axes import VIEWS
from atlas.runtime.distributed.place import Place
from atlas.settings import Settings

if TYPE_CHECKING:
    import uvicorn

    from atlas.catalog import Model

NOTICING = 0.6
"""Seconds in which a rank that ended is noticed: a launcher tells the others to end at the same moment."""


class _Status(Protocol):
    @property
    def error(self) -> AtlasError | None: ...


class Losing(Protocol):
    """What can lose a rank: the web's backend."""

    @property
    def lost(self) -> bool: ...
    @property
    def status(self) -> _Status: ...


def follow(chosen: Settings, place: Place) -> int:
    """Do as rank 0 says until it ends; the exit code. Raises `DeclarationError`."""
    from atlas.catalog import open_catalog
    from atlas.runtime.distributed.member import run_member

    logs.set_up(chosen.log_level, chosen.log_format)
    return run_member(place, chosen, open_catalog(chosen.data_dir), note)


def require_alone(place: Place | None) -> None:
    """Raises `EnvironmentUnfit` where recorded runs are to be served by several processes."""
    if place is not None:
        raise EnvironmentUnfit(
            f"Recorded runs are not computed, so they are not split over {place.world} ranks.",
            "Serve them from one process: atlas serve BUNDLE.atlas",
        )


def check_shares(models: Sequence[Model], world: int) -> int:
    """Simulate every rank of these models split over so many, and say what is not as declared; the exit code.

    Raises `CheckpointError` where a model cannot be split so.
    """
    from atlas.runtime.distributed.simulated import faults, simulated

    wrong = []
    for model in models:
        note(f"{model.name}: simulating {world} ranks")
        for rank, found in simulated(model, world, range(world)).items():
            said = faults(model, world, rank, found)
            nodes = sum(len(found[part]) for part in ("parameters", *VIEWS))
            click.echo("\n".join(said or [f"{model.name}, rank {rank} of {world}: {nodes} shapes, as declared"]))
            wrong += said
    return FAILED if wrong else 0


async def linger(backend: Losing, seconds: float) -> None:
    """Where a rank is lost, go on telling readers so for a while: the launcher may be starting all of them again."""
    for _ in range(10):
        if backend.lost:
            await asyncio.sleep(seconds)
            return
        await asyncio.sleep(NOTICING / 10)


def ending(server: uvicorn.Server, backend: Losing, place: Place, seconds: float) -> AbstractContextManager[None]:
    """While entered, stop the server where it can do no more: the start failed, or the launcher starts all again."""
    from atlas.errors import NotReady

    def watch(over: threading.Event) -> None:
        while not over.wait(0.1):
            if not backend.lost:
                continue
            started = isinstance(backend.status.error, NotReady)
            if started and not place.restarts:
                return  # pages go on, and say what is lost, until somebody stops the server
            over.wait(seconds if started else 0)
            server.should_exit = True
            return

    return beside("ranks", watch)
