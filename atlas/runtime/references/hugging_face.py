"""Models of Hugging Face's transformers, `modeling_*.py`, run unmodified with eager attention and eager experts.

Which model is a matter of the declaration: its class, and the arguments of its configuration. transformers is imported
when a runner is built, and nowhere else.

Its caches append, and a layer with a sliding window forgets what has left it. So each pass gets a cache of its own,
built from every layer's keys and values of all positions as it was before that pass, and tells what the pass added.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from atlas.catalog import Model
from atlas.errors import CheckpointError, EnvironmentUnfit, NotFound, SourceMismatch
from atlas.graph.axes import View
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.recorder import Recorder, Recording, Site
from atlas.runtime.references.base import Memory, Part, Pass, ReferenceRunner, SafePoint, TrueSize
from atlas.runtime.references.blocks import End, Feed, Reached, after, before, counted, given
from atlas.runtime.references.recurrent import State, put, recurrent, taken
from atlas.runtime.references.routing import Routing
from atlas.runtime.watch import Loaded

LONGEST = 8192  # positions of one run
NO_MARKS: Mapping[str, None] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))  # no pass uses them
CACHE_ARGUMENTS = ("cache", "past_key_values")  # the new name and the old one


def library() -> ModuleType:
    """transformers, imported once, its warnings about optional packages kept to itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("transformers")


