"""The web's way to the engine: starts it beside the pages, and says how far it is.

torch takes seconds to import, so the engine's module is imported in a thread of its own; pages are served before.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import generate_latest

from atlas.catalog import Catalog
from atlas.errors import AtlasError, NotReady
from atlas.graph.axes import View
from atlas.settings import Settings
from atlas.web.drawing import preview
from atlas.web.readable import readable

if TYPE_CHECKING:
    from atlas.runtime.distributed.place import Place
    from atlas.runtime.engine import Engine
    from atlas.runtime.references.base import ReferenceRunner

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """How far the start has come: `stage` in words, `progress` between 0 and 1 where it is known."""

    ready: bool
    stage: str
    progress: float | None
    error: AtlasError | None


class Backend:
    """Owns the engine for the time that the server runs. `place` is this process's among those of a split model.

    With `bundles` it shows their runs, and neither fetches nor loads any weights. With `stand_back` pages and answers
    go before passes wherever both want a core.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        place: Place | None = None,
        bundles: tuple[Path, ...] = (),
        *,
        stand_back: bool = False,
    ) -> None:
        self.settings = settings
        self.catalog = catalog
        self.place = place
        self.bundles = bundles
        self.stand_back = stand_back
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
        # What the first pages need comes first: the two together would take turns at one interpreter, and both be late.
        with contextlib.suppress(AtlasError):  # what is amiss, the pages say
            for model in readable(self.catalog):
                preview(model)
        try:
            from atlas.inspection.recorded.engine import OpenEngine
        except ImportError as error:
            log.error("torch cannot be imported: %s", error)
            self._failed = NotReady(f"torch cannot be imported: {error}.", "Install the project's requirements again.")
            return
        with self._lock:
            if self._closed:
                return
            try:
                self._engine = OpenEngine(
                    self.settings,
                    self.catalog,
                    bundles=self.bundles,
                    weights=not self.bundles,
                    place=self.place,
                    stand_back=self.stand_back,
                )
            except AtlasError as error:
                log.error("%s", error)
                self._failed = error
                return
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
        default = self.catalog.default.id
        chosen = bool(self.bundles) or self.place is not None
        return default if self._engine is None or not chosen else self._engine.stand_in(default)

    def has_checkpoint(self, model: str) -> bool:
        """Whether the model runs on weights of its own here."""
        return self._engine is not None and self._engine.has_checkpoint(model)

    def held(self, model: str) -> tuple[str, ...]:
        """How a model's weights are held (number format, device, memory), then what else to know of them."""
        if not self.has_checkpoint(model):
            return ()
        checkpoint = self._shown(model).checkpoint if self.status.ready else None
        return () if checkpoint is None else (checkpoint.words, *checkpoint.warnings)

    def has_chat(self, model: str) -> bool:
        """Whether prompts of a model may be put into a chat template; until that is known, whether they might."""
        if not self.status.ready:
            return True
        return self.has_checkpoint(model) and bool(self._shown(model).checkpoint.tokenizer.chat_template)

    def stand_in(self, model: str) -> str:
        """The model whose values a model's pages show: itself, or one that stands in."""
        return self.live_model if self._engine is None else self._engine.stand_in(model)

    def ranks(self, model: str) -> int:
        """Over how many processes a model is split; 1 where it runs in one."""
        if not self.has_checkpoint(model) or self._engine is None or not self._engine.status.ready:
            return 1
        splitting = self._shown(model).splitting
        return 1 if splitting is None else splitting.world

    def split_axis(self, model: str, node: str) -> str | None:
        """The axis along which a node of a split model is split, if it is."""
        return None if self.ranks(model) == 1 else self.engine().runner(model).split_axis(node)

    def demo_run(self, model: str = "") -> str | None:
        """The id of the demonstration run of a model (by default the default one), once there is one."""
        return None if self._engine is None else self._engine.demonstrations.get(model or self.live_model)

    def recorded(self, model: str, node: str, view: View) -> str:
        """What a recorded run, where only that is shown of a model, does not hold of a node."""
        if not self.bundles or self._engine is None:
            return ""
        from atlas.inspection.recorded.coverage import left_out
        from atlas.inspection.recorded.engine import OpenEngine

        run = self.demo_run(model)
        opened = self._engine.recorded(run) if run is not None and isinstance(self._engine, OpenEngine) else None
        return "" if opened is None else left_out(opened.facts.held, node, view)

    def _shown(self, model: str) -> ReferenceRunner:
        """What knows of a model's weights: its runner, or what was recorded of them."""
        from atlas.inspection.recorded.engine import OpenEngine

        engine = self.engine()
        return engine.shown(model) if isinstance(engine, OpenEngine) else engine.runner(model)

    @property
    def quantization(self) -> str | None:
        """How the stand-in's weights were stored, once they are open."""
        if not self.has_checkpoint(self.live_model):
            return None
        return self._shown(self.live_model).checkpoint.quantization
