"""A model's code seen while it runs: every value that a statement makes, whose module it is of, its shape in each view,
and what it was made of.

The model is built and run at its true size without numbers, so any size fits. What is made of the observations is
not known here.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from atlas.errors import CheckpointError
from atlas.graph.anchors import Anchor, at
from atlas.graph.axes import VIEWS, View
from atlas.runtime.derivation.observation import (
    BLOCK_INPUT,
    LAYER,
    TOKENS,
    Observation,
    Served,
    Value,
    anchored,
    fits,
    generic,
    merged,
    settled,
)
from atlas.runtime.derivation.sizes import CHOSEN
from atlas.runtime.derivation.statements import calls, codes, lengths, statements
from atlas.runtime.flow import Flow, Name
from atlas.runtime.recorder import Recorder, Site
from atlas.runtime.references.blocks import after, before
from atlas.runtime.references.hugging_face import called, constructed, step_cache
from atlas.runtime.references.routing import Routing
from atlas.runtime.watch import Loaded

BEFORE = 53
PASSES: Mapping[View, tuple[int, int]] = {"full": (7, 61), "prefill": (11, 41), "decode": (13, 1)}
"""Batch and positions of each view's pass, and how many positions were before the decode step: other numbers in each,
so that what runs with them can be told.
"""
EMBEDDED, NORMALIZED = "embedding/embedded", "final-norm/normalized"
BLOCK_OUTPUT, LOGITS = "blocks/block-output", "unembedding/logits"


def observe(model_class: Any, arguments: Mapping[str, Any], loaded: Loaded) -> Observation:
    """Build a model and run it in each view. `arguments` are those of its configuration class.

    Raises `CheckpointError` for a model that has no list of blocks.
    """
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake:
        transformer = constructed(model_class, arguments)
    return _Observer(transformer, loaded, fake).observe()


class _Observer:
    """One model, its values by key."""

    def __init__(self, transformer: Any, loaded: Loaded, fake: FakeTensorMode) -> None:
        self.transformer, self.fake = transformer, fake
        self.list_name, self.blocks = _blocks(transformer, loaded)
        self.body_name = self.list_name.rpartition(".")[0]
        self.body = transformer.get_submodule(self.body_name)
        self.ends, self.norms = _ends(transformer, self.list_name)
        self.names = {id(module): generic(name, self.list_name)[0] for name, module in transformer.named_modules()}
        self.statements = statements(loaded)
        self.lengths = lengths(loaded)
        self.calls, self.codes = calls(loaded), codes(loaded)
        self.chosen = next((int(n) for name in CHOSEN if (n := getattr(transformer.config, name, None))), 0)
        self.skipped: set[str] = set()
        self.served: dict[str, set[Served]] = defaultdict(set)
        self.values: dict[str, Value] = {}
        self.order: list[str] = []
        self.named: dict[str, str] = {}
        self.norm = ""  # the module that normalises the stream at the end

    def observe(self) -> Observation:
        """Run all passes; again where some values have to be left out, since what flowed through them flows on."""
        while True:
            for view in VIEWS:
                self._pass(view)
            anchors = {
                key: anchor
                for key, value in self.values.items()
                if fits(value, self.list_name) and (anchor := anchored(value, self.served[value.function]))
            }
            without = self.values.keys() - anchors.keys()
            if not without:
                break
            self.skipped |= without
            self.values, self.order, self.named = {}, [], {}
        self.values = {key: replace(self.values[key], anchor=anchors[key]) for key in self.order}
        weights = {generic(name, self.list_name): tuple(tensor.shape) for name, tensor in self._weights()}
        values, kept = settled(self.values, weights)
        ends = self.ends | ({self.norm: NORMALIZED} if self.norm else {})
        modules = {self.names[id(module)]: type(module).__name__ for module in self.transformer.modules()}
        return Observation(
            values=values,
            named={path: key for path, key in self.named.items() if key in values},
            weights=kept,
            modules=modules,
            ends={name: path.partition("/")[0] for name, path in ends.items()},
            blocks=self.list_name,
            block=type(self.blocks[0]).__name__,
            body=type(self.body).__name__,
            layers=len(self.blocks),
            chosen=self.chosen,
            lengths=self.lengths,
        )

    def _weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Parameters, and buffers that a checkpoint has too."""
        kept = self.transformer.state_dict().keys()
        yield from self.transformer.named_parameters(remove_duplicate=False)
        yield from ((name, buffer) for name, buffer in self.transformer.named_buffers() if name in kept)

    def _pass(self, view: View) -> None:
        batch, computed = PASSES[view]
        cache = step_cache()(self.transformer.config)
        flow = Flow()
        watcher = _Watcher(self, flow)
        with self.fake, torch.inference_mode(), Routing(self.chosen), ExitStack() as stack:
            if view == "decode":
                called(self.transformer, torch.zeros(batch, BEFORE, dtype=torch.long), cache)
            for name, tensor in self._weights():
                flow.name(tensor, *generic(name, self.list_name))
            for number, block in enumerate(self.blocks):
                stack.enter_context(before(block, watcher.entering(number)))
            stack.enter_context(after(self.blocks[-1], watcher.leaving))
            for module, path in self.ends.items():
                stack.enter_context(after(self.transformer.get_submodule(module), watcher.giving(path)))
            for module in self.norms:
                stack.enter_context(after(self.transformer.get_submodule(module), watcher.normalizing(module)))
            tokens = torch.zeros(batch, computed, dtype=torch.long)
            flow.name(tokens, TOKENS, None)
            stack.enter_context(watcher)
            watcher.given[LOGITS] = called(self.transformer, tokens, cache)
        for number, (_, keys) in enumerate(groupby(watcher.recording.values, key=lambda pair: pair[1])):
            self.order = merged(self.order, dict.fromkeys(key for key, _ in keys), first=number == 0)
        for (key, layer), captured in watcher.recording.values.items():
            value = self.values[key]
            value.observed[view, layer] = [tuple(one.shape) for one in captured]
            for names in (names for turn in flow.made_of(key, layer) for names in turn):
                source = self._source(names, value, layer)
                if source is not None and source != key:
                    value.sources.setdefault(source, set()).add((view, layer))
        for path, tensor in watcher.given.items():
            if id(tensor) in watcher.keys:
                self.named.setdefault(path, watcher.keys[id(tensor)])

    def _source(self, names: frozenset[Name], value: Value, layer: int | None) -> str | None:
        """One input, of all its names the one that a value in this layer sees.

        Its own layer's before what comes from outside. Of a matrix that is tied, the name that the value's code says.
        """
        here = sorted(key for key, where in names if where == layer)
        outside = sorted(key for key, where in names if where is None)
        found = here or outside
        if not found:
            # Outside the blocks, what is read of them is of the last one.
            last = [key for key, _ in sorted(names, key=str)]
            return last[0] if last and layer is None else None
        said = [key for key in found if f"self.{key.rpartition('.')[0].rpartition('.')[2]}(" in value.text]
        return (said or found)[0]


