"""Checks: everything that a page says is compared with the thing itself, one module for each kind of comparison.

Nothing is registered by hand: a module of this package that has `check` is a check. It gives

    KIND     which kind of results it gives (`atlas.inspection.checks.result.Kind`)
    ORDER    its place among the others, cheap ones first
    check    a generator of `Result`s for one `Subject`

A check that meets an `AtlasError` in the thing that it looks at gives a failed result and goes on; one that escapes
it fails the check as a whole, and the others still run.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType

from atlas.catalog import Catalog, Model
from atlas.errors import AtlasError
from atlas.inspection.checks.result import Kind, ModelReport, Result
from atlas.settings import Settings

Progress = Callable[[str, float | None], None]


@dataclass
class Subject:
    """What a check is given: a model, and what checks of all models share.

    `shared` holds what is costly to make and may be used again by other checks and models, under a name of its own.
    """

    model: Model
    catalog: Catalog
    settings: Settings
    progress: Progress
    shared: dict[str, object] = field(default_factory=dict)


def found_checks(kinds: Iterable[Kind] | None = None) -> list[ModuleType]:
    """The modules that check, in order; of these kinds, or all."""
    modules = [
        importlib.import_module(f"{__name__}.{info.name}")
        for info in pkgutil.iter_modules(__path__)
        if not info.name.startswith("_")
    ]
    wanted = None if kinds is None else set(kinds)
    checks = [module for module in modules if hasattr(module, "check")]
    return sorted((m for m in checks if wanted is None or m.KIND in wanted), key=lambda m: (m.ORDER, m.__name__))


def run_checks(
    catalog: Catalog,
    settings: Settings,
    models: Iterable[str],
    progress: Progress | None = None,
    kinds: Iterable[Kind] | None = None,
) -> Iterator[ModelReport]:
    """A report for each model, as it is done. Raises `NotFound` for an unknown one before any is checked.

    `progress` is told what is being checked, and the share of all that is done.
    """
    tell = progress or (lambda _message, _share: None)
    checks, shared = found_checks(kinds), dict[str, object]()
    wanted = tuple(models)
    _open_own(catalog, settings, wanted, tell, shared)
    chosen = [catalog.entry(model) for model in wanted]
    for place, entry in enumerate(chosen):
        began, results = time.perf_counter(), list[Result]()
        tell(f"{entry.name}: declaration", place / len(chosen))
        try:
            model = catalog[entry.id]
        except AtlasError as error:  # without a declaration there is nothing to compare with anything
            results.append(_failure("sources", f"the declaration of {entry.name}", entry.name, error))
            checks_of_it = []
        else:
            checks_of_it = checks
        for index, module in enumerate(checks_of_it):
            share = (place + index / len(checks)) / len(chosen)
            tell(f"{entry.name}: {module.KIND}", share)
            subject = Subject(model, catalog, settings, _within(tell, share), shared)
            try:
                results.extend(module.check(subject))
            except AtlasError as error:
                results.append(_failure(module.KIND, f"{module.KIND} of {entry.name}", entry.name, error))
        yield ModelReport(
            model=entry.id, name=entry.name, results=tuple(results), seconds=round(time.perf_counter() - began, 3)
        )


def _open_own(
    catalog: Catalog, settings: Settings, models: Iterable[str], tell: Progress, shared: dict[str, object]
) -> None:
    """Add the reader's own models that are wanted: a new id is known by its checkpoint alone."""
    from atlas.inspection.checks._live import open_own

    for choice in settings.checkpoint:
        if choice.model in models and choice.model not in catalog:
            open_own(catalog, settings, choice.model, tell, shared)


def _within(tell: Progress, share: float) -> Progress:
    """A check's own steps, told at the share of the whole where the check stands."""
    return lambda message, _share: tell(message, share)


def _failure(kind: Kind, what: str, subject: str, error: AtlasError) -> Result:
    return Result(kind=kind, status="failed", what=what, subject=subject, detail=error.detail, hint=error.hint)
