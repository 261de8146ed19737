"""Every expression of the reference code as a thing that can be captured, whether a node is declared there or not.

An expression is named by where it stands: `code/Attention.forward/196.17-196.82` (lines and byte columns of the
pinned file) as a block computes it, `outer-code/...` as it is computed before or after all blocks, and `/2` at the end
where that gives several values and the second is meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from atlas.errors import AnchorError, NotFound
from atlas.graph.nodes import Tensor
from atlas.provenance.resolution import Span
from atlas.runtime.recorder import Site
from atlas.runtime.watch import Loaded

INNER, OUTER = "code/", "outer-code/"
NAME = re.compile(r"(?P<prefix>(outer-)?code/)(?P<function>[\w.]+)/(?P<span>\d+\.\d+-\d+\.\d+)(/(?P<turn>\d+))?")


@dataclass(frozen=True)
class Expression:
    """One expression: its name, where it stands, and the nodes that are declared there.

    `name` is without prefix. Several nodes where the same code serves several, as RMSNorm does.
    """

    name: str
    function: str
    span: Span
    text: str
    site: Site
    nodes: tuple[str, ...]


class Expressions:
    """All expressions of one loaded file that an instruction computes, by name."""

    def __init__(self, loaded: Loaded, hooks: Mapping[str, Tensor]) -> None:
        """`hooks` are the declared tensors by path."""
        self._loaded = loaded
        self._hooks = hooks

    @cached_property
    def all(self) -> Mapping[str, Expression]:
        """Every expression outside constructors, in the order of the file."""
        declared = self._declared
        found: dict[str, Expression] = {}
        for function in self._loaded.syntax.functions():
            if function.endswith("__init__"):
                continue
            for place in self._loaded.syntax.expressions(function):
                if place.span is None:
                    continue
                name = place.expression
                try:
                    instructions = self._loaded.instructions(place)
                except AnchorError:
                    continue  # in a nested code object, or folded away by the compiler
                found[name] = Expression(
                    name, function, place.span, place.text, Site(name, instructions), tuple(declared.get(name, ()))
                )
        return found

    def find(self, name: str) -> Expression:
        """An expression by its name, with or without a turn. Raises `NotFound`."""
        match = NAME.fullmatch(name)
        found = self.all.get(f"{match['function']}/{match['span']}") if match else None
        if found is None:
            raise NotFound(
                f"No expression of the reference code is called {name!r}.",
                "GET /api/runs/{id}/expressions lists those of a pass.",
            )
        return found

    @cached_property
    def _declared(self) -> Mapping[str, list[str]]:
        """The nodes that are hooked at each expression."""
        found: dict[str, list[str]] = {}
        for path, node in self._hooks.items():
            place = self._loaded.syntax.watchable(node.hook)
            if place.span is not None and place.element is None:
                found.setdefault(place.expression, []).append(path)
        return found


def is_expression(name: str) -> bool:
    """Whether a name is that of an expression rather than a node's path."""
    return name.startswith((INNER, OUTER))


def turn_of(name: str) -> int | None:
    """Which of several values is meant, from 1; None for the last."""
    match = NAME.fullmatch(name)
    return int(match["turn"]) if match and match["turn"] else None
