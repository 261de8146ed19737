"""The catalogue: every model and architecture that exists, found by looking, with citations resolved on demand.

Nothing is registered by hand: a module in `atlas/architectures` that has `declare` is an architecture, a module
in `atlas/models` that has `MODELS` lists models. A model is resolved when it is first asked for.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import pkgutil
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from types import ModuleType

import atlas.architectures
import atlas.models
from atlas.errors import DeclarationError, NotFound, SourceMismatch, SourceUnavailable
from atlas.graph.anchors import Anchor
from atlas.graph.evidence import Evidence
from atlas.graph.nodes import Architecture, Component, Operation, Parameter, Tensor
from atlas.graph.resolve import Graph
from atlas.models.entry import CitedConfiguration, ModelEntry, StatedConfiguration
from atlas.provenance.citations import Citation, cite, constants, numbers
from atlas.provenance.locks import Lock, Locks
from atlas.provenance.resolution import Module, Place
from atlas.provenance.store import SourceStore
from atlas.render.assets import sources_dir

Config = Mapping[str, int | float | bool | None]


@dataclass(frozen=True)
class Derived:
    """An architecture that was read off a model's code, in the place of a declaration's module: that of the one
    configuration that was seen. `lock` pins the file that was read; `settings` are those of the configuration that
    axes and layers are named after.
    """

    architecture: Architecture
    lock: Lock
    settings: Mapping[str, int | list[str]] = field(default_factory=dict)

    @property
    def ID(self) -> str:  # noqa: N802 - as a declaration's module calls it
        """What it is called."""
        return self.architecture.id

    def declare(self, _: Config) -> Architecture:
        """The architecture, whatever the configuration: a checkpoint brings its own."""
        return self.architecture


Declaration = ModuleType | Derived


class Model:
    """One model of the catalogue: its entry, its configuration, its graph, and its citations."""

    def __init__(self, entry: ModelEntry, declaration: Declaration, store: SourceStore) -> None:
        """Raises `SourceError` where the configuration's file is missing, and `DeclarationError`."""
        self.entry = entry
        self.store = store
        stated = entry.configuration
        self.config: Config = read_configuration(stated, store)
        self.architecture: Architecture = declaration.declare(self.config)
        self.graph = Graph(self.architecture)
        self._evidence: dict[str, tuple[Citation, ...]] = {}

    @property
    def id(self) -> str:
        return self.entry.id

    @property
    def name(self) -> str:
        return self.entry.name

    @cached_property
    def configuration(self) -> Citation:
        """Where the configuration stands."""
        stated = self.entry.configuration
        if isinstance(stated, StatedConfiguration):
            return Citation(
                id="config",
                kind="contextual",
                claim=stated.claim,
                repository=stated.repository,
                revision=stated.revision,
                path=stated.path,
                url=stated.url,
                sha256=stated.sha256,
                license=stated.license,
                license_url=stated.license_url,
                lines=(),
                links=(),
                available=True,
            )
        return cite(
            Evidence(id="config", kind="contextual", claim=stated.claim, file=stated.file, anchors=stated.shown),
            self.store,
        )

    def evidence(self, path: str) -> tuple[Citation, ...]:
        """All evidence of a node, its configuration last. Direct evidence first.

        Raises `NotFound` for an unknown node and `AnchorError` for evidence that leads nowhere.
        """
        known = self._evidence.get(path)
        if known is None:
            pieces: dict[str, Evidence] = {piece.id: piece for piece in self.graph[path].node.evidence}
            order = {"direct": 0, "erratum": 1, "contextual": 2}
            cited = sorted((cite(piece, self.store) for piece in pieces.values()), key=lambda c: order[c.kind])
            known = self._evidence[path] = (*cited, self.configuration)
        return known

    @cached_property
    def errata(self) -> tuple[Citation, ...]:
        """Where the sources of this model are wrong."""
        return tuple(cite(piece, self.store) for piece in self.entry.errata)

    @cached_property
    def reference_module(self) -> Module:
        """The syntax of the reference code. Raises `SourceError` where it is missing or another file."""
        return self.store.read(self.architecture.reference.file).module

    def place(self, path: str) -> Place | None:
        """Where a tensor, or the first output of an operation, comes to be in the reference code.

        None where nothing says so, or where the code is not here as it was pinned.
        """
        node = self.graph[path].node
        try:
            module = self.reference_module
        except (SourceMismatch, SourceUnavailable):
            return None
        if isinstance(node, Operation):
            if node.place is not None:
                return module.resolve(node.place)
            node = self.graph[self.graph[path].outputs[0]].node
        if isinstance(node, Tensor):
            return module.watchable(node.hook)
        if isinstance(node, Parameter) and node.built is not None:
            return module.resolve(node.built)
        return None

    def code_name(self, path: str) -> str:
        """What the source calls it: a variable, an expression, or an operator with its operand."""
        node = self.graph[path].node
        if isinstance(node, Component):
            return f"self.{node.module.rsplit('.', 1)[-1]}" if node.module and "{layer}" not in node.module[-7:] else ""
        if isinstance(node, Parameter):
            return f"self.{node.weight.rpartition('{layer}.')[2]}"
        place = self.place(path)
        if place is None:
            return ""
        if isinstance(node, Operation) and isinstance(place.node, ast.BinOp):
            whole = re.sub(r"\s+", " ", place.text)
            left = self.reference_module.segment(place.node.left)
            if len(whole) > 40 and whole.startswith(left):
                return whole[len(left) :].strip()
            return whole
        if isinstance(node, Tensor):
            return _named(node.hook) or re.sub(r"\s+", " ", place.text)
        return re.sub(r"\s+", " ", place.text)


