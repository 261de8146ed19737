"""Meta's reference code, `llama_models.llama3.model`, run unmodified.

It wants fairscale's model parallelism, which wants `torch.distributed`: a gloo group of one process, over a store
in memory, without a port. It keeps its KV cache in module attributes, so each pass is lent its run's own.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._C._distributed_c10d import HashStore

from atlas.catalog import Config, Model
from atlas.errors import CheckpointError, NotFound, SourceMismatch
from atlas.graph.axes import View
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.recorder import Recorder, Recording, Site, storage_key
from atlas.runtime.references.base import Memory, Part, Pass, ReferenceRunner, SafePoint, TrueSize, Watched
from atlas.runtime.watch import Loaded

_log = logging.getLogger(__name__)
MODULE = "llama_models.llama3.model"
ARGUMENTS = (
    "dim",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "vocab_size",
    "multiple_of",
    "ffn_dim_multiplier",
    "norm_eps",
    "rope_theta",
    "use_scaled_rope",
)
LONGEST = 8192  # positions; the table of rotations is twice as long
MOST_TRACED = 64  # sequences, and positions of each, at true size


def prepare() -> None:
    """Start the process group and the model parallelism that the reference asks for, once per process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import fairscale.nn.model_parallel.initialize as parallel

        # It prints what it does; standard output is the whole process's, and others may be writing to it.
        parallel.print = _log.debug
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        if not parallel.model_parallel_is_initialized():
            parallel.initialize_model_parallel(1)


def load_reference(model: Model) -> Loaded:
    """The reference module with the syntax of its pinned file.

    Raises `SourceMismatch` if another version is installed, and `EnvironmentUnfit` without positions.
    """
    source = model.store.read(model.architecture.reference.file)
    if source.origin != "installed":
        raise SourceMismatch(
            "The llama-models that is installed is not the pinned one, so it is not run.",
            "Install llama-models==0.3.0 again.",
        )
    prepare()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module(MODULE)
    return Loaded(module, source.module)


def constructed(loaded: Loaded, config: Config, batch: int, positions: int) -> Any:
    """The reference's model, with weights as they were allocated."""
    arguments = {name: config[name] for name in ARGUMENTS if config.get(name) is not None}
    args_module = importlib.import_module("llama_models.llama3.args")
    return loaded.module.Transformer(args_module.ModelArgs(max_batch_size=batch, max_seq_len=positions, **arguments))


