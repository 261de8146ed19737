"""Where in a modeling file values come to be: every assignment to a name, every return, every call of a module.

Reads syntax and code objects; runs nothing.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import TypeVar

from atlas.errors import AnchorError
from atlas.graph.anchors import Anchor, at
from atlas.provenance.resolution import Module
from atlas.runtime.recorder import Site
from atlas.runtime.watch import Loaded

RETURNED = "returned"
T = TypeVar("T")


@dataclass(frozen=True)
class Statement:
    """One place that makes a value: the function it is in, the name that the code gives the value, and which one it is.

    `name` is a variable, `returned`, or an attribute with `()` for the call of a module on the way. `nth` counts places
    of the same name in a function, from 1; it is 0 where there is one alone. `element` counts those of a returned
    tuple.
    """

    function: str
    name: str
    nth: int
    anchor: Anchor
    site: Site
    text: str
    element: int | None = None


def statements(loaded: Loaded) -> Mapping[str, Statement]:
    """Every statement of a file that an instruction computes, by the key of its site, in the order of the file.

    Constructors are left out, since they make no value of a pass, and functions inside functions.
    """
    found: dict[str, Statement] = {}
    for function in loaded.syntax.functions():
        if function.endswith("__init__") or "<locals>" in function:
            continue
        for name, nth, element, anchor in _places(loaded.syntax, function):
            key = f"{function}|{name}|{nth}|{element}"
            try:
                site, text = loaded.site(key, anchor), loaded.syntax.resolve(anchor).text
            except AnchorError:
                continue  # a bare name, which no instruction computes, or a function inside another
            found[key] = Statement(function, name, nth, anchor, site, text, element)
    return found


def calls(loaded: Loaded) -> Mapping[tuple[int, int], Anchor]:
    """The anchor of each call in the file, by the identity of its code object and its instruction."""
    found: dict[tuple[int, int], Anchor] = {}
    for function in loaded.syntax.functions():
        written = [ast.unparse(node.func) for node in loaded.syntax.nodes(function) if isinstance(node, ast.Call)]
        for text, nth in _numbered(written):
            anchor = at(function).call(text, nth or None)
            try:
                instructions = loaded.instructions(loaded.syntax.watchable(anchor))
            except AnchorError:
                continue
            found |= {(id(instructions.code), offset): anchor for offset in instructions.offsets}
    return found


def codes(loaded: Loaded) -> Mapping[int, CodeType]:
    """The code objects of the functions of a file, by identity."""
    found = {}
    for function in loaded.syntax.functions():
        try:
            code = loaded.code(function)
        except AnchorError:
            continue
        found[id(code)] = code
    return found


def lengths(loaded: Loaded) -> Mapping[str, int]:
    """How many lines each function has."""
    places = {function: loaded.syntax.resolve(at(function)).lines for function in loaded.syntax.functions()}
    return {function: last - first + 1 for function, (first, last) in places.items()}


def _places(syntax: Module, function: str) -> Iterator[tuple[str, int, int | None, Anchor]]:
    """Name, which one of that name, element of a tuple, and anchor: of everything that a function makes, in order."""
    seen: list[tuple[str, str, ast.AST]] = []
    for node in syntax.nodes(function):
        if isinstance(node, ast.Return) and node.value is not None:
            seen.append(("returns", "", node.value))
        elif isinstance(node, ast.Call):
            seen.append(("call", ast.unparse(node.func), node))
        seen += [("assigns", name, node) for name in _targets(node)]
    for (_, nth), (kind, name, node) in zip(_numbered([(kind, name) for kind, name, _ in seen]), seen, strict=True):
        which = nth or None
        if kind == "assigns" and name != "_":
            yield name, nth, None, at(function).assigns(name, which)
        elif kind == "call" and name.startswith("self.") and name.count(".") == 1:
            yield f"{name.removeprefix('self.')}()", nth, None, at(function).call(name, which)
        elif kind == "returns" and isinstance(node, ast.Tuple):
            yield from ((RETURNED, nth, index, at(function).returns(which)[index]) for index, _ in enumerate(node.elts))
        elif kind == "returns":
            yield RETURNED, nth, None, at(function).returns(which)


def _numbered(items: list[T]) -> list[tuple[T, int]]:
    """Each with its number among those that are the same, from 1; 0 for one alone."""
    counts, so_far = Counter(items), Counter[T]()
    found = []
    for item in items:
        so_far[item] += 1
        found.append((item, so_far[item] if counts[item] > 1 else 0))
    return found


def _targets(node: ast.AST) -> Iterator[str]:
    """The names that a statement assigns."""
    given: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        for target in node.targets:
            given += target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(node, ast.AugAssign) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        given = [node.target]
    for target in given:
        if isinstance(target, ast.Starred):
            return  # from here on, no place in the tuple belongs to a name
        if isinstance(target, ast.Name):
            yield target.id