def read_configuration(stated: CitedConfiguration | StatedConfiguration, store: SourceStore) -> Config:
    """The numbers that a model is declared with.

    Raises `SourceError` where the file that has them is missing, and `DeclarationError` where it says something else
    than what is stated here.
    """
    if isinstance(stated, StatedConfiguration):
        return stated.values
    if stated.stated is not None and not store.available(stated.file):
        return stated.stated
    anchors = (stated.values, *stated.also)
    if stated.stated is None and len(anchors) == 1 and store.read(stated.file).module.is_dictionary(stated.values):
        return constants(stated.file, stated.values, store)
    found = {name: value for anchor in anchors for name, value in numbers(stated.file, anchor, store).items()}
    if stated.stated is None:
        return {**found, **stated.corrected}
    for theirs, ours in stated.names.items():
        if found.get(theirs) != stated.stated[ours]:
            raise DeclarationError(
                f"{stated.file} says {theirs} = {found.get(theirs)}, the entry {ours} = {stated.stated[ours]}.",
                "Mend the entry: the file is the pinned one.",
            )
    return stated.stated


def open_store(data_dir: Path) -> SourceStore:
    """The sources of this installation and those fetched into `data_dir`. Raises `AssetMissing`, `DeclarationError`."""
    return SourceStore(Locks.read(sources_dir()), data_dir / "sources")


def open_catalog(data_dir: Path) -> Catalog:
    """All models, with the sources of `open_store`. Raises `AssetMissing` and `DeclarationError`."""
    return Catalog(open_store(data_dir))


