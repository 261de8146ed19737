"""What flowed into what: from the torch calls of a recorded pass, which captured values each captured value is made of.

A value that is not captured passes on what it was made of, so views, casts and intermediate results are followed.
Writing in place adds to whatever shares the memory. Arguments that lend only dtype, device or shape carry nothing.
All tensors are kept alive, since they are told apart by identity: meant for tensors without numbers (FakeTensorMode).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from atlas.runtime.recorder import Key, storage_key, writes_in_place

Name = tuple[Key, int | None]
Names = set[Name]
"""All names of one object: a value that is handed on as it is (a block's output, the next block's input) has two."""

LENDS_SECOND = frozenset({"type_as", "view_as", "expand_as", "reshape_as", "resize_as_", "to"})
"""Methods whose second argument, if it is a tensor, gives only its dtype, device or shape."""


class Flow:
    """Watches calls and captures, as a `Recorder` tells them."""

    def __init__(self) -> None:
        self._made_of: dict[Name, list[Iterable[frozenset[Name] | Names]]] = defaultdict(list)
        self._alive: list[torch.Tensor] = []
        self._own: dict[int, tuple[tuple[Names, ...], int]] = {}  # what a tensor carries, and since when
        self._named: dict[int, Names] = {}
        self._writes: dict[int, list[tuple[int, tuple[Names, ...]]]] = defaultdict(list)
        self._sharing: dict[int, list[torch.Tensor]] = defaultdict(list)
        self._now = 0

    def name(self, tensor: torch.Tensor, key: Key, layer: int | None) -> None:
        """Give a value its name: a parameter before the pass, or what has been captured."""
        self._now += 1
        sources = self._carried(tensor)
        named = self._named.get(id(tensor))
        if named is not None and sources and sources[0] is named and len(sources) == 1:
            self._made_of[key, layer].append([frozenset(named)])
            named.add((key, layer))
            return
        self._made_of[key, layer].append(sources)
        names = self._named[id(tensor)] = {(key, layer)}
        self._keep(tensor)
        self._own[id(tensor)] = ((names,), self._now)

    def called(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """One torch call."""
        self._now += 1
        given = [*_tensors(args), *_tensors(tuple(kwargs.values()))]
        before = {id(tensor) for tensor in given}
        name = getattr(func, "__name__", "")
        if writes_in_place(func, kwargs):
            target = kwargs.get("out", args[0] if args else None)
            rest = args if kwargs.get("out") is not None else args[1:]
            carried = self._all(_lent(name, (None, *rest), {k: v for k, v in kwargs.items() if k != "out"}))
            for tensor in _tensors((target,)):
                self._carried(tensor)
                self._writes[storage_key(tensor)].append((self._now, carried))
        else:
            carried = self._all(_lent(name, args, kwargs))
        for tensor in _tensors((result,)):
            if id(tensor) not in before and id(tensor) not in self._own:
                self._keep(tensor)
                self._own[id(tensor)] = (carried, self._now)

    def made_of(self, key: Key, layer: int | None) -> list[tuple[frozenset[Name], ...]]:
        """For each time that a value was captured, what it was made of: for each captured value, all its names."""
        return [tuple(frozenset(names) for names in sources) for sources in self._made_of.get((key, layer), ())]

    def following(self) -> Flow:
        """For another pass of the same model: what was named so far is still known, what was written is not."""
        other = Flow()
        other._alive, other._own, other._named = list(self._alive), dict(self._own), dict(self._named)
        for storage, tensors in self._sharing.items():
            other._sharing[storage] = list(tensors)
        for name, sources in self._made_of.items():
            other._made_of[name] = list(sources)
        other._now = self._now
        return other

    def _all(self, tensors: Iterable[torch.Tensor]) -> tuple[Names, ...]:
        found: dict[int, Names] = {}
        for tensor in tensors:
            found.update((id(names), names) for names in self._carried(tensor))
        return tuple(found.values())

    def _carried(self, tensor: torch.Tensor) -> tuple[Names, ...]:
        """The captured values that a tensor's numbers come from."""
        storage = storage_key(tensor)
        if id(tensor) not in self._own:
            # Made where no call is told (an autograd function, say): it is what it shares its memory with.
            shared = self._same_memory(tensor, storage)
            self._keep(tensor)
            self._own[id(tensor)] = self._own[id(shared)] if shared is not None else ((), self._now)
            if shared is not None and id(shared) in self._named:
                self._named[id(tensor)] = self._named[id(shared)]
        own, since = self._own[id(tensor)]
        found = {id(names): names for names in own}
        for when, names_written in self._writes.get(storage, ()):
            if when > since:
                found.update((id(names), names) for names in names_written)
        return tuple(found.values())

    def _same_memory(self, tensor: torch.Tensor, storage: int) -> torch.Tensor | None:
        place = _place(tensor)
        sharing = self._sharing.get(storage, [])
        exactly = [other for other in sharing if _place(other) == place]
        found = exactly or sharing
        return found[-1] if found else None

    def _keep(self, tensor: torch.Tensor) -> None:
        self._alive.append(tensor)
        self._sharing[storage_key(tensor)].append(tensor)


def _place(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())


def _lent(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors among the arguments whose numbers are used."""
    if name.endswith("_like") or name.startswith("new_"):
        args = args[1:]
    elif name in LENDS_SECOND:
        args = args[:1]
        kwargs = {}
    yield from _tensors(args)
    yield from _tensors(kwargs.values())
