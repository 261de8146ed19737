"""Tensors of runs, made again on request by replaying one part of a pass, and kept for the next reader."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from atlas.errors import BadRequest, NotComputed, NotFound
from atlas.graph.axes import VIEWS, View
from atlas.graph.nodes import Parameter, Tensor
from atlas.graph.resolve import Graph
from atlas.runtime.expressions import INNER, OUTER, is_expression
from atlas.runtime.references.base import Memory, Part, Pass, value_of
from atlas.runtime.runs import Run

KEPT_BYTES = 256 << 20


@dataclass(frozen=True)
class Captured:
    """A tensor that a pass computed, or a parameter, with the names of its axes in order."""

    node: str
    view: View | None
    layer: int | None
    step: int | None
    tensor: torch.Tensor
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """A checked request: nodes with the layer to look in (None outside the blocks), and the pass."""

    nodes: tuple[tuple[str, int | None], ...]
    view: View
    step: int | None
    work: Pass

    @property
    def passless(self) -> bool:
        """Whether nothing is wanted that a pass computes."""
        return not self.work.tokens

    @property
    def alone(self) -> bool:
        return len(self.nodes) == 1


Cut = Callable[[tuple[str, ...], tuple[int, ...]], Sequence[int | slice]]
"""Which part of a tensor is wanted, an entry an axis, given its axes and their sizes."""


@dataclass(frozen=True)
class Portion:
    """Less than a whole tensor: what `cut` takes of it; with `rank` of that rank's share.

    Of a model that is split over several processes no more than that is moved.
    """

    cut: Cut | None = None
    rank: int | None = None


class Captures:
    """Makes and keeps tensors. Belongs to the engine's thread."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._results: OrderedDict[tuple[object, ...], Captured] = OrderedDict()
        self._bytes = 0

    def kept(self, run: Run, wanted: Wanted) -> dict[str, Captured]:
        """What is at hand already: kept results and parameters."""
        found: dict[str, Captured] = {}
        for node, layer in wanted.nodes:
            resolved = None if is_expression(node) else run.runner.model.graph[node]
            if resolved is not None and isinstance(resolved.node, Parameter) and resolved.exists_in(layer):
                weight = run.runner.weight(resolved.node.weight.format(layer=layer))
                found[node] = Captured(node, None, layer, None, weight, resolved.node.shape)
                continue
            key = (run.id, node, wanted.view, layer, wanted.step)
            if key in self._results:
                self._results.move_to_end(key)
                found[node] = self._results[key]
        return found

    def make(self, run: Run, wanted: Wanted, memory: Memory, known: dict[str, Captured]) -> dict[str, Captured]:
        """Everything that was asked for: what is not known yet by one replay for each part of the pass.

        Raises `NotComputed` for a single node that this pass does not compute; of several it is left out.
        """
        runner, found = run.runner, dict(known)
        graph = runner.model.graph
        missing = [
            (node, at)
            for node, at in wanted.nodes
            if node not in found and (is_expression(node) or graph[node].exists_in(at))
        ]
        for part in ("build", "before", "block", "after"):
            together = [(node, at) for node, at in missing if part in runner.parts(node) and node not in found]
            for layer in dict.fromkeys(at for _, at in together):
                nodes = [node for node, at in together if at == layer]
                recording = runner.replay(wanted.work, memory, part, layer, runner.sites(nodes))
                for node in nodes:
                    value = value_of(recording, node, layer)
                    if value is not None:
                        axes = _axes(graph, node, value.ndim)
                        captured = Captured(node, wanted.view, layer, wanted.step, value.detach(), axes)
                        self._keep((run.id, node, wanted.view, layer, wanted.step), captured)
                        found[node] = captured
        if wanted.alone and not found:
            raise _not_computed(graph, wanted.nodes[0][0])
        return found

    def portion(
        self, run: Run, wanted: Wanted, memory: Memory | None, known: dict[str, Captured], portion: Portion
    ) -> Captured | None:
        """Part of one tensor; None where it takes a pass and there is no `memory` to make it from.

        Raises as `make`, and what the portion's `cut` raises.
        """
        runner, (node, layer) = run.runner, wanted.nodes[0]
        graph = runner.model.graph
        runner.require_rank(portion.rank)

        names: tuple[str, ...] = ()

        def cut(shape: tuple[int, ...]) -> Sequence[int | slice]:
            nonlocal names
            names = _axes(graph, node, len(shape))  # those of the whole: a slice may have fewer
            return [slice(0, size) for size in shape] if portion.cut is None else portion.cut(names, shape)

        value: torch.Tensor | None = None
        declared = None if is_expression(node) else graph[node].node
        if isinstance(declared, Parameter):
            weight = runner.weight_portion(declared.weight.format(layer=layer), portion.rank, cut)
            return Captured(node, None, layer, None, weight, declared.shape)
        if node in known and not (portion.rank and runner.is_own(node)):  # of such a node rank 0's is kept
            value = known[node].tensor
            if portion.rank is not None:
                value = runner.share(node, value, portion.rank)
            value = value[tuple(cut(tuple(value.shape)))]
        elif memory is None:
            return None
        else:
            for part in runner.parts(node):
                if value is None:
                    value = runner.portion(wanted.work, memory, part, layer, node, portion.rank, cut)
        if value is None:
            raise _not_computed(graph, node)
        return Captured(node, wanted.view, layer, wanted.step, value.detach(), names)

    def expressions(
        self, run: Run, wanted: Wanted, memory: Memory, *, inner: bool, rank: int | None = None
    ) -> dict[str, list[torch.Tensor]]:
        """All tensors that expressions of the reference code give in one block, or outside the blocks, by name; with
        `rank` that rank's shares. Raises `BadRequest` for a rank that there is not.
        """
        runner, found = run.runner, dict[str, list[torch.Tensor]]()
        prefix = INNER if inner else OUTER
        sites = [replace(e.site, key=f"{prefix}{e.name}") for e in runner.expressions.all.values()]
        layer = wanted.nodes[0][1] if inner else None
        parts: tuple[Part, ...] = ("block",) if inner else ("before", "after")
        for part in parts:
            recording = runner.observe(wanted.work, memory, part, layer, sites, rank)
            for (name, at), values in recording.values.items():
                if at == layer:
                    found.setdefault(name, []).extend(values)
        return found

    def held(self) -> int:
        """Bytes of the kept results."""
        return self._bytes

    def forget(self) -> None:
        """Drop all kept results."""
        self._results.clear()
        self._bytes = 0

    def _keep(self, key: tuple[object, ...], captured: Captured) -> None:
        size = captured.tensor.nbytes
        if size > self._kept_bytes // 4 or key in self._results:
            return
        self._results[key] = captured
        self._bytes += size
        while self._bytes > self._kept_bytes:
            _, dropped = self._results.popitem(last=False)
            self._bytes -= dropped.tensor.nbytes


