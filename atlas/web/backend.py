"""The web's way to the engine: starts it beside the pages, and says how far it is.

torch takes seconds to import, so the engine's module is imported in a thread of its own; pages are served before.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import generate_latest

from atlas.catalog import Catalog
from atlas.errors import AtlasError, NotReady
from atlas.graph.axes import View
from atlas.settings import Settings

if TYPE_CHECKING:
    from atlas.runtime.distributed.place import Place
    from atlas.runtime.engine import Engine

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """How far the start has come: `stage` in words, `progress` between 0 and 1 where it is known."""

    ready: bool
    stage: str
    progress: float | None
    error: AtlasError | None


class Backend:
    """Owns the engine for the time that the server runs. `place` is this process's among those of a split model."""

    def __init__(self, settings: Settings, catalog: Catalog, place: Place | None = None) -> None:
        self.settings = settings
        self.catalog = catalog
        self.place = place
        self._engine: Engine | None = None
        self._failed: AtlasError | None = None
        self._closed = False
        self._lock = threading.Lock()

    def start(self) -> None:
        """Load the engine in the background."""
        threading.Thread(target=self._load, name="engine-loader", daemon=True).start()

    def drain(self) -> None:
        """Take no new work, and end what follows runs; `close` then waits for what is under way."""
        with self._lock:
            self._closed = True
            engine = self._engine
        if engine is not None:
            engine.drain()

    def metrics(self) -> bytes:
        """The engine's numbers, in Prometheus' format; none before there is one."""
        return b"" if self._engine is None else generate_latest(self._engine.tallies.registry)

    def close(self) -> None:
        """Stop the engine, if it has been started."""
        with self._lock:
            self._closed = True
            engine = self._engine
        if engine is not None:
            engine.close()

    def _load(self) -> None:
        try:
            from atlas.runtime.engine import Engine
        except ImportError as error:
            log.error("torch cannot be imported: %s", error)
            self._failed = NotReady(f"torch cannot be imported: {error}.", "Install the project's requirements again.")
            return
        with self._lock:
            if self._closed:
                return
            self._engine = Engine(self.settings, self.catalog, place=self.place)
            self._engine.start()

    @property
    def lost(self) -> bool:
        """Whether a model that was split over several ranks cannot run any more."""
        return self._engine is not None and self._engine.lost.is_set()

    @property
    def status(self) -> Progress:
        """How far the start has come."""
        if self._failed is not None:
            return Progress(False, "failed", None, self._failed)
        if self._engine is None:
            return Progress(False, "importing torch", None, None)
        status = self._engine.status
        return Progress(status.ready, status.stage, status.progress, status.error)

    def engine(self) -> Engine:
        """The engine. Raises `NotReady` until it is there; it may still be loading weights."""
        if self._engine is None:
            status = self.status
            if status.error is not None:
                raise NotReady(status.error.detail, status.error.hint)
            raise NotReady(f"Not ready yet: {status.stage}.", "GET /readyz tells how far it is.")
        return self._engine

    @property
    def live_model(self) -> str:
        """The model whose values stand in for models without weights."""
        return self.catalog.default.id

    def has_checkpoint(self, model: str) -> bool:
        """Whether the model runs on weights of its own here."""
        return self._engine is not None and self._engine.has_checkpoint(model)

    def held(self, model: str) -> tuple[str, ...]:
        """How a model's weights are held (number format, device, memory), then what else to know of them."""
        if not self.has_checkpoint(model):
            return ()
        checkpoint = self.engine().runner(model).checkpoint if self.status.ready else None
        return () if checkpoint is None else (checkpoint.words, *checkpoint.warnings)

    def stand_in(self, model: str) -> str:
        """The model whose values a model's pages show: itself, or one that stands in."""
        return self.live_model if self._engine is None else self._engine.stand_in(model)

    def ranks(self, model: str) -> int:
        """Over how many processes a model is split; 1 where it runs in one."""
        if not self.has_checkpoint(model) or self._engine is None or not self._engine.status.ready:
            return 1
        splitting = self._engine.runner(model).splitting
        return 1 if splitting is None else splitting.world

    def demo_run(self, model: str = "") -> str | None:
        """The id of the demonstration run of a model (by default the default one), once there is one."""
        return None if self._engine is None else self._engine.demonstrations.get(model or self.live_model)

    def recorded(self, model: str, node: str, view: View) -> str:  # noqa: ARG002
        """What a recorded run, where only that is shown of a model, does not hold of a node."""
        return ""

    @property
    def quantization(self) -> str | None:
        """How the stand-in's weights were stored, once they are open."""
        if not self.has_checkpoint(self.live_model):
            return None
        return self.engine().runner(self.live_model).checkpoint.quantization
