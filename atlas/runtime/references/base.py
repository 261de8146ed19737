"""What every reference offers, and what a run keeps: token ids, each block's input, and the KV cache.

Everything else is made again on request, by running one block again (`replay`) with the recorder on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from atlas.catalog import Model
from atlas.errors import BadRequest
from atlas.graph.axes import View
from atlas.graph.nodes import Parameter, Tensor
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.expressions import OUTER, Expressions, is_expression, turn_of
from atlas.runtime.flow import Flow
from atlas.runtime.recorder import Recorder, Recording, Site
from atlas.runtime.references.alike import Same, alike, enough
from atlas.runtime.references.recurrent import State
from atlas.runtime.watch import Loaded

Part = Literal["build", "before", "block", "after"]
Cut = Callable[[tuple[int, ...]], Sequence[int | slice]]
"""Which part of a tensor is wanted, an entry an axis, given the tensor's shape."""
SafePoint = Callable[[int], None]
"""Called before each block of a long pass, with its number; it may raise `GivenUp`."""


class GivenUp(Exception):
    """Nobody wants a pass any more: raised at a safe point, and by the pass."""


@dataclass
class Memory:
    """What is kept of the passes of one run, for positions 0 to `position` - 1.

    `residual[l]` is the input of block l, and `residual[n_layers]` the output of the last: [layers + 1, capacity,
    d_model]. `keys[l]` and `values[l]` are the cache: [1, capacity, kv_heads, head_dim]; there are none for a pass
    without history. `states[l]` is what a layer that keeps no keys and values has kept after the last pass, and
    `starts` are the positions at which passes began.
    """

    residual: torch.Tensor
    keys: list[torch.Tensor] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)
    position: int = 0
    states: dict[int, State] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        kept = sum(state.nbytes for state in self.states.values())
        return kept + sum(tensor.nbytes for tensor in (self.residual, *self.keys, *self.values))


@dataclass(frozen=True)
class Pass:
    """One forward pass: its tokens, and how many positions came before them."""

    tokens: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + len(self.tokens)


@dataclass(frozen=True)
class Splitting:
    """How a model is split: over how many ranks, and along which axes, each with its size in the whole model."""

    world: int
    axes: Mapping[str, int]


class Watched:
    """Loaded reference code, and where in it each node of a model is captured."""

    def __init__(self, model: Model, loaded: Loaded) -> None:
        self.model = model
        self.loaded = loaded
        self._sites: dict[str, Site] = {}

    @cached_property
    def expressions(self) -> Expressions:
        """Every expression of the reference code."""
        nodes = self.model.graph.nodes.values()
        return Expressions(self.loaded, {n.path: n.node for n in nodes if isinstance(n.node, Tensor)})

    def site(self, path: str) -> Site:
        """Where a tensor, or an expression by its name, is captured. Raises `AnchorError` and `NotFound`."""
        known = self._sites.get(path)
        if known is None and is_expression(path):
            known = self._sites[path] = replace(self.expressions.find(path).site, key=path)
        if known is None:
            node = self.model.graph[path].node
            assert isinstance(node, Tensor)
            site, layers = self.loaded.site(path, node.hook, joined=node.joined), self.model.graph[path].layers
            known = self._sites[path] = replace(site, layers=None if layers is None else frozenset(layers.numbers))
        return known

    def sites(self, paths: Sequence[str]) -> list[Site]:
        """The sites of several tensors."""
        return [self.site(path) for path in paths]

    def captured_nodes(self, when: Literal["pass", "build"] = "pass") -> list[str]:
        """Every tensor and cache that a pass computes, or that is computed as the model is built."""
        nodes = self.model.graph.nodes.values()
        return [n.path for n in nodes if isinstance(n.node, Tensor) and n.node.when == when]