class _Feed(nn.Module):
    """Stands for all blocks up to some point: gives what they gave."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.value = value

    def forward(self, *_: object) -> torch.Tensor:
        return self.value


class _Reached(Exception):
    """The part that was asked for is done."""


class _End(nn.Module):
    """Stands for all blocks from some point on, which are not wanted."""

    def forward(self, *_: object) -> torch.Tensor:
        raise _Reached


class Runner(ReferenceRunner):
    """SmolLM2, Llama 3 and their kind."""

    def __init__(self, model: Model, checkpoint: Checkpoint) -> None:
        """Raises `CheckpointError` if the weights do not fit, and `SourceError`."""
        super().__init__(model, checkpoint, load_reference(model))
        self._replaying = False
        self._transformer: Any = self._build()

    @property
    def context_length(self) -> int:
        return min(int(self.checkpoint.config["context_length"] or LONGEST), LONGEST)

    @property
    def kv_heads(self) -> int:
        """Key and value heads that this process computes."""
        return self.model.architecture.sizes["kv_heads"]

    def _constructed(self) -> tuple[Any, Recording]:
        """The reference's model, its weights not set, and what it computed meanwhile."""
        with Recorder(self.sites(self.captured_nodes("build"))) as recorder:
            transformer = constructed(self.loaded, self.checkpoint.config, 1, self.context_length)
        return transformer, recorder.recording

    def _build(self) -> Any:
        transformer, self.built = self._constructed()
        try:
            transformer.load_state_dict(dict(self.checkpoint.tensors), strict=True, assign=True)
        except RuntimeError as error:
            raise CheckpointError(
                f"The weights in {self.checkpoint.path} do not fit the reference: {error}", "Is it a Llama model?"
            ) from error
        transformer.requires_grad_(False)
        transformer.eval()
        for block in transformer.layers:
            block.attention.cache_k = block.attention.cache_v = torch.empty(0)
        return transformer

    def memory(self, capacity: int, *, cache: bool = True) -> Memory:
        sizes = self.model.architecture.sizes
        layers = range(self.n_layers if cache else 0)
        rows, placed = (1, capacity, self.kv_heads, sizes["head_dim"]), self.placed
        return Memory(
            residual=torch.empty(self.n_layers + 1, capacity, sizes["d_model"], **placed),
            keys=[torch.zeros(rows, **placed) for _ in layers],
            values=[torch.zeros(rows, **placed) for _ in layers],
        )

    def forward(self, work: Pass, memory: Memory, safe_point: SafePoint | None = None) -> torch.Tensor:
        return self._forward(work, memory, safe_point, None)

    def capture(self, work: Pass, memory: Memory, sites: Iterable[Site]) -> tuple[torch.Tensor, Recording]:
        volatile = [storage_key(tensor) for tensor in (*memory.keys, *memory.values)]
        recorder = Recorder(sites, volatile=volatile)
        logits = self._forward(work, memory, None, recorder)
        return logits, recorder.recording

    def _forward(
        self, work: Pass, memory: Memory, safe_point: SafePoint | None, recorder: Recorder | None
    ) -> torch.Tensor:
        residual = memory.residual[:, work.start : work.stop]
        scratch = None
        if not memory.keys:
            scratch = [self._scratch(work, memory, 0)] * self.n_layers
        caches = dict(enumerate(scratch or zip(memory.keys, memory.values, strict=True)))
        blocks = list(self._transformer.layers)

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
            stack.enter_context(self._lent(caches))
            for layer, block in enumerate(blocks):
                stack.enter_context(_before(block, partial(entering, layer)))
            stack.enter_context(_after(blocks[-1], leaving))
            if recorder is not None:
                stack.enter_context(recorder)
            logits: torch.Tensor = self._transformer(self.inputs(work), work.start)
        memory.position = work.stop
        return logits

    def replay(self, work: Pass, memory: Memory, part: Part, layer: int | None, sites: Iterable[Site]) -> Recording:
        if part == "build":
            return self.built
        rows = memory.residual[:, work.start : work.stop]
        caches: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        if part == "block":
            assert layer is not None
            # Copies, so that addresses are aligned as they were in the pass, and nothing of the run can change.
            caches[layer] = self._scratch(work, memory, layer)
            layers: list[nn.Module] = [_Feed(rows[layer].clone()[None]), self._transformer.layers[layer], _End()]
        elif part == "before":
            layers = [_End()]
        else:
            layers = [_Feed(rows[self.n_layers].clone()[None])]
        volatile = [storage_key(tensor) for pair in caches.values() for tensor in pair]
        recorder = Recorder(sites, volatile=volatile)
        recorder.layer = layer
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            stack.enter_context(self._lent(caches))
            stack.enter_context(self._only(layers))
            stack.enter_context(recorder)
            stack.enter_context(contextlib.suppress(_Reached))
            self._transformer(self.inputs(work), work.start)
        return recorder.recording

    def weight(self, name: str) -> torch.Tensor:
        found = self.checkpoint.tensors.get(name)
        if found is None:
            raise NotFound(f"The checkpoint has no weight {name!r}.", "Ask for another node.")
        return found

    def _scratch(self, work: Pass, memory: Memory, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A cache that ends with this pass, with the rows before it filled in, and zeros where the pass will write."""
        sizes = self.model.architecture.sizes
        pair = []
        for kept in (memory.keys, memory.values):
            rows = torch.zeros(1, work.stop, self.kv_heads, sizes["head_dim"], **self.placed)
            if kept:
                rows[:, : work.start] = kept[layer][:, : work.start]
            pair.append(rows)
        return pair[0], pair[1]

    @contextlib.contextmanager
    def _lent(self, caches: Mapping[int, tuple[torch.Tensor, torch.Tensor]]) -> Iterator[None]:
        """Lend blocks their caches for a while."""
        attentions = {layer: self._transformer.layers[layer].attention for layer in caches}
        before = {layer: (a.cache_k, a.cache_v) for layer, a in attentions.items()}
        for layer, attention in attentions.items():
            attention.cache_k, attention.cache_v = caches[layer]
        try:
            yield
        finally:
            for layer, attention in attentions.items():
                attention.cache_k, attention.cache_v = before[layer]

    @contextlib.contextmanager
    def _only(self, layers: list[nn.Module]) -> Iterator[None]:
        """Let the forward pass see these blocks only. A pass that is under way goes on with its own."""
        before, outer = self._transformer.layers, self._replaying
        self._transformer.layers = nn.ModuleList(layers)
        self._replaying = True
        try:
            yield
        finally:
            self._transformer.layers, self._replaying = before, outer


class TrueSizeRunner(TrueSize):
    """Any size of Llama, without weights."""

    full_is_prefill = True

    @staticmethod
    def configured(model: Model, computed: int, before: int) -> Recording:
        watched = Watched(model, load_reference(model))
        built = Recorder(watched.sites(watched.captured_nodes("build")))
        passed = Recorder(watched.sites(watched.captured_nodes("pass")))
        with built:  # no block and one token: what is left depends on no weight, those of the token aside
            hollow = constructed(watched.loaded, {**model.config, "n_layers": 0, "vocab_size": 1}, 1, before + computed)
        with torch.inference_mode(), passed:
            hollow(torch.zeros(1, computed, dtype=torch.long), before)
        return Recording({**built.recording.values, **passed.recording.values})

    def __init__(self, model: Model) -> None:
        """Raises `SourceMismatch` and `EnvironmentUnfit`."""
        super().__init__(model, load_reference(model))

    def _build(self) -> Mapping[str, torch.Tensor]:
        self._transformer = constructed(self.loaded, self.model.config, MOST_TRACED, MOST_TRACED)
        return dict(self._transformer.named_parameters())

    def _blocks(self) -> nn.ModuleList:
        blocks: nn.ModuleList = self._transformer.layers
        return blocks

    def _config(self) -> object:
        return self._transformer.params

    def _pass(self, view: View, batch: int, computed: int, before: int, recorder: Recorder) -> None:  # noqa: ARG002
        blocks = list(self._transformer.layers)

        def entering(layer: int, _: torch.Tensor) -> None:
            recorder.layer = layer

        def leaving(_: torch.Tensor) -> None:
            recorder.layer = None

        with contextlib.ExitStack() as stack:
            for layer, block in enumerate(blocks):
                stack.enter_context(_before(block, partial(entering, layer)))
            stack.enter_context(_after(blocks[-1], leaving))
            tokens = torch.zeros(batch, computed, dtype=torch.long)
            with recorder:
                self._transformer(tokens, before)


@contextlib.contextmanager
def _before(block: nn.Module, tell: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """While entered, `tell` gets the block's first argument before each call."""
    handle = block.register_forward_pre_hook(lambda _, arguments: tell(arguments[0]))
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def _after(block: nn.Module, tell: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """While entered, `tell` gets the block's result after each call."""
    handle = block.register_forward_hook(lambda _, __, out: tell(out))
    try:
        yield
    finally:
        handle.remove()
