"""What pages of a published site are told of live values: that recorded runs are there, and what of them is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from atlas.catalog import Catalog
from atlas.errors import AtlasError
from atlas.graph.axes import View
from atlas.inspection.recorded.coverage import left_out
from atlas.inspection.recorded.layout import RecordedRun


@dataclass(frozen=True)
class Ready:
    """Everything is there already."""

    ready: bool = True
    stage: str = "ready"
    progress: float | None = None
    error: AtlasError | None = None


class RecordedValues:
    """The recorded runs as `LiveValues`: of each model the first one is shown where the address names none."""

    def __init__(self, catalog: Catalog, runs: tuple[RecordedRun, ...]) -> None:
        """`runs` are not empty."""
        self.catalog = catalog
        self.runs = runs
        shown: dict[str, RecordedRun] = {}
        for run in runs:
            shown.setdefault(run.model, run)
        self.shown: Mapping[str, RecordedRun] = shown

    @property
    def status(self) -> Ready:
        return Ready()

    @property
    def live_model(self) -> str:
        default = self.catalog.default.id
        return default if default in self.shown else next(iter(self.shown))

    @property
    def quantization(self) -> str | None:
        return self.shown[self.live_model].quantization

    def has_checkpoint(self, model: str) -> bool:
        return model in self.shown

    def held(self, model: str) -> tuple[str, ...]:
        return (f"recorded with {self.shown[model].machine}",) if model in self.shown else ()

    def has_chat(self, model: str) -> bool:  # noqa: ARG002 - nothing is run here
        return False

    def stand_in(self, model: str) -> str:
        if model in self.shown:
            return model
        wanted = self.catalog.entry(model).architecture
        alike = [one for one in self.shown if self.catalog.entry(one).architecture == wanted]
        return alike[0] if alike else self.live_model

    def demo_run(self, model: str = "") -> str | None:
        run = self.shown.get(model or self.live_model)
        return None if run is None else run.id

    def recorded(self, model: str, node: str, view: View) -> str:
        run = self.shown.get(model)
        return "" if run is None else left_out(run.held, node, view)

    def start(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing runs."""
