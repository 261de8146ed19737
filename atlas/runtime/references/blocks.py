"""Blocks that stand in for others: they let a model's own forward pass run any one part of itself.

What leads up to a block is answered by a `Feed`, what follows is cut off by an `End`; so the arguments that a block is
called with (positions, masks, caches) come from the model's own code, and none of it is written down again here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import nn


class Reached(Exception):
    """The part that was asked for is done."""


class Feed(nn.Module):
    """Stands for a block: gives what it gave."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value

    def forward(self, *_: object, **__: object) -> object:
        return self.value


class End(nn.Module):
    """Stands for all blocks from some point on, which are not wanted."""

    def forward(self, *_: object, **__: object) -> None:
        raise Reached


@contextlib.contextmanager
def before(block: nn.Module, tell: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """While entered, `tell` gets the block's first argument before each call."""
    handle = block.register_forward_pre_hook(lambda _, arguments: tell(arguments[0]))
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def counted(block: nn.Module, tell: Callable[[int], None]) -> Iterator[None]:
    """While entered, `tell` gets how many values the block gives in a tuple after each call; 0 for one alone."""
    handle = block.register_forward_hook(lambda _, __, out: tell(len(out) if isinstance(out, tuple) else 0))
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def given(block: nn.Module, value: torch.Tensor) -> Iterator[None]:
    """While entered, the block takes this as its first argument, whatever it is called with."""
    handle = block.register_forward_pre_hook(lambda _, arguments: (value, *arguments[1:]))
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def after(block: nn.Module, tell: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """While entered, `tell` gets the block's result after each call (of several the first: the stream)."""
    handle = block.register_forward_hook(lambda _, __, out: tell(out[0] if isinstance(out, tuple) else out))
    try:
        yield
    finally:
        handle.remove()
