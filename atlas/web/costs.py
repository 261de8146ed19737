"""What a step costs: multiply-adds, and bytes read and written, as formulas in what the input decides and as numbers.

Read off the declared shapes. A sum of products has two factors that share an axis which the result lacks: it takes one
multiply-add for each element of all their axes together. A sum over one input takes one for each of its elements. All
else (sums of two tensors, activations, rotations, copies) is counted by its results alone. Bytes are those of the
reference code, step by step, at two bytes a number: fused kernels keep what is between out of memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import combinations
from operator import add

from markupsafe import Markup

from atlas.catalog import Model
from atlas.graph.axes import Extent, View
from atlas.graph.nodes import Cache, Operation, Parameter, Tensor
from atlas.graph.resolve import Edge, Resolved
from atlas.web.figures import BYTES, copies
from atlas.web.prose import light_symbol

COMPLEX_BYTES = 8
Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Amount:
    """A number that may depend on the input: a sum of products of symbols (TeX), each with its factor."""

    terms: Mapping[Monomial, int] = field(default_factory=dict)

    def __add__(self, other: Amount) -> Amount:
        total = dict(self.terms)
        for symbols, factor in other.terms.items():
            total[symbols] = total.get(symbols, 0) + factor
        return Amount(total)

    def times(self, count: int) -> Amount:
        """So many times as much."""
        return Amount({symbols: factor * count for symbols, factor in self.terms.items()})

    def at(self, values: Mapping[str, int]) -> int:
        """The number where every symbol has a value. Raises KeyError for one that has none."""
        return sum(reduce(lambda so_far, name: so_far * values[name], s, factor) for s, factor in self.terms.items())

    @property
    def markup(self) -> Markup:
        """`16,777,216 B T + 8,192 B T²`, the largest power last; `0` for nothing."""
        shown = [
            Markup(" ").join([Markup(f"{factor:,}"), *_powers(symbols)])
            for symbols, factor in sorted(self.terms.items(), key=lambda term: (len(term[0]), term[0]))
            if factor
        ]
        return Markup(" + ").join(shown) if shown else Markup("0")


def _powers(symbols: Monomial) -> Iterator[Markup]:
    for symbol, count in Counter(symbols).items():
        power = Markup("<sup>{}</sup>").format(count) if count > 1 else Markup("")
        yield Markup("<i>{}</i>{}").format(light_symbol(symbol), power)


def amount(extents: Iterable[Extent], factor: int = 1) -> Amount:
    """How many elements axes have together, times a factor."""
    symbols: list[str] = []
    for extent in _prime(extents):
        if extent.size is None:
            symbols.append(extent.symbol)
        else:
            factor *= extent.size
    return Amount({tuple(sorted(symbols)): factor})


def _prime(extents: Iterable[Extent]) -> Iterator[Extent]:
    """Axes that are products of others, as those others."""
    for extent in extents:
        if extent.size is None and extent.factors:
            yield from _prime(extent.factors)
        else:
            yield extent


@dataclass(frozen=True)
class Cost:
    """What one step, or several, take in one view. `factors` are the axes whose product the multiply-adds are."""

    multiply_adds: Amount = Amount()
    weights: Amount = Amount()
    cache: Amount = Amount()
    values: Amount = Amount()
    written: Amount = Amount()
    factors: tuple[Extent, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.multiply_adds + other.multiply_adds,
            self.weights + other.weights,
            self.cache + other.cache,
            self.values + other.values,
            self.written + other.written,
        )

    def times(self, count: int) -> Cost:
        """The same so many times."""
        return Cost(
            self.multiply_adds.times(count),
            self.weights.times(count),
            self.cache.times(count),
            self.values.times(count),
            self.written.times(count),
        )


@lru_cache(maxsize=4096)
def cost(model: Model, path: str, view: View) -> Cost | None:
    """What an operation takes in a view, or all operations of one copy of a component. None where there is none."""
    node = model.graph[path]
    if isinstance(node.node, Operation):
        return _of_operation(model, node, view) if view in node.node.views else None
    if node.kind != "component":
        return None
    inside = [one for one in model.graph.operations if one.path.startswith(f"{path}/")]
    found = [part for one in inside if (part := cost(model, one.path, view)) is not None]
    return reduce(add, found) if found else None


@lru_cache(maxsize=256)
def total(model: Model, view: View) -> Cost:
    """What a whole pass takes, all layers."""
    found = Cost()
    for node in model.graph.operations:
        part = cost(model, node.path, view)
        if part is not None:
            found += part.times(copies(model, node))
    return found


def _of_operation(model: Model, node: Resolved, view: View) -> Cost:
    graph = model.graph
    edges = [e for e in graph.edges if e.target == node.path and view in e.views and not e.lends]
    inputs = [graph[edge.source] for edge in _one_of_each(edges)]
    outputs = [graph[path] for path in node.outputs]
    factors = _summed(model, inputs, outputs, view)
    weights, cache, values = Amount(), Amount(), Amount()
    for source in inputs:
        shape = source.shape[view] or ()
        if isinstance(source.node, Parameter):
            weights += _weights_read(model, source, factors, outputs, view)
        elif isinstance(source.node, Cache):
            cache += amount(shape, BYTES)
        else:
            values += amount(shape, _bytes(source))
    written = Amount()
    for target in outputs:
        # What a cache gets are the rows of this pass, which is what goes in.
        if isinstance(target.node, Cache):
            written += reduce(add, (amount(source.shape[view] or (), BYTES) for source in inputs), Amount())
        else:
            written += amount(target.shape[view] or (), _bytes(target))
    return Cost(amount(factors) if factors else Amount(), weights, cache, values, written, factors)


def _one_of_each(edges: list[Edge]) -> list[Edge]:
    """One edge for each input; of those that take turns from layer to layer, the first."""
    turns: dict[object, Edge] = {}
    for edge in edges:
        name = edge.source.rsplit("/", 1)[-1] if edge.layers is not None else edge.source
        turns.setdefault(name, edge)
    return list(turns.values())


def _bytes(node: Resolved) -> int:
    return COMPLEX_BYTES if isinstance(node.node, Tensor) and node.node.complex else BYTES


def _summed(model: Model, inputs: list[Resolved], outputs: list[Resolved], view: View) -> tuple[Extent, ...]:
    """The axes of a sum of products, or of a sum over one input; none where nothing is summed."""
    kept = {axis for node in outputs for axis in _names(node, view)}
    shapes = [node.shape[view] or () for node in inputs]
    for one, other in combinations(shapes, 2):
        shared = {extent.axis for extent in one} & {extent.axis for extent in other}
        if shared - kept and not shared - kept <= {"one"}:
            axes: dict[str, Extent] = {}
            for extent in (*one, *other):
                if not _chosen(model, extent.axis, one, other):
                    axes.setdefault(_same(model, extent.axis, kept), extent)
            return tuple(axes.values())
    for shape in shapes[:1]:
        lost = {extent.axis for extent in shape} - kept
        if lost and "one" in kept and "one" not in {extent.axis for extent in shape}:
            return tuple(shape)
    return ()


def _names(node: Resolved, view: View) -> set[str]:
    return {extent.axis for extent in node.shape[view] or ()}


def _same(model: Model, axis: str, kept: set[str]) -> str:
    """Positions are queries; and where each query head has a key head of its own, those are one axis."""
    if axis == "positions":
        return "queries"
    sizes = model.architecture.sizes
    alike = axis == "kv_heads" and "q_heads" in kept and axis not in kept
    return "q_heads" if alike and sizes.get("q_heads") == sizes.get("kv_heads") else axis


def _chosen(model: Model, axis: str, *shapes: tuple[Extent, ...]) -> bool:
    """Whether only some of an axis take part: the experts that each token is sent to."""
    per_token = f"{axis}_per_token"
    return per_token in model.architecture.sizes and any(
        factor.axis == per_token for shape in shapes for extent in shape for factor in extent.factors
    )


def _weights_read(
    model: Model, source: Resolved, factors: tuple[Extent, ...], outputs: list[Resolved], view: View
) -> Amount:
    """All of a weight; only the rows that are looked up; in decode only the experts that are chosen."""
    shape = source.shape[view] or ()
    kept = {axis for node in outputs for axis in _names(node, view)}
    used = {extent.axis for extent in factors} | kept
    unused = [extent for extent in shape if extent.axis not in used]
    for extent in unused:
        per_token = model.architecture.sizes.get(f"{extent.axis}_per_token")
        if per_token is None and not factors:
            return reduce(add, (amount(node.shape[view] or (), BYTES) for node in outputs))
        if per_token is not None and view == "decode":
            rest = [other for other in shape if other is not extent]
            return Amount({("B",): amount(rest, BYTES * per_token).at({})})
    return amount(shape, BYTES)