class _Watcher(Recorder):
    """A recorder that tells whose value each is. A value that has a name already gets no second one."""

    def __init__(self, about: _Observer, flow: Flow) -> None:
        super().__init__([statement.site for statement in about.statements.values()], observer=flow.called)
        self._about, self._flow = about, flow
        self.keys: dict[int, str] = {}
        self.given: dict[str, torch.Tensor] = {}

    def entering(self, layer: int) -> Callable[[torch.Tensor], None]:
        """Tells which block begins, and names its input."""

        def tell(stream: torch.Tensor) -> None:
            self.layer = layer
            about = self._about
            if BLOCK_INPUT not in about.values:
                function, name = f"{type(about.blocks[0]).__name__}.forward", _first_argument(about.blocks[0])
                anchor = at(function).argument(name)
                about.values[BLOCK_INPUT] = Value(
                    key=BLOCK_INPUT,
                    function=function,
                    name=name,
                    nth=0,
                    element=None,
                    anchor=anchor,
                    text=name,
                    module=f"{about.list_name}.{LAYER}",
                )
            self.recording.values.setdefault((BLOCK_INPUT, layer), []).append(stream)
            self._flow.name(stream, BLOCK_INPUT, layer)

        return tell

    def leaving(self, stream: torch.Tensor) -> None:
        """The last block ends."""
        self.given[BLOCK_OUTPUT] = stream
        self.layer = None

    def giving(self, path: str) -> Callable[[torch.Tensor], None]:
        """Notes what a module that every decoder has gives."""

        def tell(out: torch.Tensor) -> None:
            self.given[path] = out

        return tell

    def normalizing(self, module: str) -> Callable[[torch.Tensor], None]:
        """Notes what a norm outside the blocks gives, if it is the first behind them."""

        def tell(out: torch.Tensor) -> None:
            if BLOCK_OUTPUT in self.given and NORMALIZED not in self.given:
                self.given[NORMALIZED] = out
                self._about.norm = module

        return tell

    def _take(self, sites: list[Site], frame: FrameType, value: Any) -> None:
        module, call = self._whose(frame)
        for site in sites:
            taken = value
            if site.element is not None:
                taken = value[site.element] if isinstance(value, tuple | list) and len(value) > site.element else None
            if not isinstance(taken, torch.Tensor):
                continue
            key = f"{site.key}@{module}{'' if call is None else f' in {call}'}"
            about = self._about
            about.served[about.statements[site.key].function].add((module, call))
            if self.keys.get(id(taken), key) != key or key in about.skipped:
                continue  # handed on as it is
            if key not in about.values:
                made = about.statements[site.key]
                about.values[key] = Value(
                    key=key,
                    function=made.function,
                    name=made.name,
                    nth=made.nth,
                    element=made.element,
                    anchor=made.anchor,
                    text=made.text,
                    module=module,
                    call=call,
                )
            self.keys[id(taken)] = key
            self.recording.values.setdefault((key, self.layer), []).append(taken)
            self._flow.name(taken, key, self.layer)

    def _whose(self, frame: FrameType) -> tuple[str, Anchor | None]:
        """The module on whose behalf a frame runs, and the call in the modeling file that runs the frame."""
        outer = frame.f_back
        while outer is not None and id(outer.f_code) not in self._about.codes:
            outer = outer.f_back
        call = None if outer is None else self._about.calls.get((id(outer.f_code), outer.f_lasti))
        inner: FrameType | None = frame
        while inner is not None:
            owner = inner.f_locals.get("self")
            name = self._about.names.get(id(owner)) if isinstance(owner, nn.Module) else None
            if name is not None:
                return name, call
            inner = inner.f_back
        return "", None