class Catalog:
    """All models, in order of rank. Thread-safe."""

    def __init__(self, store: SourceStore, entries: Iterable[ModelEntry] | None = None) -> None:
        self.store = store
        self.architectures: Mapping[str, Declaration] = found_architectures()
        listed = tuple(found_models() if entries is None else entries)
        self._entries = {entry.id: entry for entry in sorted(listed, key=lambda e: (e.rank, e.id))}
        for entry in listed:
            if self._entries[entry.id] is not entry:
                raise DeclarationError(f"Two models have the id {entry.id!r}.", "Rename one.")
        self._models: dict[str, Model] = {}
        self._mutex = threading.RLock()

    def __iter__(self) -> Iterator[ModelEntry]:
        return iter(tuple(self._entries.values()))

    def __contains__(self, model: str) -> bool:
        return model in self._entries

    def __getitem__(self, model: str) -> Model:
        """Raises `NotFound` with the nearest id."""
        entry = self.entry(model)
        with self._mutex:
            if model not in self._models:
                declaration = self.architectures.get(entry.architecture)
                if declaration is None:
                    raise DeclarationError(
                        f"{model} is of the architecture {entry.architecture!r}, which nothing declares.",
                        f"There are {', '.join(sorted(self.architectures))}.",
                    )
                self._models[model] = Model(entry, declaration, self.store)
            return self._models[model]

    def entry(self, model: str) -> ModelEntry:
        """Raises `NotFound` with the nearest id."""
        entry = self._entries.get(model)
        if entry is None:
            near = difflib.get_close_matches(model, self._entries, 1, 0.0)
            hint = f"Did you mean {near[0]!r}?" if near else "GET /api/models lists them."
            raise NotFound(f"There is no model {model!r}.", hint, nearest=near[0] if near else None)
        return entry

    def small(self, architecture: str) -> Model:
        """A model of an architecture at the size that its declaration gives for checks.

        Raises `NotFound` for an architecture that is not there or gives no such size.
        """
        declaration = self.architectures.get(architecture)
        values = getattr(declaration, "SMALL", None)
        if declaration is None or values is None:
            known = sorted(name for name, module in self.architectures.items() if hasattr(module, "SMALL"))
            raise NotFound(
                f"There is no small model of the architecture {architecture!r}.", f"There are {', '.join(known)}."
            )
        entry = ModelEntry(
            id=f"untrained-{architecture.replace('_', '-')}",
            name=f"{declaration.declare(values).name}, small and untrained",
            publisher="OpenModelAtlas",
            released=max((known.released for known in self if known.architecture == architecture), default=date.min),
            architecture=architecture,
            configuration=StatedConfiguration(
                values=values,
                claim="A size for checks, stated in the declaration itself. The weights are random numbers.",
                repository="OpenModelAtlas",
                revision="",
                path=f"atlas/architectures/{architecture}.py",
                url="/how-to-read",
                sha256="",
                license="Apache-2.0",
                license_url="/how-to-read",
            ),
            size="untrained",
            rank=200,
            untrained=True,
            tied_embeddings=bool(values.get("tie_word_embeddings")),
        )
        return Model(entry, declaration, self.store)

    def add(self, entry: ModelEntry) -> None:
        """Add or replace a model, for a reader's own checkpoint."""
        with self._mutex:
            self._models.pop(entry.id, None)
            self._entries[entry.id] = entry

    def discard(self, model: str) -> None:
        """Take a model away again whose checkpoint came to nothing."""
        with self._mutex:
            self._models.pop(model, None)
            self._entries.pop(model, None)

    def derive(self, derived: Derived) -> None:
        """Add a derived architecture, for a reader's own checkpoint."""
        with self._mutex:
            self.store.locks.add(derived.lock)
            self.architectures = {**self.architectures, derived.ID: derived}

    @property
    def default(self) -> ModelEntry:
        """The model whose weights come along."""
        return next(entry for entry in self if entry.default_weights)


def found_architectures() -> dict[str, ModuleType]:
    """Every module of `atlas.architectures` that declares one, by the id it gives itself."""
    found: dict[str, ModuleType] = {}
    for module in _modules(atlas.architectures):
        if not hasattr(module, "declare"):
            continue
        identity = getattr(module, "ID", "")
        if not identity or identity in found:
            what = f"gives itself the id {identity!r}, as another does" if identity else "has no ID"
            raise DeclarationError(f"The architecture {module.__name__} {what}.", "Give it an ID of its own.")
        found[identity] = module
    return found


def found_models() -> list[ModelEntry]:
    """Every model that a module of `atlas.models` lists."""
    return [entry for module in _modules(atlas.models) for entry in getattr(module, "MODELS", ())]


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        if not info.name.startswith("_"):
            yield importlib.import_module(f"{package.__name__}.{info.name}")


def _named(hook: Anchor) -> str:
    last = hook.steps[-1] if hook.steps else None
    return last.name if last is not None and last.kind in ("assigns", "argument") else ""