class ReferenceRunner(Watched, ABC):
    """Reference code with weights in it. Not thread-safe: one thread owns it.

    A replay may be made at a safe point of a pass: it leaves the pass as it found it. `splitting` says how it is split
    over several processes, if it is.
    """

    splitting: Splitting | None = None

    def __init__(self, model: Model, checkpoint: Checkpoint, loaded: Loaded) -> None:
        super().__init__(model, loaded)
        self.checkpoint = checkpoint
        self.built = Recording()

    def rehearse(self) -> None:
        """What must be seen before the first run; of a split model all ranks do so together. Raises `CheckpointError`
        where it turns out that the model cannot be run so.
        """

    @property
    def n_layers(self) -> int:
        return self.model.architecture.sizes["layers"]

    @property
    def placed(self) -> dict[str, Any]:
        """How activations are made, as arguments of torch's factories: of the number format of the weights, beside
        them.
        """
        placement = self.checkpoint.placement
        return {"dtype": placement.dtype, "device": placement.device}

    def inputs(self, work: Pass) -> torch.Tensor:
        """The token ids of a pass, [1, T], where the model is."""
        return torch.tensor([work.tokens], device=self.checkpoint.placement.device)

    @property
    @abstractmethod
    def context_length(self) -> int:
        """The most positions that one run may have."""

    @abstractmethod
    def memory(self, capacity: int, *, cache: bool = True) -> Memory:
        """Room for a run of `capacity` positions; without `cache` for a pass without history."""

    @abstractmethod
    def forward(self, work: Pass, memory: Memory, safe_point: SafePoint | None = None) -> torch.Tensor:
        """Take one pass, keep its block inputs and cache in `memory`, and return all its logits [1, T, vocab].

        `safe_point` is called before each block with its number; what it raises ends the pass.
        """

    @abstractmethod
    def replay(self, work: Pass, memory: Memory, part: Part, layer: int | None, sites: Iterable[Site]) -> Recording:
        """Run one part of a pass again, with the recorder on: one block, or what comes before or after them."""

    @abstractmethod
    def capture(self, work: Pass, memory: Memory, sites: Iterable[Site]) -> tuple[torch.Tensor, Recording]:
        """Take one whole pass with the recorder on: its logits, and every site's values in every layer."""

    @abstractmethod
    def weight(self, name: str) -> torch.Tensor:
        """A parameter by its name in the reference code. Raises `NotFound`."""

    def portion(
        self, work: Pass, memory: Memory, part: Part, layer: int | None, path: str, rank: int | None, cut: Cut | None
    ) -> torch.Tensor | None:
        """Some of one tensor of a pass: what `cut` takes of it, or, with `rank`, of that rank's share.

        None where the pass does not compute it. What `cut` raises is raised. Raises `BadRequest` for a rank that there
        is not.
        """
        self.require_rank(rank)
        value = value_of(self.replay(work, memory, part, layer, self.sites([path])), path, layer)
        return value if value is None or cut is None else value[tuple(cut(tuple(value.shape)))]

    def weight_portion(self, name: str, rank: int | None, cut: Cut | None) -> torch.Tensor:
        """Some of a parameter, as `portion` of a tensor. Raises `NotFound`, and `BadRequest` for no rank."""
        self.require_rank(rank)
        whole = self.weight(name)
        return whole if cut is None else whole[tuple(cut(tuple(whole.shape)))]

    def observe(
        self, work: Pass, memory: Memory, part: Part, layer: int | None, sites: Iterable[Site], rank: int | None
    ) -> Recording:
        """As `replay`; with `rank` that rank's shares. Raises `BadRequest` for a rank that there is not."""
        self.require_rank(rank)
        return self.replay(work, memory, part, layer, sites)

    def split_axis(self, path: str) -> str | None:  # noqa: ARG002 - of one process: none
        """The axis along which the values of a node, or of an expression where one is declared, are split."""
        return None

    def is_own(self, path: str) -> bool:  # noqa: ARG002 - of one process: nothing
        """Whether nothing says how the values of an expression lie in the ranks: then each rank has its own."""
        return False

    def share(self, path: str, whole: torch.Tensor, rank: int) -> torch.Tensor:  # noqa: ARG002 - of one process: all
        """The part of a whole tensor that a rank has."""
        return whole

    def require_rank(self, rank: int | None) -> None:
        """Raises `BadRequest` for a rank that there is not."""
        world = 1 if self.splitting is None else self.splitting.world
        if rank is not None and self.splitting is None:
            raise BadRequest(f"{self.model.name} is not split: it runs in one process.", "Leave `rank` out.")
        if rank is not None and not 0 <= rank < world:
            raise BadRequest(f"There is no rank {rank}.", f"Ranks run from 0 to {world - 1}.")

    def parts(self, path: str) -> tuple[Part, ...]:
        """The parts of a pass that may compute a node, or an expression by its name."""
        if is_expression(path):
            return ("before", "after") if path.startswith(OUTER) else ("block",)
        return (self.part(path),)

    def part(self, path: str) -> Part:
        """Which part of a pass computes a node: by its place in the declaration, in order of data flow."""
        node = self.model.graph[path].node
        if isinstance(node, Tensor) and node.when == "build":
            return "build"
        if path.startswith("blocks/"):
            return "block"
        order = list(self.model.graph.nodes)
        return "before" if order.index(path) < order.index("blocks") else "after"