def _blocks(transformer: nn.Module, loaded: Loaded) -> tuple[str, Sequence[nn.Module]]:
    """The longest list of modules of one class that the file defines, and its name."""
    found: tuple[str, Sequence[nn.Module]] = ("", ())
    for name, module in transformer.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) > len(found[1]):
            classes = {type(one) for one in module}
            if len(classes) == 1 and hasattr(loaded.module, classes.pop().__name__):
                found = (name, list(module))
    if not found[1]:
        raise CheckpointError(
            f"{type(transformer).__name__} has no list of blocks of one class, so it has no layers to show.",
            "It cannot be derived; a declaration of it would need a runner of its own.",
        )
    return found


def _ends(transformer: nn.Module, list_name: str) -> tuple[dict[str, str], list[str]]:
    """What modules outside the blocks give that every decoder has, by the names of the modules: the embedded tokens and
    the logits. And the modules that may normalise the stream at the end.
    """
    body_name = list_name.rpartition(".")[0]
    found: dict[str, str] = {}
    norms = []
    for name, module in transformer.get_submodule(body_name).named_children():
        full = f"{body_name}.{name}" if body_name else name
        own = list(module.parameters())
        if isinstance(module, nn.Embedding) and EMBEDDED not in found.values():
            found[full] = EMBEDDED
        elif own and all(parameter.ndim == 1 for parameter in own):
            norms.append(full)
    for name, module in transformer.named_children():
        if isinstance(module, nn.Linear) and name != body_name:
            found[name] = LOGITS
    return found, norms


def _first_argument(block: nn.Module) -> str:
    forward = inspect.unwrap(type(block).forward)
    return list(inspect.signature(forward).parameters)[1]
