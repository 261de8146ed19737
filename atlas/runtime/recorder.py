"""The recorder: values captured by the expression that makes them, in code that nobody wrote for it.

While a recorder is on, each value that is handed to a watched frame is seen with the instruction that receives
it. Two things make that exact:

- a `TorchFunctionMode` is told of each torch call, whatever its implementation, with its result and its caller;
- a trace function sees every Python frame begin. Where its caller (`frame.f_back`) is watched and stands at a
  watched instruction (`f_lasti`), the frame's return is traced too, with the value that it returns.

A module's call, a plain function and a torch call are then one and the same event: *this instruction received this
value*. So nothing is patched, no module needs a hook, and a function that hands its argument on is no special case.
(A trace function rather than a profile function: it is not called for the many C functions in between.)

Values are kept by reference. Before an in-place operation writes to a storage that a kept value shares, the
value is copied; values in buffers that later passes overwrite (`volatile`) are copied when the recorder stops.
It knows nothing of models: what to watch is given as `Site`s.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from atlas.errors import EnvironmentUnfit

Observer = Callable[[Any, Sequence[Any], Mapping[str, Any], Any], None]
Key = str
Taken = Callable[[Key, int | None, torch.Tensor], None]


@dataclass(frozen=True)
class Instructions:
    """The instructions of one expression: offsets in one code object."""

    code: CodeType
    offsets: frozenset[int]


@dataclass(frozen=True)
class Site:
    """What to capture under `key`: an expression's value, or an argument taken on entry of `code`.

    `within`: only where the frame runs on behalf of that call. `element` picks from a tuple. `condition`: only where
    a local variable holds a text. `joined`: the turns of a loop make one value, put together along the first axis.
    `layers`: only in these.
    """

    key: Key
    at: Instructions
    argument: str | None = None
    within: Instructions | None = None
    element: int | None = None
    condition: tuple[str, str] | None = None
    joined: bool = False
    layers: frozenset[int] | None = None


@dataclass
class Recording:
    """What was captured: for each key and layer (None outside the blocks) the values in order of appearance."""

    values: dict[tuple[Key, int | None], list[torch.Tensor]] = field(default_factory=dict)
    joined: frozenset[Key] = frozenset()

    def last(self, key: Key, layer: int | None = None) -> torch.Tensor | None:
        """The value that came last, or None; of a joined one all turns of its loop, one after another."""
        found = self.values.get((key, layer))
        if not found:
            return None
        return torch.cat(found) if key in self.joined else found[-1]


class _Mode(TorchFunctionMode):
    """Tells the recorder of each torch call."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # This runs for every torch call of a recorded pass, so it is written to be quick.
        recorder = self._recorder
        if kwargs is None:
            kwargs = {}
        # What torch does inside its own call is no business of ours, and costs time to look at.
        sys.settrace(None)
        try:
            if kwargs or _WRITES.get(func, True):
                recorder._before(func, args, kwargs)
            result = func(*args, **kwargs)
            if recorder.observer is not None:
                recorder.observer(func, args, kwargs, result)
            caller = sys._getframe(1)
            offsets = recorder._watched.get(id(caller.f_code))
            if offsets is not None:
                sites = offsets.get(caller.f_lasti)
                if sites is not None:
                    recorder._take(sites, caller, result)
        finally:
            sys.settrace(recorder._traced)
        return result


MODE = _Mode.__torch_function__.__code__


class _Return:
    """Traces one frame to its return. An object rather than a closure, which would be a cycle that keeps frames, and
    with them every tensor in their locals, until the garbage is collected."""

    __slots__ = ("_caller", "_recorder", "_sites")

    def __init__(self, recorder: Recorder, sites: list[Site], caller: FrameType) -> None:
        self._recorder = recorder
        self._sites = sites
        self._caller = caller

    def __call__(self, _frame: FrameType, event: str, value: Any) -> _Return:
        if event == "return":
            self._recorder._take(self._sites, self._caller, value)
        return self


