"""Checkpoints that come while the engine runs: each is opened beside it, and joins the others when it is whole.

Opened in a thread of their own, one after another: runs go on meanwhile. Knows nothing of runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

from atlas.errors import AtlasError, BadRequest, Conflict
from atlas.runtime.hub import is_hub_id
from atlas.runtime.placement import Placement, chosen_placement
from atlas.runtime.roster import Roster
from atlas.settings import CheckpointChoice

Stage = Literal["opening", "ready", "refused"]
KEPT = 200
"""Arrivals that are remembered."""


@dataclass
class Arrival:
    """One checkpoint: how far it has come, how its weights are held once it is ready, or why it is refused.

    `progress` is between 0 and 1 where it is known. `notes` are what else to know of the weights.
    """

    model: str
    file: str
    status: Stage
    placement: Placement
    stage: str = ""
    progress: float | None = None
    architecture: str = ""
    held: str = ""
    notes: tuple[str, ...] = ()
    error: AtlasError | None = field(default=None, repr=False)


class Arrivals:
    """What has come, by model. `lock` is held while one joins the others; `joined` is told when it has."""

    def __init__(self, roster: Roster, lock: AbstractContextManager[object], joined: Callable[[], None]) -> None:
        self._roster = roster
        self._lock = lock
        self._joined = joined
        self._known: dict[str, Arrival] = {}
        self._turn = threading.Lock()

    def add(self, choice: CheckpointChoice, placement: Placement | None = None) -> Arrival:
        """Begin to open a checkpoint; by default placed as the settings say.

        Raises `NotReady` while starting, `BadRequest` for a path that is not there, `Conflict` where the model has
        weights already, is being opened, or models are split over several processes.
        """
        roster = self._roster
        roster.require_ready()
        if roster.group is not None:
            raise Conflict(
                "Models are split over several processes here, and none can join while they serve.",
                "Start again with --checkpoint.",
            )
        if not choice.path.exists() and not is_hub_id(choice.path):
            raise BadRequest(f"There is no {str(choice.path)!r} where the server runs.", "Give a path of that machine.")
        placement = placement or chosen_placement(roster.settings)
        with self._lock:
            known = self._known.get(choice.model)
            if choice.model in roster.runners:
                raise Conflict(
                    f"{choice.model} runs on weights of its own here already.",
                    f"Give it another id: atlas add NEW={choice.path}",
                )
            if known is not None and known.status == "opening":
                raise Conflict(f"{choice.model} is being opened: {known.stage}.", "Wait until it is ready or refused.")
            arrival = Arrival(choice.model, choice.path.name, "opening", placement, stage="waiting for its turn")
            self._known.pop(choice.model, None)
            self._known[choice.model] = arrival
            while len(self._known) > KEPT:
                del self._known[next(iter(self._known))]
        threading.Thread(target=self._open, args=(arrival, choice), name="arrival", daemon=True).start()
        return arrival

    def all(self) -> list[Arrival]:
        """Every checkpoint that runs here, is being opened, or was refused; by model."""
        with self._lock:
            found = {identity: self._running(identity) for identity in self._roster.runners}
            for identity, error in self._roster.refused.items():
                path = next((one.path for one in self._roster.settings.checkpoint if one.model == identity), None)
                placement = chosen_placement(self._roster.settings)
                found[identity] = Arrival(identity, path.name if path else "", "refused", placement, error=error)
            for arrival in self._known.values():
                if arrival.model not in self._roster.runners:
                    found[arrival.model] = arrival
        return [found[identity] for identity in sorted(found)]

    def _running(self, identity: str) -> Arrival:
        checkpoint = self._roster.runners[identity].checkpoint
        return Arrival(
            identity,
            checkpoint.path.name,
            "ready",
            checkpoint.placement,
            stage="ready",
            progress=1.0,
            architecture=checkpoint.architecture,
            held=checkpoint.words,
            notes=checkpoint.warnings,
        )

    def _open(self, arrival: Arrival, choice: CheckpointChoice) -> None:
        def tell(stage: str, share: float | None) -> None:
            arrival.stage, arrival.progress = stage, share

        is_new = choice.model not in self._roster.catalog
        try:
            with self._turn:
                runner = self._roster.opened(choice.model, choice.path, arrival.placement, tell)
            with self._lock:
                self._roster.install(choice.model, runner)
                arrival.stage, arrival.status = "ready", "ready"
                self._joined()
        except AtlasError as error:
            arrival.error = error
        finally:
            if arrival.status != "ready":  # whatever went wrong, nobody waits for it any more
                if is_new:
                    self._roster.catalog.discard(choice.model)
                fault = AtlasError(f"{choice.path} could not be opened.", "See the server's log.")
                arrival.error = arrival.error or fault
                arrival.stage, arrival.status = "refused", "refused"