def value_of(recording: Recording, path: str, layer: int | None) -> torch.Tensor | None:
    """What was captured of a node or expression: the last value, or the turn that an expression's name asks for."""
    turn = turn_of(path)
    if turn is None:
        return recording.last(path, layer)
    values = recording.values.get((path, layer), [])
    return values[turn - 1] if 1 <= turn <= len(values) else None


@dataclass(frozen=True)
class Trace:
    """One pass at a model's true size, as it was observed. `values` are by node and layer, in order of appearance."""

    view: View
    values: Mapping[tuple[str, int | None], Sequence[torch.Tensor]]
    flow: Flow


class TrueSize(Watched, ABC):
    """Reference code at a model's true size, without weights: its tensors have shapes and no numbers.

    Everything runs under one `FakeTensorMode`, recorded, with its flow. `parameters` are by their names in the
    reference code, of all blocks. Of blocks that are alike (`groups`) passes run some (`layers`). `full_is_prefill`:
    the code takes a full sequence as it takes a prompt, so one pass shows both. Not thread-safe.
    """

    full_is_prefill = False

    @property
    def assumed(self) -> str:
        """What was assumed where the code's way depends on numbers, which there are none of: a sentence, or nothing."""
        return ""

    def __init__(self, model: Model, loaded: Loaded) -> None:
        super().__init__(model, loaded)
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._built_flow = Flow()
        with self._fake, self._recorder("build", self._built_flow) as recorder:
            self.parameters = self._build()
        self._built = recorder.recording
        blocks = self._blocks()
        self.groups = alike(model.graph, list(blocks), self._config())
        self.layers = enough(self.groups)
        for left_out in set(range(len(blocks))) - set(self.layers):
            blocks[left_out] = Same()
        for path, node in model.graph.nodes.items():
            if isinstance(node.node, Parameter):
                for layer in self._layers(path):
                    tensor = self.parameters.get(node.node.weight.format(layer=layer))
                    if tensor is not None:
                        self._built_flow.name(tensor, path, layer)

    @abstractmethod
    def _build(self) -> Mapping[str, torch.Tensor]:
        """Build the reference model; its parameters by their names in the reference code."""

    @abstractmethod
    def _blocks(self) -> nn.ModuleList:
        """The list of blocks that the reference model runs."""

    @abstractmethod
    def _config(self) -> object:
        """The reference model's own configuration."""

    @abstractmethod
    def _pass(self, view: View, batch: int, computed: int, before: int, recorder: Recorder) -> None:
        """Take a pass with the recorder on, and tell it the layer."""

    @staticmethod
    def configured(model: Model, computed: int, before: int) -> Recording:  # noqa: ARG004
        """What the code computes in a pass without using a weight, with its numbers, at the model's configuration."""
        return Recording()

    def trace(self, view: View, batch: int, computed: int, before: int) -> Trace:
        """Take one pass of `computed` positions, with `before` of them in the cache already."""
        flow = self._built_flow.following()
        recorder = self._recorder("pass", flow)
        with self._fake, torch.inference_mode():
            self._pass(view, batch, computed, before, recorder)
        return Trace(view, {**self._built.values, **recorder.recording.values}, flow)

    def _recorder(self, when: Literal["pass", "build"], flow: Flow) -> Recorder:
        def taken(key: str, layer: int | None, tensor: torch.Tensor) -> None:
            flow.name(tensor, key, layer)

        return Recorder(self.sites(self.captured_nodes(when)), observer=flow.called, taken=taken)

    def _layers(self, path: str) -> Sequence[int | None]:
        return range(self.model.architecture.sizes["layers"]) if self.model.graph[path].in_blocks else [None]