def load_reference(model: Model) -> Loaded:
    """The modeling module with the syntax of its pinned file.

    Raises `SourceMismatch` if another version is installed, and `EnvironmentUnfit` without positions.
    """
    reference = model.architecture.reference
    source = model.store.read(reference.file)
    if source.origin != "installed":
        raise SourceMismatch(
            "The transformers that is installed is not the pinned one, so it is not run.",
            "Install transformers==5.24.0 again.",
        )
    library()
    name = ".".join(PurePosixPath(source.locked.carried_as).with_suffix("").parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Loaded(importlib.import_module(name), source.module)


@functools.cache
def step_cache() -> type[Any]:
    """The class of the caches that passes get: transformers' own, which also notes what a pass adds."""
    dynamic: Any = library().DynamicCache

    class StepCache(dynamic):  # type: ignore[misc]
        """A cache as it was before a pass. `added` are the keys and values that the pass has written, by layer."""

        def __init__(self, config: Any) -> None:
            super().__init__(config=config)
            self.added: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

        def fill(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
            """Put in what earlier passes have written."""
            super().update(keys, values, layer)

        def update(
            self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
        ) -> Any:
            self.added[layer_idx] = (key_states, value_states)
            return super().update(key_states, value_states, layer_idx)

    return StepCache


class Runner(ReferenceRunner):
    """Any decoder of transformers that keeps keys and values, or a running state."""

    def __init__(self, model: Model, checkpoint: Checkpoint) -> None:
        """Raises `CheckpointError` if the weights do not fit, and `SourceError`."""
        super().__init__(model, checkpoint, load_reference(model))
        self._replaying = False
        self._given = 0  # how many values a block gives in a tuple, as a pass has shown
        with Recorder(self.sites(self.captured_nodes("build"))) as recorder:
            self._transformer: Any = self._constructed()
        self.built = recorder.recording
        self._list, self._attribute = _list_of_blocks(self._transformer, model)
        self._load(checkpoint.tensors)

    @property
    def context_length(self) -> int:
        longest = getattr(self._transformer.config, "max_position_embeddings", None)
        return min(int(longest or LONGEST), LONGEST)

    def _constructed(self) -> Any:
        """The reference's model, its weights not set."""
        return _constructed(self.loaded, self.model, self.checkpoint.placement.dtype)

    def _load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        try:
            self._transformer.load_state_dict(dict(tensors), strict=True, assign=True)
        except RuntimeError as error:
            raise CheckpointError(
                f"The weights in {self.checkpoint.path} do not fit the reference: {error}",
                f"Are they of a model that {self.model.architecture.name} describes?",
            ) from error
        self._transformer.requires_grad_(False)
        for module in self._transformer.modules():  # buffers, which no checkpoint has
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = buffer.to(self.checkpoint.placement.device)

    @property
    def _layers(self) -> list[nn.Module]:
        return list(getattr(self._list, self._attribute))

    def memory(self, capacity: int, *, cache: bool = True) -> Memory:
        width = self.model.architecture.sizes["d_model"]
        nothing = [torch.empty(0)] * (self.n_layers if cache else 0)  # the first pass tells how wide keys are
        return Memory(torch.empty(self.n_layers + 1, capacity, width, **self.placed), list(nothing), list(nothing))

    def forward(self, work: Pass, memory: Memory, safe_point: SafePoint | None = None) -> torch.Tensor:
        return self._forward(work, memory, safe_point, None)

    def capture(self, work: Pass, memory: Memory, sites: Iterable[Site]) -> tuple[torch.Tensor, Recording]:
        recorder = Recorder(sites)
        logits = self._forward(work, memory, None, recorder)
        return logits, recorder.recording

    def _forward(
        self, work: Pass, memory: Memory, safe_point: SafePoint | None, recorder: Recorder | None
    ) -> torch.Tensor:
        residual = memory.residual[:, work.start : work.stop]
        blocks = self._layers

        def entering(layer: int, x: torch.Tensor) -> None:
            if self._replaying:  # a replay at a safe point runs one of these blocks, but it is not this pass
                return
            residual[layer].copy_(x[0])
            if recorder is not None:
                recorder.layer = layer
            if safe_point is not None:
                safe_point(layer)

        def leaving(out: torch.Tensor) -> None:
            if self._replaying:
                return
            residual[self.n_layers].copy_(out[0])
            if recorder is not None:
                recorder.layer = None

        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            cache = self._cache(work, memory, range(self.n_layers), memory.states)
            for layer, block in enumerate(blocks):
                stack.enter_context(before(block, partial(entering, layer)))
            stack.enter_context(after(blocks[-1], leaving))
            stack.enter_context(counted(blocks[-1], self._gives))
            if recorder is not None:
                stack.enter_context(recorder)
            logits = called(self._transformer, self.inputs(work), cache)
        _keep(cache, work, memory)
        memory.starts.append(work.start)
        memory.position = work.stop
        return logits

    def replay(self, work: Pass, memory: Memory, part: Part, layer: int | None, sites: Iterable[Site]) -> Recording:
        if part == "build":
            return self.built
        rows = memory.residual[:, work.start : work.stop]
        states = dict(memory.states)
        if part == "block":
            assert layer is not None
            if layer in states and work.start:
                states[layer] = self._state(memory, layer, work.start)
            layers = self._one_block(rows, layer)
        elif part == "before":
            layers = [End()] * self.n_layers
        else:
            layers = [self._fed(rows[self.n_layers])] * self.n_layers
        recorder = Recorder(sites)
        recorder.layer = layer
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            cache = self._cache(work, memory, () if layer is None else (layer,), states)
            stack.enter_context(self._only(layers))
            stack.enter_context(recorder)
            stack.enter_context(contextlib.suppress(Reached))
            if part == "block" and layer == self.n_layers - 1:
                stack.enter_context(after(self._layers[layer], _reached))
            called(self._transformer, self.inputs(work), cache)
        return recorder.recording

    def _gives(self, count: int) -> None:
        if not self._replaying:
            self._given = count

    def _fed(self, rows: torch.Tensor) -> nn.Module:
        """What stands for a block that gave these rows. What it gave beside them is of no use to other blocks."""
        stream = rows.clone()[None]
        return Feed((stream, *[None] * (self._given - 1)) if self._given else stream)

    def _one_block(self, rows: torch.Tensor, layer: int) -> list[nn.Module]:
        """Blocks of which only one runs, on its own input. As many as there are, since the code looks up the kind of a
        layer by its place in the list.
        """
        return [*[self._fed(rows[layer])] * layer, self._layers[layer], *[End()] * (self.n_layers - layer - 1)]

    def _state(self, memory: Memory, layer: int, start: int) -> State:
        """What a layer that keeps no keys and values had kept before the pass that began at `start`.

        Nothing of it is left once the layer went on, so all its passes up to there are run again.
        """
        if memory.position == start:
            return memory.states[layer]
        states: dict[int, State] = {}
        for first, last in pairwise([*(begun for begun in memory.starts if begun < start), start]):
            work = Pass((0,) * (last - first), first)  # tokens do not matter, since the block is given its input
            cache = self._cache(work, memory, (layer,), memory.states | states)
            rows = memory.residual[:, first:last]
            blocks = self._one_block(rows, layer)
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.inference_mode())
                stack.enter_context(self._only(blocks))
                stack.enter_context(contextlib.suppress(Reached))
                stack.enter_context(given(blocks[layer], rows[layer].clone()[None]))
                if layer == self.n_layers - 1:
                    stack.enter_context(after(blocks[layer], _reached))
                called(self._transformer, self.inputs(work), cache)
            states[layer] = taken(cache.layers[layer])
        return states[layer]

    def weight(self, name: str) -> torch.Tensor:
        found = self.checkpoint.tensors.get(name)
        if found is None:
            raise NotFound(f"The checkpoint has no weight {name!r}.", "Ask for another node.")
        return found

    def _cache(self, work: Pass, memory: Memory, layers: Iterable[int], states: Mapping[int, State]) -> Any:
        """The cache as it was before a pass: in these layers; the others only know how many positions there were.

        `states` are of layers that keep no keys and values.
        """
        cache = step_cache()(self._transformer.config)
        if work.start:
            wanted = frozenset(layers)
            blank = torch.zeros(1, 1, 1, 1, **self.placed).expand(1, 1, work.start, 1)
            for layer, state in states.items():
                put(cache.layers[layer], state)
            for layer in range(self.n_layers):
                keys, values = memory.keys[layer], memory.values[layer]
                if layer in wanted and keys.ndim > 1:
                    cache.fill(layer, keys[:, :, : work.start], values[:, :, : work.start])
                elif layer not in states or keys.ndim > 1:
                    cache.fill(layer, blank, blank)
        return cache

    @contextlib.contextmanager
    def _only(self, layers: list[nn.Module]) -> Iterator[None]:
        """Let the forward pass see these blocks. A pass that is under way goes on with its own."""
        own, outer = getattr(self._list, self._attribute), self._replaying
        setattr(self._list, self._attribute, nn.ModuleList(layers))
        self._replaying = True
        try:
            yield
        finally:
            setattr(self._list, self._attribute, own)
            self._replaying = outer


def _keep(cache: Any, work: Pass, memory: Memory) -> None:
    """Put the keys and values that a pass has written behind those of the passes before."""
    if not memory.keys:
        return
    memory.states = {number: taken(layer) for number, layer in enumerate(cache.layers) if recurrent(layer)}
    capacity = memory.residual.shape[1]
    for layer, added in cache.added.items():
        for kept, rows in zip((memory.keys, memory.values), added, strict=True):
            if kept[layer].ndim == 1:
                kept[layer] = torch.empty(
                    *rows.shape[:2], capacity, rows.shape[3], dtype=rows.dtype, device=rows.device
                )
            kept[layer][:, :, work.start : work.stop] = rows


def hollow(loaded: Loaded, model: Model, dtype: torch.dtype) -> Any:
    """The model of a declaration whose parameters have shapes, and no memory; buffers have their numbers."""
    own = threading.get_ident()

    def shape_alone(_module: nn.Module, _name: str, parameter: nn.Parameter) -> nn.Parameter | None:
        if parameter.is_meta or threading.get_ident() != own:  # what is tied stays one
            return None
        return nn.Parameter(parameter.to("meta"), requires_grad=False)

    handle = register_module_parameter_registration_hook(shape_alone)  # type: ignore[arg-type]  # as it is documented
    try:
        return _constructed(loaded, model, dtype)
    finally:
        handle.remove()


def _constructed(loaded: Loaded, model: Model, dtype: torch.dtype = torch.float32) -> Any:
    """The model of a declaration, its weights not set."""
    reference = model.architecture.reference
    return constructed(getattr(loaded.module, reference.model), reference.arguments, dtype)


def constructed(model_class: Any, arguments: Mapping[str, Any], dtype: torch.dtype = torch.float32) -> Any:
    """A model with eager attention and eager experts, its weights not set. `arguments` are of its configuration."""
    config = model_class.config_class(**NO_MARKS, **arguments)
    implementations = {"attn_implementation": "eager", "experts_implementation": "eager"}
    with importlib.import_module("transformers.initialization").no_init_weights():
        transformer = model_class._from_config(config, dtype=dtype, **implementations)
    transformer.requires_grad_(False)
    return transformer.eval()


def _list_of_blocks(transformer: nn.Module, model: Model) -> tuple[nn.Module, str]:
    """The module that has the list of blocks, and the list's name."""
    block = model.architecture.reference.block
    for module in transformer.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.ModuleList) and len(child) and type(child[0]).__name__ == block:
                return module, name
    raise EnvironmentUnfit(
        f"{type(transformer).__name__} has no list of {block}.", "Check `block` in the architecture's declaration."
    )


