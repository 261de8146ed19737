"""Anchors resolved against a file's syntax tree: from structure to lines, text and instruction positions.

A `Place` is what an anchor names: a syntax node, its lines as a page prints them, and, for an expression, the
span that the compiler gives to the instruction that produces its value (PEP 657), which the recorder watches.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from atlas.errors import AnchorError
from atlas.graph.anchors import Anchor, Step

Span = tuple[int, int, int, int]  # first line, last line, first column, last column (in UTF-8 bytes)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NEWLINE = re.compile(r"\r\n|\r|\n")
WATCHABLE = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Attribute, ast.AugAssign)


@dataclass(frozen=True)
class Place:
    """Where an anchor leads.

    `element` picks one value where the expression gives a tuple that is unpacked (`xq, xk = f(...)`).
    `argument` is set instead of a span where the value is an argument taken on entry; its lines begin at the `def`.
    """

    function: str
    node: ast.AST
    lines: tuple[int, int]
    text: str
    span: Span | None = None
    element: int | None = None
    argument: str | None = None

    @property
    def expression(self) -> str:
        """Its name: function and span, `Attention.forward/196.17-196.82`; '' if it has none."""
        if self.span is None:
            return ""
        first, last, left, right = self.span
        return f"{self.function}/{first}.{left}-{last}.{right}"


class Module:
    """One file's text and syntax."""

    def __init__(self, text: str, name: str) -> None:
        """`name` is for messages. Raises `AnchorError` if the text is no Python."""
        self.text = text
        self.name = name
        # As Python counts lines: `str.splitlines` would also break at a form feed.
        self.all_lines = _NEWLINE.split(text.removesuffix("\n"))
        try:
            self.tree = ast.parse(text)
        except SyntaxError as error:
            raise AnchorError(f"{name} cannot be parsed: {error}.", "Is it the pinned file?") from error
        self._definitions: dict[str, Definition] = dict(_definitions(self.tree, ""))
        self._resolved: dict[Anchor, Place] = {}

    def definition(self, qualified: str) -> Definition:
        """A function, method or class. Raises `AnchorError` if there is none of that name."""
        found = self._definitions.get(qualified)
        if found is None:
            raise AnchorError(f"{self.name} defines no {qualified!r}.", "Has the file changed?")
        return found

    def resolve(self, anchor: Anchor) -> Place:
        """Raises `AnchorError` unless the anchor names exactly one place."""
        known = self._resolved.get(anchor)
        if known is None:
            known = self._resolved[anchor] = self._resolve(anchor)
        return known

    def _resolve(self, anchor: Anchor) -> Place:
        scope: ast.AST = self.definition(anchor.place) if anchor.place else self.tree
        node, element, argument = scope, None, None
        for step in anchor.steps:
            if argument is not None and element is None and step.kind == "index":
                element = step.nth  # of a tuple that is handed over
                continue
            if element is not None or argument is not None:
                raise AnchorError(f"{anchor}: nothing can follow an argument or an unpacked element.", "End it there.")
            if step.kind == "argument":
                node, argument = self._argument(node, step.name, anchor), step.name
                continue
            found = list(_matches(node, step))
            if step.nth is not None and step.kind in ("assigns", "returns", "call", "loop"):
                if not 1 <= step.nth <= len(found):
                    raise AnchorError(
                        f"{anchor} in {self.name}: there are {len(found)} matches of {step}.",
                        "Count them again.",
                    )
                found = [found[step.nth - 1]]
            if len(found) != 1:
                raise AnchorError(
                    f"{anchor} in {self.name}: {len(found)} matches of {step}, where one was expected.",
                    "Give nth, or has the file changed?",
                )
            node, element = found[0].node, found[0].element
        lines = self._lines(node)
        if argument is not None and isinstance(scope, FUNCTIONS):
            lines = (scope.lineno, lines[1])
        if anchor.until is not None:
            lines = (lines[0], self.resolve(anchor.until).lines[1])
            if lines[1] < lines[0]:
                raise AnchorError(f"{anchor} in {self.name} ends before it begins.", "Exchange its two ends.")
        return Place(anchor.place, node, lines, self.segment(node), _instruction_span(node), element, argument)

    def watchable(self, anchor: Anchor) -> Place:
        """As `resolve`, for a hook: raises `AnchorError` for what has no instruction of its own."""
        place = self.resolve(anchor)
        if place.argument is None and not _computed(place.node):
            raise AnchorError(
                f"{anchor} in {self.name} is {place.text!r}: no instruction computes it.",
                "A bare name or a tuple cannot be hooked; anchor the expression that makes the value.",
            )
        return place

    def is_dictionary(self, anchor: Anchor) -> bool:
        """Whether an anchor leads to a dictionary's display."""
        return isinstance(self.resolve(anchor).node, ast.Dict)

    def expressions(self, qualified: str) -> Iterator[Place]:
        """Every expression of a function that an instruction computes, outermost first."""
        for node in _walk(self.definition(qualified)):
            if _computed(node):
                yield Place(qualified, node, self._lines(node), self.segment(node), _instruction_span(node))

    def nodes(self, qualified: str) -> Iterator[ast.AST]:
        """The syntax nodes of a function in source order, without those of functions in it: as `nth` counts them."""
        return _walk(self.definition(qualified))

    def functions(self) -> Iterator[str]:
        """The qualified names of all functions and methods."""
        return (name for name, node in self._definitions.items() if isinstance(node, FUNCTIONS))

    def segment(self, node: ast.AST) -> str:
        """The text of a node; empty for one without a place. (`ast.get_source_segment` splits the file each time.)"""
        if not isinstance(node, ast.expr | ast.stmt | ast.arg) or node.end_lineno is None:
            return ""
        lines = self.all_lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1].encode()[: node.end_col_offset].decode()
        lines[0] = lines[0].encode()[node.col_offset :].decode()
        return "\n".join(lines)

    def excerpt(self, first: int, last: int) -> str:
        """Lines `first` to `last`, both included, counted from 1."""
        return "\n".join(self.all_lines[first - 1 : last])

    def same_syntax(self, other: Module, qualified: str) -> bool:
        """Whether a definition has the same syntax tree in both files: layout and comments aside."""
        return ast.dump(self.definition(qualified)) == ast.dump(other.definition(qualified))

    def _lines(self, node: ast.AST) -> tuple[int, int]:
        if isinstance(node, ast.Module):
            return 1, len(self.all_lines)
        first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        decorators = getattr(node, "decorator_list", [])
        return min([first, *(d.lineno for d in decorators)]), last

    def _argument(self, function: ast.AST, name: str, anchor: Anchor) -> ast.arg:
        arguments = function.args if isinstance(function, FUNCTIONS) else None
        known = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs] if arguments else []
        for argument in known:
            if argument.arg == name:
                return argument
        names = ", ".join(argument.arg for argument in known) or "none"
        raise AnchorError(f"{anchor} in {self.name}: there is no argument {name!r}.", f"There are: {names}.")


