"""An operation's executable reference, evaluated on captured inputs, and how far a captured output is from it.

The reference is the equation written a second time, in float64, so the two share no code. Rows are compared, since
residual streams hold entries so large that an error relative to a tensor's maximum shows nothing. Knows no runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from atlas.errors import DeclarationError
from atlas.graph.nodes import Cache, Operation, Parameter, Tensor, Use
from atlas.graph.resolve import Graph, Resolved
from atlas.inspection.arrays import Array
from atlas.inspection.frames import COMPUTED, Pass

TOLERANCES: Mapping[str, float] = {
    "float64": 1e-12,
    "complex128": 1e-12,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 4e-3,
    "bfloat16": 3e-2,
}
"""By dtype: the largest norm of the difference over the norm of the row, where inputs are well conditioned."""

ROUNDINGS: Mapping[str, float] = {
    "float64": 2.0**-52,
    "complex128": 2.0**-52,
    "float32": 2.0**-23,
    "complex64": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}
"""By dtype: the distance from 1 to the next larger number."""


def coarsest(dtypes: Iterable[str]) -> str:
    """The dtype with the largest rounding: what an output computed from all of them can be held to."""
    return max(dtypes, key=lambda name: ROUNDINGS.get(name, 0.0))


CONDITION = 4.0
"""How many times the change that rounding the inputs once more would make, a row may differ by."""

WORK = 2_000_000_000
"""Products and sums that one evaluation may take; beyond it a stated part of the positions is checked."""

WIDE = 1 << 24
"""Elements of activations that one evaluation may hold."""

HEAVY = 1 << 26
"""Elements of a parameter that one evaluation takes; of a larger one, a part of the outputs is checked."""

COPIED = 1 << 22
"""Elements of a parameter that is copied to float64 beforehand; a larger one is turned where it meets other numbers."""


@dataclass(frozen=True)
class Bound:
    """An operation with a value for each parameter of its reference, ready to be evaluated.

    `axes` are those of the arrays among them, `paths` the nodes whose values they are. `kept` are the indices that are
    evaluated of axes of which not all are.
    `unordered` is the axis along which the output comes in any order.
    """

    operation: Resolved
    arguments: Mapping[str, object]
    axes: Mapping[str, tuple[str, ...]]
    paths: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unordered: str | None = None


@dataclass(frozen=True)
class Comparison:
    """A captured output against its reference.

    `worst_row` is the largest norm of a difference over the norm of its row, and `worst_at` that row's indices, counted
    in the whole tensor. `tolerance` is what that row was allowed. `ok` says that every row is within its own. `kept`
    says of which axes only a part was checked, and how large a part.
    """

    ok: bool
    max_abs_error: float | None
    worst_row: float | None
    worst_at: tuple[int, ...]
    tolerance: float
    rows_checked: int
    rows: int
    kept: Mapping[str, int] = field(default_factory=dict)


@lru_cache(maxsize=4096)
def parameters_of(reference: Callable[..., object]) -> tuple[str, ...]:
    """What a reference takes, by name. Asked for in every layer and pass."""
    return tuple(inspect.signature(reference).parameters)


def uses_of(graph: Graph, operation: Resolved, layer: int | None = None) -> list[tuple[Use, str]]:
    """Each input of an operation, in this layer, with the absolute path of its node."""
    return graph.uses(operation.path, None, layer)


def wanted_inputs(graph: Graph, operation: Resolved, layer: int | None = None) -> list[str]:
    """The nodes whose values the reference of an operation takes; a replaced input as well as what replaces it."""
    node = operation.node
    assert isinstance(node, Operation)
    takes = parameters_of(node.reference)
    return list(dict.fromkeys(path for use, path in uses_of(graph, operation, layer) if use.parameter in takes))


def bind(
    graph: Graph,
    operation: Resolved,
    output: str,
    made_in: Pass,
    arrays: Mapping[str, tuple[Array, tuple[str, ...]]],
    wanted: Mapping[str, tuple[int, ...]] | None = None,
) -> Bound | str:
    """Values for the parameters of an operation's reference, in float64; in words, what is missing for them.

    `arrays` holds inputs and `output` by path, with their axes. `wanted` are indices along axes that are `independent`;
    without it, all that can be afforded. Rows of a cache before this pass (`before`) are those
    of the output itself: they were written by earlier passes, and this one must leave them as they are.
    """
    node = operation.node
    assert isinstance(node, Operation)
    if node.derived:
        return "Derived from the code while it ran: nobody has written its equation."
    arguments: dict[str, object] = {}
    axes: dict[str, tuple[str, ...]] = {}
    paths: dict[str, str] = {}
    takes = parameters_of(node.reference)
    for use, path in uses_of(graph, operation, made_in.layer):
        if use.parameter in takes and path in arrays and not (use.instead_of and use.parameter in arguments):
            arguments[use.parameter], axes[use.parameter] = arrays[path]
            paths[use.parameter] = path
    if "before" in takes and output in arrays and isinstance(graph[output].node, Cache):
        cache, names = arrays[output]
        before = [slice(0, made_in.kept) if name == "keys" else slice(None) for name in names]
        arguments["before"], axes["before"] = cache[tuple(before)], names
        paths["before"] = output
    facts = {"start_pos": made_in.before, "positions": made_in.computed}
    numbers = {**facts, **graph.architecture.settings, **graph.architecture.sizes}
    for name in takes:
        if name not in arguments:
            if name not in numbers:
                return f"The pass does not compute what its reference takes as {name}."
            arguments[name] = numbers[name]
    weights = {name for name, path in paths.items() if isinstance(graph[path].node, Parameter)}
    if wanted is not None:
        kept = dict(wanted)
    else:
        free = independent(graph, operation, output, made_in.layer)
        kept = _affordable(free, weights, arguments, axes, made_in.computed)
    for name, names in axes.items():
        array = arguments[name]
        assert isinstance(array, np.ndarray)
        arguments[name] = _wide(_part(array, names, kept), copy=name not in weights or array.size <= COPIED)
    declared = graph[output].node
    return Bound(operation, arguments, axes, paths, kept, declared.unordered if isinstance(declared, Tensor) else None)


def independent(graph: Graph, operation: Resolved, output: str, layer: int | None = None) -> frozenset[str]:
    """Axes along which an operation may be evaluated one index at a time, all its other inputs as they are.

    What a pass computes at one position takes from other positions only what is in the cache, so positions are, unless
    the reference asks how many there are. The outputs of a matrix, one a row of it, are independent of each other where
    nothing else has that axis.
    """
    node, made = operation.node, graph[output].node
    assert isinstance(node, Operation)
    assert isinstance(made, Tensor)
    takes = parameters_of(node.reference)
    inputs = [graph[path].node for use, path in uses_of(graph, operation, layer) if use.parameter in takes]
    found: set[str] = set()
    if {"positions", "start_pos", "before"}.isdisjoint(takes) and set(made.shape) & set(COMPUTED):
        found |= set(COMPUTED)
    last = made.shape[-1]
    with_it = [given for given in inputs if isinstance(given, Tensor | Parameter) and last in given.shape]
    if (
        len(with_it) == 1
        and isinstance(with_it[0], Parameter)
        and with_it[0].shape[0] == last
        and len(with_it[0].shape) > 1
    ):
        found.add(last)
    return frozenset(found)


def evaluate(bound: Bound, output: str) -> Array:
    """The output that the reference gives for a node, float64 or complex128.

    Raises `DeclarationError` where these inputs do not fit the reference.
    """
    node = bound.operation.node
    assert isinstance(node, Operation)
    try:
        with np.errstate(all="ignore"):  # what is no number is compared in place
            made = node.reference(**bound.arguments)
    except (ValueError, IndexError, TypeError, ArithmeticError) as error:
        raise DeclarationError(
            f"The reference of {node.path!r} cannot be evaluated on what was captured: {error}.",
            "Compare its axes with those of its inputs.",
        ) from error
    values = made if isinstance(made, tuple) else (made,)
    value: Array = np.asarray(values[bound.operation.outputs.index(output)])
    return value


def compare(bound: Bound, output: str, captured: Array, axes: Sequence[str], dtype: str) -> Comparison:
    """A captured output, whole, against the reference's.

    A row beyond its dtype's tolerance is allowed `CONDITION` times what one more rounding of the inputs changes: the
    angle of a rotation grows with its position, and a sum may cancel, so there float32 itself has no better answer.
    """
    expected = evaluate(bound, output)
    rows = _rows(captured.shape)
    found = _part(captured, axes, bound.kept)
    if bound.unordered is not None and expected.shape == found.shape:
        along = list(axes).index(bound.unordered)
        found, expected = np.sort(found, axis=along), np.sort(expected, axis=along)
    base = TOLERANCES.get(dtype, 0.0)
    if expected.shape != found.shape:
        return Comparison(False, None, None, (), base, 0, rows)
    errors, largest = row_errors(found, expected)
    allowed = np.full_like(errors, base)
    if (errors > base).any():
        nudged = evaluate(_rounded(bound, ROUNDINGS.get(dtype, 0.0)), output)
        change, _ = row_errors(nudged, expected)
        allowed += CONDITION * np.where(np.isfinite(change), change, 0.0)
    beyond = errors / np.where(allowed > 0, allowed, 1.0) if base else errors
    at = np.unravel_index(int(np.argmax(beyond)), errors.shape) if errors.size else ()
    worst = float(errors[at]) if errors.size else 0.0
    return Comparison(
        ok=bool((errors <= allowed).all()),
        max_abs_error=largest if np.isfinite(largest) else None,
        worst_row=worst if np.isfinite(worst) else None,
        worst_at=_in_whole(at, axes, bound.kept),
        tolerance=float(allowed[at]) if errors.size else base,
        rows_checked=int(errors.size),
        rows=rows,
        kept={axis: len(bound.kept[axis]) for axis in axes if axis in bound.kept},
    )


def row_errors(found: Array, expected: Array) -> tuple[Array, float]:
    """For each row (the last axis), the norm of the difference over the norm of the expected row; and the largest
    absolute difference.

    Infinities and what is no number must stand in the same places (a row in which they do not is infinitely wrong),
    and take no part in norms. A row of zeros must be matched exactly.
    """
    found, expected = np.atleast_1d(found), np.atleast_1d(expected)
    with np.errstate(invalid="ignore"):
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        finite = np.isfinite(found) & np.isfinite(expected)
        gap = np.where(finite, found - expected, np.where(same, 0.0, np.inf))
    size = np.where(finite, np.abs(expected), 0.0)
    gap = np.abs(gap)
    largest = float(gap.max()) if gap.size else 0.0
    finite_gap = np.where(np.isfinite(gap), gap, 0.0)
    # Squares of float64 numbers may leave its range, so rows are brought to the size of one first.
    scale = np.maximum(np.maximum(size, finite_gap).max(axis=-1, keepdims=True, initial=0.0), np.finfo(np.float64).tiny)
    gaps = np.linalg.norm(gap / scale, axis=-1)
    sizes = np.linalg.norm(size / scale, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(gaps == 0, 0.0, gaps / sizes)
    return np.atleast_1d(errors), largest


def _rounded(bound: Bound, rounding: float) -> Bound:
    """The same inputs, each number moved by one rounding, up or down as a fixed sequence says."""
    signs = np.random.default_rng(0)
    moved: dict[str, object] = {}
    for name, value in bound.arguments.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "fc":
            moved[name] = value * (1.0 + rounding * (1 - 2 * signs.integers(0, 2, value.shape)))
        else:
            moved[name] = value
    return replace(bound, arguments=moved)


def _affordable(
    free: frozenset[str],
    weights: set[str],
    arguments: Mapping[str, object],
    axes: Mapping[str, tuple[str, ...]],
    computed: int,
) -> dict[str, tuple[int, ...]]:
    """Of independent axes along which there is too much to evaluate, the indices that are, spread evenly."""
    kept: dict[str, tuple[int, ...]] = {}
    moving = still = 0
    for name, names in axes.items():
        array = arguments[name]
        assert isinstance(array, np.ndarray)
        size = array.size
        if name in weights and size > HEAVY and names[0] in free:
            kept[names[0]] = _spread(array.shape[0], HEAVY * array.shape[0] // size)
            size = HEAVY
        if set(names).isdisjoint(COMPUTED):
            still += size
        else:
            moving += size
    if computed > 1 and moving and not free.isdisjoint(COMPUTED):
        count = min(computed, WORK // max(still, 1), WIDE * computed // moving)
        if count < computed:
            kept |= dict.fromkeys(COMPUTED, _spread(computed, count))
    return kept


def _spread(size: int, count: int) -> tuple[int, ...]:
    """`count` indices of an axis, at least two, the first and the last among them."""
    return tuple(int(at) for at in np.unique(np.linspace(0, size - 1, max(count, 2)).round()))


def _part(array: Array, axes: Sequence[str], kept: Mapping[str, tuple[int, ...]]) -> Array:
    for axis, name in enumerate(axes):
        if name in kept:
            array = np.take(array, kept[name], axis=axis)
    return array


def _in_whole(at: Sequence[np.intp], axes: Sequence[str], kept: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(kept[name][index] if name in kept else int(index) for index, name in zip(at, axes, strict=False))


def _wide(array: Array, *, copy: bool) -> Array:
    if array.dtype.kind == "c":
        return array.astype(np.complex128, copy=False)
    return array.astype(np.float64, copy=False) if array.dtype.kind == "f" and copy else array


def _rows(shape: Sequence[int]) -> int:
    return int(np.prod(shape[:-1])) if len(shape) else 1