class Recorder(AbstractContextManager["Recorder"]):
    """Records the given sites on this thread while it is entered. `layer` is set by whoever runs the blocks.

    `volatile` are storages (as `storage_key`) that are written again after the recording: their values are copied.
    `observer` is told of every torch call with its arguments and result, and `taken` of every value that is captured,
    with its key and layer: in the order in which they happen, a call before what is captured of it.
    """

    def __init__(
        self,
        sites: Iterable[Site],
        *,
        volatile: Iterable[int] = (),
        observer: Observer | None = None,
        taken: Taken | None = None,
    ) -> None:
        sites = tuple(sites)
        self.recording = Recording(joined=frozenset(site.key for site in sites if site.joined))
        self.layer: int | None = None
        self.observer = observer
        self.taken = taken
        self._volatile = frozenset(volatile)
        self._watched: dict[int, dict[int, list[Site]]] = {}
        self._entered: dict[int, list[Site]] = {}
        self._alive: list[CodeType] = []  # codes are known by id, so they must not go away
        for site in sites:
            self._alive.append(site.at.code)
            if site.argument is not None:
                self._entered.setdefault(id(site.at.code), []).append(site)
                continue
            offsets = self._watched.setdefault(id(site.at.code), {})
            for offset in site.at.offsets:
                offsets.setdefault(offset, []).append(site)
        # Where kept values live is only looked up when something is written: asking a tensor is a torch call too.
        self._fresh: list[tuple[torch.Tensor, tuple[Key, int | None], int]] = []
        self._by_storage: dict[int, list[tuple[tuple[Key, int | None], int]]] = {}
        self._mode: _Mode | None = None
        self._traced = self._trace  # bound once: a bound method is a new object each time it is asked for
        self._previous: Any = None

    def __enter__(self) -> Recorder:
        self._previous = sys.gettrace()
        self._mode = _Mode(self)
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        sys.settrace(self._traced)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._previous)
        if self._mode is not None:
            self._mode.__exit__(kind, value, trace)  # type: ignore[no-untyped-call]
            self._mode = None
        self._index()
        for storage in self._volatile & self._by_storage.keys():
            self._copy(storage)
        self._by_storage.clear()

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """A Python frame begins: trace its return if a watched instruction waits for it."""
        if frame.f_code is MODE:
            return None
        entered = self._entered.get(id(frame.f_code))
        if entered is not None:
            for site in entered:
                self._take([site], frame, frame.f_locals.get(site.argument or ""))
        caller = frame.f_back
        if caller is None:
            return None
        offsets = self._watched.get(id(caller.f_code))
        if offsets is None:
            return None
        sites = offsets.get(caller.f_lasti)
        if sites is None:
            return None
        frame.f_trace_lines = False
        return _Return(self, sites, caller)

    def _take(self, sites: list[Site], frame: FrameType, value: Any) -> None:
        for site in sites:
            if site.within is not None and not _runs_for(frame, site.within):
                continue
            if site.layers is not None and self.layer not in site.layers:
                continue
            if site.condition is not None and frame.f_locals.get(site.condition[0]) != site.condition[1]:
                continue
            taken = value
            if site.element is not None:
                taken = value[site.element] if isinstance(value, tuple | list) and len(value) > site.element else None
            if not isinstance(taken, torch.Tensor):
                continue
            key = (site.key, self.layer)
            values = self.recording.values.setdefault(key, [])
            self._fresh.append((taken, key, len(values)))
            values.append(taken)
            if self.taken is not None:
                self.taken(site.key, self.layer, taken)

    def _before(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Copy what is about to be overwritten."""
        if not writes_in_place(func, kwargs):
            return
        self._index()
        target = kwargs.get("out", args[0] if args else None)
        for tensor in target if isinstance(target, tuple | list) else (target,):
            if isinstance(tensor, torch.Tensor):
                self._copy(storage_key(tensor))

    def _index(self) -> None:
        for tensor, key, index in self._fresh:
            self._by_storage.setdefault(storage_key(tensor), []).append((key, index))
        self._fresh.clear()

    def _copy(self, storage: int) -> None:
        for key, index in self._by_storage.pop(storage, ()):
            self.recording.values[key][index] = self.recording.values[key][index].clone()


def storage_key(tensor: torch.Tensor) -> int:
    """What tells two tensors that share memory: the identity of their storage."""
    return int(tensor.untyped_storage()._cdata)


# Whether a function writes to its first argument, as far as its name tells.
_WRITES: dict[Any, bool] = {}


def writes_in_place(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether a torch function writes to its first argument (or to `out`): `x_()`, `x[...] =`, `x += y`."""
    if kwargs.get("out") is not None:
        return True
    known = _WRITES.get(func)
    if known is None:
        name = getattr(func, "__name__", "")
        inplace = name.endswith("_") and not name.endswith("__")
        augmented = name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
        known = _WRITES[func] = inplace or augmented or name in ("__setitem__", "__set__")
    return known


def _runs_for(frame: FrameType | None, call: Instructions) -> bool:
    """Whether a frame, or one that waits for it, stands at that call."""
    outer = frame.f_back if frame is not None else None
    while outer is not None:
        if outer.f_code is call.code:
            return outer.f_lasti in call.offsets
        outer = outer.f_back
    return False


def require_positions(code: CodeType, path: str) -> None:
    """Raises `EnvironmentUnfit` if the loaded code has no positions, without which no expression can be told."""
    columns = [columns[2] for columns in code.co_positions()]
    if not any(column is not None for column in columns):
        raise EnvironmentUnfit(
            f"Python has loaded {path} without instruction positions, so expressions cannot be told apart.",
            "Start without -X no_debug_ranges and PYTHONNODEBUGRANGES, and delete the .pyc files beside it.",
        )