@dataclass(frozen=True)
class _Found:
    node: ast.AST
    element: int | None


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from _definitions(child, f"{name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from _definitions(child, prefix)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes in source order, without those of nested definitions: they are other code objects."""
    if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)):
        yield from _walk_inner(node)
        return
    for child in node.body:
        yield child
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield from _walk_inner(child)


def _walk_inner(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Lambda):
        return
    # Of a comprehension, only what it first iterates over is computed here.
    parts = [node.generators[0].iter] if isinstance(node, COMPREHENSIONS) else ast.iter_child_nodes(node)
    for child in parts:
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield child
            yield from _walk_inner(child)


def _matches(node: ast.AST, step: Step) -> Iterator[_Found]:
    if step.kind == "assigns":
        for child in _walk(node):
            yield from _assigned(child, step.name)
    elif step.kind == "returns":
        for child in _walk(node):
            if isinstance(child, ast.Return) and child.value is not None:
                yield _Found(child.value, None)
    elif step.kind == "loop":
        yield from (_Found(child, None) for child in _walk(node) if isinstance(child, ast.For))
    elif step.kind == "call":
        for child in [node, *_walk_inner(node)] if isinstance(node, ast.expr) else _walk(node):
            if isinstance(child, ast.Call) and ast.unparse(child.func) == step.name:
                yield _Found(child, None)
    elif step.kind == "entry":
        keyword, _, value = step.name.partition("=")
        for child in _walk(node):
            if isinstance(child, ast.Call) and any(
                k.arg == keyword and ast.unparse(k.value) == value for k in child.keywords
            ):
                yield _Found(child, None)
    elif step.kind == "field":
        if isinstance(node, ast.Call):
            yield from (_Found(k.value, None) for k in node.keywords if k.arg == step.name)
        elif isinstance(node, ast.ClassDef):
            for child in node.body:
                if isinstance(child, ast.AnnAssign) and ast.unparse(child.target) == step.name:
                    yield _Found(child, None)
    elif step.kind == "index" and isinstance(node, ast.Tuple) and step.nth is not None:
        if step.nth < len(node.elts):
            yield _Found(node.elts[step.nth], None)
    elif step.kind == "index":
        yield _Found(node, step.nth)
    elif step.kind == "arg" and isinstance(node, ast.Call) and step.nth is not None:
        if step.nth < len(node.args):
            yield _Found(node.args[step.nth], None)
    elif step.kind in ("left", "right") and isinstance(node, ast.BinOp):
        yield _Found(node.left if step.kind == "left" else node.right, None)
    elif step.kind == "receiver":
        target = node.func if isinstance(node, ast.Call) else node
        if isinstance(target, ast.Attribute | ast.Subscript):
            yield _Found(target.value, None)