def called(transformer: Any, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
    """The logits of one pass."""
    arguments = {_cache_argument(type(transformer)): cache, "use_cache": True}
    logits: torch.Tensor = transformer(tokens, **arguments).logits
    return logits


def _cache_argument(model_class: Any) -> str:
    """By which name the model's forward takes a cache."""
    parameters = inspect.signature(inspect.unwrap(model_class.forward)).parameters
    for name in CACHE_ARGUMENTS:
        if name in parameters:
            return name
    raise EnvironmentUnfit(
        f"{model_class.__name__}.forward takes no cache by a known name ({', '.join(CACHE_ARGUMENTS)}).",
        "It cannot be run step by step.",
    )


def _reached(_: torch.Tensor) -> None:
    raise Reached


class TrueSizeRunner(TrueSize):
    """A model of transformers at its true size, without weights. Which experts are chosen is assumed: see `Routing`."""

    def __init__(self, model: Model) -> None:
        """Raises `SourceError`."""
        self._written: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        super().__init__(model, load_reference(model))

    @property
    def _chosen(self) -> int:
        return self.model.architecture.sizes.get("experts_per_token", 0)

    @property
    def assumed(self) -> str:
        if not self._chosen:
            return ""
        chosen = f"all tokens choose the same {self._chosen}"
        return f"Which experts are chosen depends on numbers. It was assumed that {chosen}."

    def _build(self) -> Mapping[str, torch.Tensor]:
        self._transformer: Any = _constructed(self.loaded, self.model)
        self._list, self._attribute = _list_of_blocks(self._transformer, self.model)
        return dict(_weights(self._transformer))

    def _blocks(self) -> nn.ModuleList:
        blocks: nn.ModuleList = getattr(self._list, self._attribute)
        return blocks

    def _config(self) -> object:
        return self._transformer.config

    def _pass(self, view: View, batch: int, computed: int, before: int, recorder: Recorder) -> None:  # noqa: ARG002
        cache = step_cache()(self._transformer.config)
        with Routing(self._chosen):
            if before and (not self._written or any(map(recurrent, cache.layers))):
                called(self._transformer, torch.zeros(batch, before, dtype=torch.long), cache)
            elif before:  # an earlier pass has told how wide keys and values are
                for layer, pair in self._written.items():
                    cache.fill(layer, *(torch.zeros(batch, rows.shape[1], before, rows.shape[3]) for rows in pair))
            with contextlib.ExitStack() as stack:
                blocks = list(getattr(self._list, self._attribute))
                for layer, block in enumerate(blocks):
                    stack.enter_context(_begins(block, recorder, layer))
                stack.enter_context(after(blocks[-1], lambda _: setattr(recorder, "layer", None)))
                stack.enter_context(recorder)
                called(self._transformer, torch.zeros(batch, computed, dtype=torch.long), cache)
        self._written = cache.added


def _weights(transformer: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, and buffers that a checkpoint has too, by name: the objects that the passes use."""
    kept = transformer.state_dict().keys()
    for name, tensor in (
        *transformer.named_parameters(remove_duplicate=False),
        *transformer.named_buffers(remove_duplicate=False),
    ):
        if name in kept:
            yield name, tensor


def _begins(block: nn.Module, recorder: Recorder, layer: int) -> AbstractContextManager[None]:
    return before(block, lambda _: setattr(recorder, "layer", layer))
