"""An engine that has recorded runs beside those that it can compute, and may have no weights at all.

To whoever asks for a tensor both are the same: a run is found by its id, and a recorded one answers from its file.
Knows nothing of HTTP.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import torch

from atlas.catalog import Catalog, Model
from atlas.errors import AtlasError, Conflict, NoCheckpoint, NotFound, NotRecorded, TooMany
from atlas.graph.axes import View
from atlas.graph.nodes import Parameter
from atlas.inspection.answers import Predictions, TensorSummary
from atlas.inspection.recorded.glances import Glances
from atlas.inspection.recorded.layout import Shelf
from atlas.inspection.recorded.reading import Recorded
from atlas.runtime.captures import Captured, checked
from atlas.runtime.engine import Engine
from atlas.runtime.expressions import is_expression
from atlas.runtime.files import storage_errors
from atlas.runtime.references.base import ReferenceRunner
from atlas.runtime.runs import Run, RunView
from atlas.settings import Settings

log = logging.getLogger(__name__)
FOLDER, SUFFIX = "recorded", ".atlas"
"""Bundles that readers have dropped on the page stay in this folder of the data directory."""
MOST_KEPT = 64


@dataclass(frozen=True)
class _Labels:
    """The tokenizer of a run that is only looked at: it knows labels."""

    recorded: Recorded
    chat_template: str = ""

    def label(self, token: int) -> str:
        return self.recorded.label(token)


@dataclass(frozen=True)
class _Checkpoint:
    """Weights that are not here."""

    tokenizer: _Labels
    sha256: str
    quantization: str | None
    words: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Runner:
    """What stands where a run's runner does: it knows the model and the vocabulary, and computes nothing."""

    model: Model
    checkpoint: _Checkpoint
    splitting: None = None

    @property
    def n_layers(self) -> int:
        return self.model.architecture.sizes["layers"]


