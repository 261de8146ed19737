"""Arrays that remember how each of their numbers was made: a reference evaluated on them explains itself.

A declared reference is a few lines of numpy. Given `Tracked` arrays instead of plain ones it computes the same, and
every element of its result can then be asked for its formula: numbers, where they came from, and what was done to
them. Moving numbers about (views, slices, joins, repeats) leaves no trace in a formula; arithmetic, sums and products
do. Nothing here knows of operations, nodes or models, so what is written for one architecture serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from atlas.inspection.arrays import Array
from atlas.inspection.formulas import Formula, How, Index
from atlas.inspection.makers import Contracted, Element, Fixed, Given, Maker, Picked, Ranked, Reduced

Ids = npt.NDArray[np.int64]


class Untraceable(TypeError):
    """The reference does something whose numbers are not followed here."""


class Tracked(np.lib.mixins.NDArrayOperatorsMixin):
    """An array whose elements know their makers. `ids` are places in their makers' arrays; None: its own, in order."""

    __slots__ = ("_ids", "_makers", "_which", "value")

    def __init__(
        self, value: Array, makers: tuple[Maker, ...], ids: Ids | None = None, which: Ids | None = None
    ) -> None:
        self.value = value
        self._makers = makers
        self._ids = ids
        self._which = which

    @classmethod
    def given(cls, name: str, value: Array) -> Tracked:
        """An input under its name."""
        return cls(value, (Given(name, value),))

    def formula(self, index: Index, depth: int = 0) -> Formula:
        """How the element at an index was made."""
        maker = self._makers[int(self._which[index]) if self._which is not None else 0]
        place = (
            int(self._ids[index])
            if self._ids is not None
            else int(np.ravel_multi_index(index, self.shape) if index else 0)
        )
        return maker.formula(place, depth)

    # What numpy asks of an array

    @property
    def shape(self) -> Index:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def size(self) -> int:
        return self.value.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.value.dtype

    @property
    def T(self) -> Tracked:  # noqa: N802
        return self.transpose()

    @property
    def real(self) -> Tracked:
        return self if self.dtype.kind != "c" else _element("real", np.real, self)

    @property
    def imag(self) -> Tracked:
        return _element("imag", np.imag, self)

    def __int__(self) -> int:
        return int(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Tracked]:
        return (self[at] for at in range(len(self)))

    def __array__(self, *_: object, **__: object) -> Array:
        raise Untraceable("it is made a plain array")

    def __setitem__(self, *_: object) -> None:
        raise Untraceable("it is written to in place")

    def __getitem__(self, index: Any) -> Tracked:
        parts = index if isinstance(index, tuple) else (index,)
        choosers = tuple(part for part in parts if isinstance(part, Tracked))
        plain = tuple(part.value if isinstance(part, Tracked) else part for part in parts)
        found = _moved((self,), lambda arrays: arrays[0][plain])
        if not choosers or choosers[0].dtype == np.bool_:  # which elements a mask keeps is no part of them
            return found
        if parts[: len(choosers)] != choosers or len({chooser.shape for chooser in choosers}) > 1:
            raise Untraceable("it is indexed by a value, further in")
        return Tracked(found.value, (Picked(found, choosers),))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Tracked:
        if method == "reduce" and ufunc in _REDUCING:
            return _reduced(_REDUCING[ufunc], track(inputs[0]), options.get("axis", 0), options.get("keepdims", False))
        if method != "__call__" or options or ufunc.nout != 1:
            raise Untraceable(f"{ufunc.__name__} is called in a way that is not followed")
        if ufunc is np.matmul:
            return _matmul(track(inputs[0]), track(inputs[1]))
        if ufunc.signature is not None:
            raise Untraceable(f"{ufunc.__name__} is not followed")
        return _element(ufunc.__name__, ufunc, *inputs)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        known = _FUNCTIONS.get(function)
        if known is None:
            raise Untraceable(f"{getattr(function, '__name__', function)} is not followed")
        return known(*args, **kwargs)

    # Methods that references call

    def sum(self, axis: Any = None, keepdims: bool = False) -> Tracked:
        return _reduced("sum", self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Tracked:
        return _reduced("mean", self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Tracked:
        return _reduced("max", self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Tracked:
        return _reduced("min", self, axis, keepdims)

    def reshape(self, *shape: Any) -> Tracked:
        wanted = shape[0] if len(shape) == 1 else shape
        return _moved((self,), lambda arrays: arrays[0].reshape(wanted))

    def transpose(self, *axes: Any) -> Tracked:
        return _moved((self,), lambda arrays: arrays[0].transpose(*axes))

    def swapaxes(self, one: int, other: int) -> Tracked:
        return _moved((self,), lambda arrays: arrays[0].swapaxes(one, other))

    def ravel(self) -> Tracked:
        return self.reshape(-1)

    def astype(self, dtype: Any, **_: object) -> Tracked:
        return Tracked(self.value.astype(dtype), self._makers, self._ids, self._which)

    def conj(self) -> Tracked:
        return _element("conjugate", np.conjugate, self)

    def _places(self) -> Array:
        """Places in the makers' arrays, without memory where they are its own, in order."""
        return self._ids if self._ids is not None else np.arange(self.size).reshape(self.shape)


def track(value: Any) -> Tracked:
    """Anything as a tracked array; what is not yet one is a constant."""
    if isinstance(value, Tracked):
        return value
    array = np.asarray(value)
    return Tracked(array, (Fixed(array),))


def _element(name: str, function: Callable[..., Any], *inputs: Any) -> Tracked:
    operands = tuple(track(item) for item in inputs)
    with np.errstate(all="ignore"):
        value = np.asarray(function(*(operand.value for operand in operands)))
    return Tracked(value, (Element(name, value, operands),))


def _moved(sources: Sequence[Tracked], move: Callable[[Sequence[Array]], Any]) -> Tracked:
    """The same numbers elsewhere: what moves them moves their places as well."""
    value = np.asarray(move([source.value for source in sources]))
    makers = tuple(maker for source in sources for maker in source._makers)
    if len(sources) == 1 and sources[0]._ids is None:
        return Tracked(value, makers, _places_of(sources[0].shape, move))
    ids = np.asarray(move([source._places() for source in sources]))
    if len(makers) == 1:
        return Tracked(value, makers, ids)
    numbers, begin = [], 0
    for source in sources:
        which = np.zeros(source.shape, np.int64) if source._which is None else source._which
        numbers.append(which + begin)
        begin += len(source._makers)
    return Tracked(value, makers, ids, np.asarray(move(numbers)))


def _places_of(shape: Index, move: Callable[[Sequence[Array]], Any]) -> Ids:
    """Where a move takes places in row order. Each axis is moved as a view of a line, so that picking a few elements of
    a matrix of billions needs no matrix of places.
    """
    total: Any = 0
    stride = 1
    for axis in range(len(shape) - 1, -1, -1):
        line = np.arange(shape[axis], dtype=np.int64) * stride
        spread = np.broadcast_to(line.reshape((-1,) + (1,) * (len(shape) - axis - 1)), shape)
        total = total + np.asarray(move([spread]))
        stride *= shape[axis]
    return np.asarray(total if shape else move([np.zeros((), np.int64)]), np.int64)


def _reduced(how: How, operand: Tracked, axis: Any, keepdims: bool) -> Tracked:
    ndim = operand.ndim
    axes = tuple(range(ndim)) if axis is None else tuple(one % ndim for one in np.atleast_1d(axis).tolist())
    functions: dict[How, Callable[..., Any]]
    functions = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "product": np.prod}
    with np.errstate(all="ignore"):
        value = np.asarray(functions[how](operand.value, axis=axes, keepdims=keepdims))
    return Tracked(value, (Reduced(how, value, operand, axes, keepdims),))


def _contracted(subscripts: str, *operands: Any, **_: object) -> Tracked:
    words, output = subscripts.replace(" ", "").split("->")
    tracked = tuple(track(operand) for operand in operands)
    value = np.asarray(np.einsum(subscripts, *(operand.value for operand in tracked), optimize=True))
    return Tracked(value, (Contracted(value, tracked, tuple(words.split(",")), output),))


def _matmul(one: Tracked, other: Tracked) -> Tracked:
    if one.ndim < 2 or other.ndim < 2:
        raise Untraceable("a product with a vector is not followed")
    batch = "abcdefg"[: max(one.ndim, other.ndim) - 2]
    left, right = batch[len(batch) - one.ndim + 2 :], batch[len(batch) - other.ndim + 2 :]
    return _contracted(f"{left}xy,{right}yz->{batch}xz", one, other)


def _where(condition: Any, one: Any, other: Any) -> Tracked:
    """The number chosen; what chose it is not part of it."""
    chosen = condition.value if isinstance(condition, Tracked) else np.asarray(condition)
    shape = np.broadcast_shapes(
        chosen.shape, np.shape(getattr(one, "value", one)), np.shape(getattr(other, "value", other))
    )
    spread = [_moved((track(item),), lambda arrays: np.broadcast_to(arrays[0], shape)) for item in (one, other)]
    return _moved(spread, lambda arrays: np.where(chosen, arrays[0], arrays[1]))


def _outer(one: Any, other: Any) -> Tracked:
    return _element("multiply", np.multiply, track(one).reshape(-1, 1), track(other).reshape(1, -1))


def _split(array: Any, parts: Any, axis: int = 0) -> list[Tracked]:
    whole = track(array)

    def part(at: int) -> Tracked:
        return _moved((whole,), lambda arrays: np.split(arrays[0], parts, axis)[at])

    return [part(at) for at in range(len(np.split(whole.value, parts, axis)))]


def _chosen_along(array: Any, indices: Any, axis: int) -> Tracked:
    chosen: Array = indices.value if isinstance(indices, Tracked) else np.asarray(indices)
    return _moved((track(array),), lambda arrays: np.take_along_axis(arrays[0], chosen, axis))


def _sorted(array: Any, axis: int = -1) -> Tracked:
    tracked = track(array)
    order = np.argsort(tracked.value, axis=axis, kind="stable")
    return _moved((tracked,), lambda arrays: np.take_along_axis(arrays[0], order, axis))


def _ranked(array: Any, axis: int = -1, kind: Any = None) -> Tracked:
    tracked = track(array)
    value = np.argsort(tracked.value, axis=axis, kind=kind)
    return Tracked(value, (Ranked(value, tracked, axis % tracked.ndim),))


def _put_along(array: Array, indices: Any, values: Any, axis: int) -> None:
    """Into a plain array of choices."""
    if isinstance(array, Tracked) or isinstance(values, Tracked):
        raise Untraceable("numbers are put into an array in place")
    np.put_along_axis(array, indices.value, values, axis)


def _alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that moves the numbers of its first argument."""

    def moved(array: Any, *args: Any, **kwargs: Any) -> Tracked:
        return _moved((track(array),), lambda arrays: function(arrays[0], *args, **kwargs))

    return moved


def _together(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that joins the arrays of its first argument."""

    def moved(arrays: Sequence[Any], *args: Any, **kwargs: Any) -> Tracked:
        return _moved([track(array) for array in arrays], lambda plain: function(plain, *args, **kwargs))

    return moved


def _triangle(function: Callable[..., Any]) -> Callable[..., Any]:
    def kept(array: Any, k: int = 0) -> Tracked:
        tracked = track(array)
        return _where(function(np.ones(tracked.shape, bool), k), tracked, np.zeros((), tracked.dtype))

    return kept


def _reducing(how: How) -> Callable[..., Any]:
    def reduce(array: Any, axis: Any = None, keepdims: bool = False) -> Tracked:
        return _reduced(how, track(array), axis, keepdims)

    return reduce


def _plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result is a choice or a fact, not a number that is followed."""

    def plain(array: Any, *args: Any, **kwargs: Any) -> Any:
        return function(getattr(array, "value", array), *args, **kwargs)

    return plain


_REDUCING: Mapping[Any, How] = {np.add: "sum", np.maximum: "max", np.minimum: "min", np.multiply: "product"}
_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    np.einsum: _contracted,
    np.where: _where,
    np.outer: _outer,
    np.split: _split,
    np.sum: _reducing("sum"),
    np.mean: _reducing("mean"),
    np.max: _reducing("max"),
    np.min: _reducing("min"),
    np.prod: _reducing("product"),
    np.triu: _triangle(np.triu),
    np.tril: _triangle(np.tril),
    np.real: lambda array: track(array).real,
    np.imag: lambda array: track(array).imag,
    np.clip: lambda array, low, high: _element("clip", np.clip, array, low, high),
    **{
        function: _alone(function)
        for function in (np.reshape, np.transpose, np.moveaxis, np.swapaxes, np.expand_dims, np.squeeze, np.repeat)
    },
    **{function: _alone(function) for function in (np.tile, np.flip, np.roll, np.broadcast_to, np.ravel, np.take)},
    **{function: _together(function) for function in (np.concatenate, np.stack, np.hstack, np.vstack)},
    np.take_along_axis: _chosen_along,
    np.put_along_axis: _put_along,
    np.sort: _sorted,
    np.argsort: _ranked,
    **{function: _plainly(function) for function in (np.unique, np.nonzero, np.shape, np.ndim, np.size)},
}
