"""What pages ask of the thing that runs models: whether it is ready, which model it runs, which runs it has.

The face only. It lets pages be served before anything that computes is loaded, and without it.
"""

from __future__ import annotations

from typing import Protocol

from atlas.catalog import Catalog, Model
from atlas.errors import AtlasError
from atlas.graph.axes import View
from atlas.graph.nodes import Quantity
from atlas.web.pieces import LiveAxis, LiveContext
from atlas.web.ranks import split_of
from atlas.web.stand_in import missing_reason, shown_tensor, stand_in
from atlas.web.state import State


class Status(Protocol):
    """How far the start has come. `progress` is a share from 0 to 1, None where unknown."""

    @property
    def ready(self) -> bool: ...
    @property
    def stage(self) -> str: ...
    @property
    def progress(self) -> float | None: ...
    @property
    def error(self) -> AtlasError | None: ...


class LiveValues(Protocol):
    """The backend as pages see it. `start` returns at once; `close` waits."""

    @property
    def status(self) -> Status: ...
    @property
    def live_model(self) -> str: ...
    @property
    def quantization(self) -> str | None: ...
    def has_checkpoint(self, model: str) -> bool: ...
    def held(self, model: str) -> tuple[str, ...]: ...
    def has_chat(self, model: str) -> bool: ...
    def stand_in(self, model: str) -> str: ...
    def demo_run(self, model: str = "") -> str | None: ...
    def recorded(self, model: str, node: str, view: View) -> str: ...
    def start(self) -> None: ...
    def close(self) -> None: ...


def live_model(catalog: Catalog, backend: LiveValues | None, model: str) -> Model | None:
    """The model whose numbers a model's pages show: itself, the one that stands in, or none."""
    if backend is None:
        return None
    return catalog[backend.stand_in(model)]


def live_context(catalog: Catalog, backend: LiveValues | None, model: Model, path: str, state: State) -> LiveContext:
    """All that the live panel of a page is told. `path` is '' on a model's page."""
    live = live_model(catalog, backend, model.id)
    shown = model.graph[shown_tensor(model, path)]
    why = ""
    if live is None:
        why = "This server runs no model, so there are no live values. Start it with: atlas serve"
    else:
        why = missing_reason(model, live, shown.path)
        if not why and shown.shape[state.view] is None:
            why = f"{shown.name} is not computed in this view. {getattr(shown.node, 'absent', '')}".strip()
    status = backend.status if backend is not None else None
    failed = status.error if status is not None else None
    return LiveContext(
        model=model.id,
        model_name=model.name,
        live_model=live.id if live is not None else "",
        live_name=live.name if live is not None else "",
        stand_in=(
            stand_in(model, live, backend.quantization if live.id == backend.live_model else None)
            if live is not None and backend is not None and live.id != model.id
            else None
        ),
        held=backend.held(live.id) if backend is not None and live is not None else (),
        chat=backend.has_chat(live.id) if backend is not None and live is not None else False,
        node=path,
        shown=shown.path,
        shown_name=shown.name,
        kind=shown.kind,
        axes=tuple(
            LiveAxis(extent.axis, extent.symbol, extent.size, extent.words)
            for extent in (shown.shape[state.view] or ())
            if isinstance(shown.node, Quantity)
        ),
        view=state.view,
        layer=state.layer,
        step=state.step,
        head=state.head,
        run=state.run,
        demo_run=backend.demo_run(live.id) if backend is not None and live is not None else None,
        layers=live.architecture.sizes["layers"] if live is not None else 0,
        in_blocks=shown.in_blocks,
        exists=not why,
        why_not=why,
        ready=status.ready if status is not None else False,
        stage=status.stage if status is not None else "",
        progress=status.progress if status is not None else None,
        failed=str(failed) if failed is not None else "",
        split=split_of(backend, live, shown.path, state) if live is not None else None,
        recorded=backend.recorded(live.id, shown.path, state.view) if backend and live is not None and not why else "",
    )
