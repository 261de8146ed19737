"""From resolved places to instructions: which offsets of which loaded code compute an expression.

A place (file, span, kind of expression) is matched against the positions that the compiler kept for each
instruction (PEP 657). Start, end and kind must agree: the end alone would confuse `a / f(x)` with `f(x)`.
"""

from __future__ import annotations

import ast
import inspect
import opcode
from types import CodeType, ModuleType
from typing import Any

from atlas.errors import AnchorError, SourceMismatch
from atlas.graph.anchors import Anchor
from atlas.provenance.resolution import Module, Place
from atlas.runtime.recorder import Instructions, Site, require_positions

# Operation names by kind of expression, on every version from 3.11 on. CACHE entries belong to what precedes them:
# a frame that waits for a Python callee stands inside them.
KINDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Call: ("CALL", "CALL_FUNCTION_EX", "CALL_KW", "PRECALL"),
    ast.BinOp: ("BINARY_OP",),
    ast.AugAssign: ("BINARY_OP",),
    ast.UnaryOp: ("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "UNARY_NOT", "CALL_INTRINSIC_1"),
    ast.Compare: ("COMPARE_OP", "IS_OP", "CONTAINS_OP"),
    ast.Subscript: ("BINARY_SUBSCR", "BINARY_SLICE", "BINARY_OP"),
    ast.Attribute: ("LOAD_ATTR", "LOAD_METHOD"),
}


class Loaded:
    """A loaded reference module with the syntax of its pinned file."""

    def __init__(self, module: ModuleType, syntax: Module) -> None:
        """Raises `SourceMismatch` if the loaded module's file is not the pinned text."""
        self.module = module
        self.syntax = syntax
        self._codes: dict[str, CodeType] = {}
        loaded = inspect.getsource(module)
        if loaded.rstrip() != syntax.text.rstrip():
            raise SourceMismatch(
                f"{module.__name__} was loaded from {module.__file__}, which is not the pinned file.",
                "Install the pinned version again and restart.",
            )

    def code(self, qualified: str) -> CodeType:
        """The code object of a function or method, decorators taken off. Raises `AnchorError`."""
        known = self._codes.get(qualified)
        if known is None:
            found: Any = self.module
            for part in qualified.split("."):
                found = inspect.getattr_static(found, part, None)
            if isinstance(found, staticmethod | classmethod):
                found = found.__func__
            found = inspect.unwrap(found) if callable(found) else found
            known = getattr(found, "__code__", None)
            if not isinstance(known, CodeType):
                raise AnchorError(f"{self.module.__name__} has no function {qualified!r}.", "Has the file changed?")
            require_positions(known, str(self.module.__file__))
            self._codes[qualified] = known
        return known

    def instructions(self, place: Place) -> Instructions:
        """The instructions that compute a place. Raises `AnchorError` if there are none."""
        code = self.code(place.function)
        offsets = matching_offsets(code, place)
        if not offsets:
            raise AnchorError(
                f"No instruction of {place.function} in {self.syntax.name} computes {place.text!r} (line "
                f"{place.lines[0]}).",
                "Anchor the expression that makes the value.",
            )
        return Instructions(code, offsets)

    def site(self, key: str, anchor: Anchor, *, joined: bool = False) -> Site:
        """Where to capture what an anchor names. Raises `AnchorError`."""
        place = self.syntax.watchable(anchor)
        within = None
        if anchor.within is not None:
            within = self.instructions(self.syntax.watchable(anchor.within))
        if place.argument is not None:
            entry = Instructions(self.code(place.function), frozenset())
            return Site(key, entry, place.argument, within, place.element, anchor.condition, joined)
        return Site(key, self.instructions(place), None, within, place.element, anchor.condition, joined)


def matching_offsets(code: CodeType, place: Place) -> frozenset[int]:
    """Offsets (in bytes) of the instructions, with their caches, whose span and kind are the place's."""
    kinds = KINDS.get(type(place.node), ())
    found = set()
    name = ""
    for index, position in enumerate(code.co_positions()):
        operation = opcode.opname[code.co_code[2 * index]]
        name = name if operation == "CACHE" else operation
        if position == place.span and name.startswith(kinds):
            found.add(2 * index)
    return frozenset(found)