def checked(run: Run, nodes: Sequence[str], view: str, layer: int | None, step: int | None) -> Wanted:
    """A request, checked against the run and its model.

    Raises `BadRequest` (view, kind of node), `NotFound` (node, layer, step) and `NotComputed`.
    """
    known = next((known for known in VIEWS if known == view), None)
    if known is None:
        raise BadRequest(f"There is no view {view!r}.", f"Views are {', '.join(VIEWS)}.")
    step = (1 if step is None else step) if known == "decode" else None
    places = tuple((node, _layer(run, node, known, layer, alone=len(nodes) == 1)) for node in nodes)
    graph = run.runner.model.graph
    needs_pass = any(is_expression(node) or isinstance(graph[node].node, Tensor) for node in nodes)
    return Wanted(places, known, step, run.work(known, step) if needs_pass else Pass((), 0))


def _layer(run: Run, path: str, view: View, layer: int | None, *, alone: bool) -> int | None:
    model = run.runner.model
    if is_expression(path):
        run.runner.expressions.find(path)
        return None if path.startswith(OUTER) else _in_range(run, 0 if layer is None else layer)
    resolved = model.graph[path]
    node = resolved.node
    if not isinstance(node, Tensor | Parameter):
        near = f"Ask for {resolved.outputs[0]!r}." if resolved.outputs else "Ask for one of its parts."
        raise BadRequest(f"{path!r} is a {node.kind}, which has no values of its own.", near)
    if alone and isinstance(node, Tensor) and view not in node.views:
        raise NotComputed(f"{view} does not compute {path!r}. {node.absent}", "Choose another view.")
    if not resolved.in_blocks:
        return None
    chosen = _in_range(run, resolved.first_layer if layer is None else layer)
    if alone and resolved.layers is not None and chosen not in resolved.layers:
        raise NotComputed(
            f"Layer {chosen} does not have {path!r}: it exists in {resolved.layers.words}.", "Choose another layer."
        )
    return chosen


def _in_range(run: Run, layer: int) -> int:
    if not 0 <= layer < run.runner.n_layers:
        raise NotFound(
            f"There is no layer {layer}: {run.runner.model.name} has layers 0 to {run.runner.n_layers - 1}.",
            "Layers count those of the model that ran.",
        )
    return layer


def _axes(graph: Graph, node: str, count: int) -> tuple[str, ...]:
    """Declared names; an expression that nobody has declared has so many axes without names."""
    if is_expression(node):
        return tuple(f"axis {index}" for index in range(count))
    declared = graph[node].node
    assert isinstance(declared, Tensor | Parameter)
    return declared.shape


def _not_computed(graph: Graph, path: str) -> NotComputed:
    declared = None if is_expression(path) else graph[path].node
    why = declared.absent if isinstance(declared, Tensor) else "No tensor came to be there."
    return NotComputed(f"This pass does not compute {path!r}. {why}", "Choose another view or prompt.")
