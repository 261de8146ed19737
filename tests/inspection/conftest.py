"""A model at true size and a prompt's passes, made once, and declarations that are broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from atlas.catalog import Catalog, Model
from atlas.graph.nodes import Architecture
from atlas.inspection.checks import Subject
from atlas.inspection.checks._live import Witness
from atlas.inspection.checks._true_size import Traced, traced
from atlas.runtime.references.base import ReferenceRunner
from atlas.settings import Settings

SMALL = "llama-3.2-1b"
Mutant = Callable[..., Model]


@pytest.fixture(scope="session")
def subject(catalog: Catalog) -> Subject:
    """The smallest model that is checked at true size only."""
    return Subject(catalog[SMALL], catalog, Settings(), lambda _message, _share: None)


@pytest.fixture(scope="session")
def at_true_size(subject: Subject) -> Traced:
    """Its passes."""
    return traced(subject)


@pytest.fixture(scope="session")
def witness(runner: ReferenceRunner) -> Witness:
    """The default model's passes over the prompt of checks."""
    return Witness(runner)


@pytest.fixture(scope="session")
def mutant() -> Mutant:
    """`mutant(model, path, shape=...)`: the model with one node declared otherwise; `change` gets the whole
    architecture instead.
    """

    def make(
        model: Model, path: str = "", change: Callable[[Architecture], Architecture] | None = None, **new: Any
    ) -> Model:
        def declare(config: Any) -> Architecture:
            declared: Architecture = original(config)
            if change is not None:
                return change(declared)
            nodes = tuple(node.model_copy(update=new) if node.path == path else node for node in declared.nodes)
            assert nodes != declared.nodes
            return declared.model_copy(update={"nodes": nodes})

        from atlas.catalog import found_architectures

        original = found_architectures()[model.entry.architecture].declare
        module = ModuleType("mutant")
        module.declare = declare  # type: ignore[attr-defined]
        return Model(model.entry, module, model.store)

    return make


def of(found: Traced, model: Model) -> Traced:
    """The same passes, with another declaration of their model."""
    return replace(found, model=model)
