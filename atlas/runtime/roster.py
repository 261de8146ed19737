"""Which models can run here: checkpoints opened, reference code built with them, and what could not be opened.

Knows nothing of runs. Filled by the engine's thread; asked from any.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from atlas.catalog import Catalog, Model
from atlas.errors import AtlasError, CheckpointError, NoCheckpoint, NotReady
from atlas.runtime.adoption import adopt
from atlas.runtime.checkpoints import Checkpoint, open_checkpoint
from atlas.runtime.meter import Progress
from atlas.runtime.placement import Placement, chosen_placement
from atlas.runtime.references.base import ReferenceRunner
from atlas.runtime.untrained import untrained
from atlas.runtime.weights import fetch_default
from atlas.settings import Settings

if TYPE_CHECKING:
    from atlas.runtime.distributed.group import Group

log = logging.getLogger(__name__)


@dataclass
class Status:
    """How far the start has come. `progress` is between 0 and 1 where it is known."""

    ready: bool = False
    stage: str = "starting"
    progress: float | None = None
    error: AtlasError | None = None


class Roster:
    """The runners by model, and how far opening them has come. With a `group` each is split over its ranks."""

    def __init__(self, settings: Settings, catalog: Catalog, status: Status, group: Group | None = None) -> None:
        self.settings = settings
        self.catalog = catalog
        self.status = status
        self.group = group
        self._runners: dict[str, ReferenceRunner] = {}
        self._refused: dict[str, AtlasError] = {}

    @property
    def runners(self) -> Mapping[str, ReferenceRunner]:
        """Those that are open."""
        return self._runners

    @property
    def refused(self) -> Mapping[str, AtlasError]:
        """Why those that could not be opened were not."""
        return self._refused

    def load(self) -> None:
        """Open the default checkpoint and the reader's own. One of theirs that cannot be used is kept with its reason.

        Raises what keeps the default from being opened; but where it cannot be split over the group, and another model
        is, that one stands in its place.
        """
        entry = self.catalog.default
        own = {choice.model: choice.path for choice in self.settings.checkpoint}
        path = own.pop(entry.id, None)
        try:
            self._require_splittable(entry.id)
            self._open(entry.id, path or fetch_default(self.settings.data_dir, self.progress))
        except CheckpointError as error:
            if self.group is None or not own:
                raise
            log.warning("%s", error)
            self._refused[entry.id] = error
        for identity, path in own.items():
            try:
                self._open(identity, path)
            except AtlasError as error:
                log.error("%s: %s", path, error)
                self._refused[identity] = error
        if self.settings.untrained:
            self._open_untrained()
        if not self._runners:
            raise next(iter(self._refused.values()))

    def rehearse(self) -> None:
        """Have every model see what it must before its first run. One that cannot be run so is kept with its reason.

        Raises that reason where no model is left.
        """
        for identity, runner in tuple(self._runners.items()):
            try:
                runner.rehearse()
            except CheckpointError as error:
                log.error("%s", error)
                self._refused[identity] = error
                del self._runners[identity]
        if not self._runners:
            raise next(iter(self._refused.values()))

    @property
    def live(self) -> str:
        """The model that stands in for those without weights: the default one if it runs, else the first that does."""
        default = self.catalog.default.id
        return default if default in self._runners else next(iter(self._runners), default)

    def progress(self, stage: str, fraction: float | None) -> None:
        """Say how far it is."""
        self.status.stage, self.status.progress = stage, fraction

    def failed(self, error: AtlasError) -> None:
        """Say why nothing can run."""
        self.status.error, self.status.stage = error, "failed"

    def require_ready(self) -> None:
        """Raises `NotReady` that says how far it is, or why it failed."""
        if isinstance(self.status.error, NotReady):
            raise self.status.error
        if self.status.error is not None:
            raise NotReady(f"No model could be loaded: {self.status.error.detail}", self.status.error.hint)
        if not self.status.ready:
            raise NotReady(f"Not ready yet: {self.status.stage}.", "GET /readyz tells how far it is.")

    def runner(self, model: str) -> ReferenceRunner:
        """Raises `NotReady` while starting, `NotFound` for no model, `NoCheckpoint` for one without weights."""
        self.require_ready()
        runner = self._runners.get(model)
        if runner is None:
            refused = self._refused.get(model)
            if refused is not None:
                raise NoCheckpoint(f"The weights of {model} cannot be used: {refused.detail}", refused.hint)
            live = self.stand_in(model)
            raise NoCheckpoint(
                f"The weights of {self.catalog.entry(model).name} are not here, so it cannot run.",
                f"Use model={live!r}, whose values stand in, or start with --checkpoint {model}=PATH.",
                stand_in=live,
            )
        return runner

    def stand_in(self, model: str) -> str:
        """The model whose values are shown for a model: itself if it runs here, else the default one, or an untrained
        one of the same architecture. Raises `NotFound`.
        """
        wanted = self.catalog.entry(model)
        default = self.catalog.default
        if model in self._runners or wanted.architecture == default.architecture:
            return model if model in self._runners else self.live
        for identity in self._runners:
            other = self.catalog.entry(identity)
            if other.untrained and other.architecture == wanted.architecture:
                return identity
        return self.live

    def _open_untrained(self) -> None:
        """Run each architecture that no opened checkpoint is of, small and with random weights."""
        running = {self.catalog.entry(identity).architecture for identity in self._runners}
        for architecture, declaration in self.catalog.architectures.items():
            if architecture in running or not hasattr(declaration, "SMALL"):
                continue
            model = self.catalog.small(architecture)
            self.progress(f"building {model.name}", None)
            try:
                self._runners[model.id] = self._built(model, untrained(model))
            except AtlasError as error:
                log.error("%s: %s", model.name, error)
                self._refused[model.id] = error
            else:
                self.catalog.add(model.entry)

    def _open(self, identity: str, path: Path) -> None:
        """Open a checkpoint and build the reference with it."""
        self.install(identity, self.opened(identity, path, chosen_placement(self.settings), self.progress))

    def opened(self, identity: str, path: Path, placement: Placement, progress: Progress) -> ReferenceRunner:
        """A runner of a checkpoint, which does not run here yet. Raises `CheckpointError` and what else is wrong."""
        progress(f"opening {path.name}", None)
        if self.group is not None:
            from atlas.runtime.distributed.loading import placed

            self._require_splittable(identity)
            placement = placed(self.group, self.catalog, placement)
        checkpoint = open_checkpoint(path, self.settings.data_dir, progress, self.settings.weights_in_memory, placement)
        model = adopt(self.catalog, identity, checkpoint)
        progress(f"building the reference model of {model.name}", None)
        return self._built(model, checkpoint)

    def _require_splittable(self, identity: str) -> None:
        """Raises `CheckpointError` for a known model that cannot be split over the group, before anything is read."""
        if self.group is not None and identity in self.catalog:
            from atlas.runtime.distributed.loading import require_splittable

            require_splittable(self.catalog[identity], self.group.world)

    def install(self, identity: str, runner: ReferenceRunner) -> None:
        """Let a model run here from now on."""
        self._refused.pop(identity, None)
        self._runners[identity] = runner

    def _built(self, model: Model, checkpoint: Checkpoint) -> ReferenceRunner:
        """The reference with these weights in it, or this process's share of it."""
        if self.group is not None:
            from atlas.runtime.distributed.loading import split

            return split(self.group, model, checkpoint)
        module = import_module(f"atlas.runtime.references.{model.architecture.reference.runner}")
        runner: ReferenceRunner = module.Runner(model, checkpoint)
        return runner