def _assigned(node: ast.AST, name: str) -> Iterator[_Found]:
    if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == name:
        yield _Found(node, None)
    elif isinstance(node, ast.AnnAssign) and node.value is not None and ast.unparse(node.target) == name:
        yield _Found(node.value, None)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple):
                for index, element in enumerate(target.elts):
                    if isinstance(element, ast.Starred):
                        break  # from here on, no place in the tuple belongs to a name
                    if ast.unparse(element) == name:
                        value = node.value.elts[index] if isinstance(node.value, ast.Tuple) else None
                        yield _Found(node.value, index) if value is None else _Found(value, None)
            elif ast.unparse(target) == name:
                # Writing into a part is a step of its own, so the whole statement is the place.
                yield _Found(node if isinstance(target, ast.Subscript) else node.value, None)


def _computed(node: ast.AST) -> bool:
    """Whether an instruction of its own computes the node, when the function runs.

    Not so for what the compiler computes (`-1`), for what is written to, and for `x is None`, which becomes a jump.
    """
    if not isinstance(node, WATCHABLE) or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return False
    if isinstance(node, ast.Compare):
        last = node.comparators[-1]
        return not (
            isinstance(node.ops[-1], ast.Is | ast.IsNot) and isinstance(last, ast.Constant) and last.value is None
        )
    return not (isinstance(node, ast.UnaryOp | ast.BinOp) and _constant(node))


def _constant(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _constant(node.left) and _constant(node.right)
    return _constant(node.operand) if isinstance(node, ast.UnaryOp) else isinstance(node, ast.Constant)


def _instruction_span(node: ast.AST) -> Span | None:
    """The span that the compiler records for the instruction that computes the node.

    A method call whose attribute stands on a later line starts at the attribute (as CPython does since 3.11).
    """
    if not isinstance(node, WATCHABLE) or node.end_lineno is None or node.end_col_offset is None:
        return None  # a statement, a name, a constant: not one instruction
    line, column = node.lineno, node.col_offset
    target = node.func if isinstance(node, ast.Call) else node
    if isinstance(target, ast.Attribute) and target.lineno != target.end_lineno:
        line, column = target.end_lineno or line, (target.end_col_offset or 0) - len(target.attr.encode())
    return line, node.end_lineno, column, node.end_col_offset
