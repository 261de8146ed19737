"""Real numbers for checks: one prompt taken through all passes of a model, everything that they compute recorded.

A model whose weights are not here is spoken for by another of the same architecture: the default model, or the small
untrained one that the declaration describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module

import torch

from atlas.catalog import Catalog, Model
from atlas.errors import NotFound
from atlas.graph.axes import View
from atlas.graph.nodes import Parameter, Tensor
from atlas.inspection.checks import Progress, Subject
from atlas.inspection.frames import Pass as Facts
from atlas.inspection.frames import pass_of
from atlas.runtime.adoption import adopt
from atlas.runtime.captures import Captured
from atlas.runtime.checkpoints import Checkpoint, open_checkpoint
from atlas.runtime.placement import chosen_placement
from atlas.runtime.recorder import Recording, Site
from atlas.runtime.references.base import Memory, Pass, ReferenceRunner
from atlas.runtime.untrained import untrained
from atlas.runtime.weights import fetch_default
from atlas.settings import Settings

PROMPT = "The capital of France is"
STEPS = 3
KEPT_WIDE = 4
"""Parameters in float64 that are kept."""


@dataclass(frozen=True)
class Taken:
    """One recorded pass of the prompt."""

    view: View
    step: int | None
    work: Pass
    logits: torch.Tensor
    recording: Recording

    @property
    def words(self) -> str:
        """`decode step 2`."""
        return self.view if self.step is None else f"{self.view} step {self.step}"


class Witness:
    """A runner, and the prompt's passes through it, taken when they are first asked for."""

    def __init__(self, runner: ReferenceRunner) -> None:
        self.runner = runner
        self.model = runner.model
        self._wide: dict[str, torch.Tensor] = {}

    @cached_property
    def prompt(self) -> tuple[int, ...]:
        """The prompt's tokens."""
        return tuple(self.runner.checkpoint.tokenizer.encode(PROMPT))

    @cached_property
    def _run(self) -> tuple[tuple[Taken, ...], Memory]:
        memory = self.runner.memory(len(self.prompt) + STEPS)
        work, found = Pass(self.prompt, 0), list[Taken]()
        for step in range(1 + STEPS):
            logits, recording = self.runner.capture(work, memory, self._sites)
            found.append(Taken("decode" if step else "prefill", step or None, work, logits, recording))
            work = Pass((int(logits[0, -1].argmax()),), work.stop)
        return tuple(found), memory

    @property
    def memory(self) -> Memory:
        """What the run keeps, after prefill and all decode steps."""
        return self._run[1]

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """All tokens that were computed."""
        return tuple(token for taken in self._run[0] for token in taken.work.tokens)

    @cached_property
    def passes(self) -> tuple[Taken, ...]:
        """Prefill, decode steps, and full sequence, in this order."""
        work = Pass(self.tokens, 0)
        logits, recording = self.runner.capture(work, self.runner.memory(work.stop, cache=False), self._sites)
        return (*self._run[0], Taken("full", None, work, logits, recording))

    @property
    def _sites(self) -> list[Site]:
        return self.runner.sites(self.runner.captured_nodes())

    def _weight(self, name: str) -> torch.Tensor:
        """A parameter in float64, kept for the next passes of the same layer: turning it takes longer than using it."""
        if name not in self._wide:
            while len(self._wide) >= KEPT_WIDE:
                del self._wide[next(iter(self._wide))]
            self._wide[name] = self.runner.weight(name).double()
        return self._wide[name]

    def facts(self, taken: Taken, layer: int | None) -> Facts:
        """One pass as one layer sees it."""
        window = self.model.graph.window(layer)
        return pass_of(taken.view, taken.step, len(self.prompt), len(self.tokens), layer, window)

    def value(self, taken: Taken, path: str, layer: int | None) -> Captured | None:
        """The value of a node in one pass and layer; None where the pass did not compute it."""
        resolved = self.model.graph[path]
        node = resolved.node
        at = layer if resolved.in_blocks else None
        if isinstance(node, Parameter):
            return Captured(path, None, at, None, self._weight(node.weight.format(layer=at)), node.shape)
        assert isinstance(node, Tensor)
        recording = self.runner.built if node.when == "build" else taken.recording
        value = recording.last(path, at)
        return None if value is None else Captured(path, taken.view, at, taken.step, value.detach(), node.shape)


@dataclass(frozen=True)
class Live:
    """Whose numbers speak for a model: its own, or those of another."""

    witness: Witness
    stands_in: bool

    @property
    def subject(self) -> str:
        """Whose numbers they are."""
        words = f"the weights of {self.witness.model.name}"
        return f"{words}, which stand in" if self.stands_in else words


def live(subject: Subject) -> Live | None:
    """The model itself if its weights are here, else one that stands in; None if there is none.

    Raises `CheckpointError`, `SourceError` and `FetchError`.
    """
    model, catalog = subject.model, subject.catalog
    own = {choice.model for choice in subject.settings.checkpoint} | {catalog.default.id}
    if model.id in own:
        return Live(_witness(subject, model), stands_in=False)
    if model.entry.architecture == catalog.default.architecture:
        return Live(_witness(subject, catalog[catalog.default.id]), stands_in=True)
    try:
        small = catalog.small(model.entry.architecture)
    except NotFound:
        return None
    return Live(_witness(subject, small), stands_in=True)


def open_own(
    catalog: Catalog, settings: Settings, identity: str, progress: Progress, shared: dict[str, object]
) -> Witness:
    """A model whose weights are here, with its runner; a new id joins the catalogue. Kept in `shared`.

    Raises `CheckpointError`, `SourceError` and `FetchError`.
    """
    data_dir = settings.data_dir
    paths = {choice.model: choice.path for choice in settings.checkpoint}
    path = paths.get(identity) or fetch_default(data_dir, progress)
    checkpoint = open_checkpoint(path, data_dir, progress, placement=chosen_placement(settings))
    return _kept(adopt(catalog, identity, checkpoint), checkpoint, shared)


def _kept(model: Model, checkpoint: Checkpoint, shared: dict[str, object]) -> Witness:
    module = import_module(f"atlas.runtime.references.{model.architecture.reference.runner}")
    made = Witness(module.Runner(model, checkpoint))
    shared[f"witness: {model.id}"] = made
    return made


def _witness(subject: Subject, model: Model) -> Witness:
    """Made once for all checks and models."""
    kept = subject.shared.get(f"witness: {model.id}")
    if isinstance(kept, Witness):
        return kept
    own = {choice.model for choice in subject.settings.checkpoint} | {subject.catalog.default.id}
    if model.id in own:
        return open_own(subject.catalog, subject.settings, model.id, subject.progress, subject.shared)
    return _kept(model, untrained(model), subject.shared)