class OpenEngine(Engine):
    """Runs of bundles, and, with `weights`, those of the models that run here."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        *,
        bundles: Iterable[Path] = (),
        weights: bool = True,
        **given: Any,
    ) -> None:
        """Raises as `open_bundle` for `bundles`; one in the data directory that cannot be opened is logged."""
        super().__init__(settings, catalog, **given)
        self.weights = weights
        self._recorded: dict[str, tuple[Recorded, Run]] = {}
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="recorded")
        self._kept = settings.data_dir / FOLDER
        for path in bundles:
            self.open_bundle(path)
        for path in sorted(self._kept.glob(f"*{SUFFIX}")):
            try:
                self.open_bundle(path)
            except AtlasError as error:
                log.error("%s", error)

    def open_bundle(self, path: Path) -> RunView:
        """Check a bundle and have its run among the others. Raises `BundleError`, `TooLarge`, `StorageError`."""
        opened = self._checked_bundle(path)
        facts, model = opened.facts, opened.model
        words = f"recorded with {facts.machine}, its weights are not here"
        checkpoint = _Checkpoint(_Labels(opened), facts.checkpoint, facts.quantization, words)
        run = Run(facts.id, opened.request, cast(ReferenceRunner, _Runner(opened.model, checkpoint)))
        run.ids = [token.id for token in facts.tokens]
        run.status = "done"
        with self._lock:
            if opened.carried and model.id not in self.catalog:
                self.catalog.add(model.entry)
            before = self._recorded.get(facts.id)
            self._recorded[facts.id] = (opened, run)
            self.demonstrations.setdefault(model.id, facts.id)
        if before is not None:
            before[0].close()
        return opened.view

    def keep_bundle(self, part: Path) -> RunView:
        """Check a bundle that has been received, and keep it in the data directory.

        Raises as `open_bundle`, and `TooMany` where as many are kept as may be.
        """
        received = self._checked_bundle(part)
        received.close()
        kept = self._kept / f"{received.id}{SUFFIX}"
        if not kept.exists() and len(list(self._kept.glob(f"*{SUFFIX}"))) >= MOST_KEPT:
            raise TooMany(
                f"{MOST_KEPT} bundles are kept here already.",
                f"Remove one with DELETE /api/runs/ID, or its file in {FOLDER} of the data directory.",
                retry_after=3600,
            )
        with storage_errors("keep the bundle", self._kept):
            self._kept.mkdir(parents=True, exist_ok=True)
            part.replace(kept)
        return self.open_bundle(kept)

    def recorded(self, identity: str) -> Recorded | None:
        """A recorded run, where no run that can be computed has that id."""
        found = self._recorded.get(identity)
        if found is None or (self.weights and self.status.ready and self._computable(identity)):
            return None
        return found[0]

    def shown(self, model: str) -> ReferenceRunner:
        """What knows of a model's weights: its runner, or what was recorded of them. Raises as `runner`."""
        recorded = next((run.runner for _, run in self._recorded.values() if run.request.model == model), None)
        return self.runner(model) if recorded is None or super().has_checkpoint(model) else recorded

    # --- as an engine

    def has_checkpoint(self, model: str) -> bool:
        return super().has_checkpoint(model) or self._has_recorded(model)

    def stand_in(self, model: str) -> str:
        if self.weights:
            return model if self._has_recorded(model) else super().stand_in(model)
        wanted = self.catalog.entry(model)
        models = list(dict.fromkeys(opened.model.id for opened, _ in self._recorded.values()))
        alike = [one for one in models if self.catalog.entry(one).architecture == wanted.architecture]
        return next(iter([one for one in models if one == model] or alike or models), self.catalog.default.id)

    def runner(self, model: str) -> ReferenceRunner:
        if not self.weights:
            self.catalog.entry(model)
            raise NoCheckpoint(
                "This server shows recorded runs and has no weights, so nothing can be run here.",
                "Start one that has them with: atlas serve",
            )
        return super().runner(model)

    def run(self, identity: str) -> Run:
        if self.recorded(identity) is not None:
            return self._recorded[identity][1]
        if not self.weights:
            known = ", ".join(sorted(self._recorded)[:5])
            raise NotFound(
                f"There is no run {identity!r} here.", f"Recorded are: {known}." if known else "There is none."
            )
        return super().run(identity)

    def view(self, identity: str) -> RunView:
        recorded = self.recorded(identity)
        return super().view(identity) if recorded is None else recorded.view

    def delete(self, identity: str) -> None:
        recorded = self.recorded(identity)
        if recorded is None:
            super().delete(identity)
            return
        if recorded.bundle.path.parent != self._kept:
            raise Conflict(
                f"The run {identity} is one of a bundle that this server was started with.", "Start it without."
            )
        with storage_errors("remove the bundle", self._kept):
            recorded.bundle.path.unlink(missing_ok=True)
        with self._lock:
            del self._recorded[identity]
            model = recorded.model.id
            if self.demonstrations.get(model) == identity:
                del self.demonstrations[model]
            if recorded.carried and not self.has_checkpoint(model):
                self.catalog.discard(model)
        recorded.close()

    async def watch(self, identity: str) -> AsyncIterator[RunView]:
        recorded = self.recorded(identity)
        if recorded is not None:
            yield recorded.view
            return
        async for view in super().watch(identity):
            yield view

    def request(
        self, identity: str, nodes: Sequence[str], view: str, layer: int | None, step: int | None
    ) -> Future[dict[str, Captured]]:
        recorded = self.recorded(identity)
        if recorded is None:
            return super().request(identity, nodes, view, layer, step)
        return self._readers.submit(self._read, recorded, nodes, view, layer, step)

    async def expressions(
        self, identity: str, view: str, layer: int | None, step: int | None, rank: int | None = None
    ) -> tuple[ReferenceRunner, dict[str, list[torch.Tensor]]]:
        if self.recorded(identity) is not None:
            self._no_expressions()
        return await super().expressions(identity, view, layer, step, rank)

    def close(self, timeout: float | None = None) -> None:
        super().close(timeout)
        self._readers.shutdown()
        with self._lock:
            for opened, _ in self._recorded.values():
                opened.close()

    def _load(self) -> None:
        if self.weights:
            super()._load()
            return
        with self._lock:
            self.status.ready = True
        self._roster.progress("ready", 1.0)

    # --- recorded runs

    def _checked_bundle(self, path: Path) -> Recorded:
        """A bundle, opened. Models that are still to be opened here keep their ids."""
        reserved = {choice.model for choice in self.settings.checkpoint}
        return Recorded(path, self.catalog, self.settings.max_bundle_bytes, reserved)

    def _has_recorded(self, model: str) -> bool:
        return any(opened.model.id == model for opened, _ in self._recorded.values())

    def _computable(self, identity: str) -> bool:
        with contextlib.suppress(AtlasError):
            super().run(identity)
            return True
        return False

    def _no_expressions(self) -> NoReturn:
        raise NotRecorded(
            "A recorded run says of an expression what it gave at a glance, and does not hold all its numbers.",
            "Run it where the weights are.",
        )

    def _read(
        self, recorded: Recorded, nodes: Sequence[str], view: str, layer: int | None, step: int | None
    ) -> dict[str, Captured]:
        """Tensors of one pass; those that it does not compute are left out if others were asked with them."""
        if any(is_expression(node) for node in nodes):
            self._no_expressions()
        wanted = checked(self._recorded[recorded.id][1], nodes, view, layer, step)
        found = {}
        for node, at in wanted.nodes:
            shelf = shelf_of_node(recorded.model, node, wanted.view)
            try:
                captured = recorded.captured(node, shelf, at, wanted.step if shelf == "decode" else None)
            except NotRecorded:
                if wanted.alone or recorded.covered(node, shelf) is not None:
                    raise
                continue  # this pass does not compute it
            found[node] = captured
        return found


def shelf_of_node(model: Model, node: str, view: View) -> Shelf:
    """Where a node's tensors stand in a view; a parameter has none."""
    return "parameter" if isinstance(model.graph[node].node, Parameter) else view


def recorded_summary(
    engine: Engine, run: str, node: str, view: View, layer: int | None, step: int | None
) -> TensorSummary | None:
    """A tensor as a whole, as it was checked when its run was recorded; None for a run that is computed here.

    Raises `NotRecorded`.
    """
    recorded = engine.recorded(run) if isinstance(engine, OpenEngine) else None
    if recorded is None or is_expression(node):
        return None
    content = recorded.answer("summary", node, shelf_of_node(recorded.model, node, view), layer, step)
    return None if content is None else TensorSummary.model_validate_json(content)


def recorded_predictions(
    engine: Engine, run: str, node: str, view: View, layer: int | None, step: int | None
) -> Predictions | None:
    """What every position said when the run was recorded; None for a run that is computed here."""
    recorded = engine.recorded(run) if isinstance(engine, OpenEngine) else None
    if recorded is None:
        return None
    content = recorded.answer("predictions", node, shelf_of_node(recorded.model, node, view), layer, step)
    return None if content is None else Predictions.model_validate_json(content)


def recorded_glances(engine: Engine, run: str, view: View, layer: int | None, step: int | None) -> Glances | None:
    """What expressions gave when the run was recorded; None for a run that is computed here. Raises `NotRecorded`."""
    recorded = engine.recorded(run) if isinstance(engine, OpenEngine) else None
    if recorded is None:
        return None
    return recorded.glances(view, layer, (step or 1) if view == "decode" else None)
