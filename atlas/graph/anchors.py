"""The anchor language: where in a source file a value comes to be, said by structure.

An anchor never holds a line number or a copied line. `at("Attention.forward").assigns("scores", nth=1).left`
reads: in that method, the first assignment to `scores`, the left operand of what is assigned. It prints as
`Attention.forward.assigns(scores, 1).left`, which is how a lock keeps it, and `parse` reads that again. Resolution
against a file's syntax tree lives in `atlas.provenance.resolution`; this module only builds the data.

Where one expression makes several values, `inside` picks those of one caller, `where` those of one kind of layer.
"""

from __future__ import annotations

import re
from typing import Literal, NoReturn, cast, get_args

from atlas.errors import DeclarationError
from atlas.graph.axes import Frozen

StepKind = Literal[
    "assigns",
    "returns",
    "argument",
    "call",
    "index",
    "arg",
    "left",
    "right",
    "receiver",
    "entry",
    "field",
    "loop",
]


KINDS: tuple[StepKind, ...] = get_args(StepKind)
NAMED = frozenset({"assigns", "argument", "call", "entry", "field"})  # steps that have a name,
COUNTED = frozenset({"index", "arg"})  # and those that have a number


class Step(Frozen):
    """One move from the enclosing syntax to a part of it."""

    kind: StepKind
    name: str = ""
    nth: int | None = None

    def __str__(self) -> str:
        inner = ", ".join(([self.name] if self.name else []) + ([str(self.nth)] if self.nth is not None else []))
        return f"{self.kind}({inner})" if inner else self.kind


class Anchor(Frozen):
    """A place in a file. `place` is a qualified name ('' is the module); `steps` lead from there inwards."""

    place: str
    steps: tuple[Step, ...] = ()
    within: Anchor | None = None
    until: Anchor | None = None
    condition: tuple[str, str] | None = None

    def _then(self, kind: StepKind, name: str = "", nth: int | None = None) -> Anchor:
        return self.model_copy(update={"steps": (*self.steps, Step(kind=kind, name=name, nth=nth))})

    def assigns(self, target: str, nth: int | None = None) -> Anchor:
        """What is assigned to `target`: the nth time (from 1), or the only time."""
        return self._then("assigns", target, nth)

    def returns(self, nth: int | None = None) -> Anchor:
        """What the function returns."""
        return self._then("returns", nth=nth)

    def argument(self, name: str) -> Anchor:
        """An argument of the function, taken on entry."""
        return self._then("argument", name)

    def call(self, function: str, nth: int | None = None) -> Anchor:
        """A call of `function` (as it is written) inside the place reached so far."""
        return self._then("call", function, nth)

    def loop(self, nth: int | None = None) -> Anchor:
        """A `for` statement of the function, with its body (for citations)."""
        return self._then("loop", nth=nth)

    def arg(self, index: int) -> Anchor:
        """The positional argument `index` (from 0) of a call."""
        return self._then("arg", nth=index)

    def __getitem__(self, index: int) -> Anchor:
        """The element `index` (from 0) of a tuple."""
        return self._then("index", nth=index)

    @property
    def left(self) -> Anchor:
        """The left operand."""
        return self._then("left")

    @property
    def right(self) -> Anchor:
        """The right operand."""
        return self._then("right")

    @property
    def receiver(self) -> Anchor:
        """What a method is called on."""
        return self._then("receiver")

    def entry(self, keyword: str, value: str) -> Anchor:
        """The call in the place that has `keyword=value`, as it is written."""
        return self._then("entry", f"{keyword}={value}")

    def field(self, name: str) -> Anchor:
        """A keyword argument of a call, or the annotated field of a class."""
        return self._then("field", name)

    def inside(self, caller: Anchor) -> Anchor:
        """Only where the function runs on behalf of the call `caller`: RMSNorm for one of two norms."""
        return self.model_copy(update={"within": caller})

    def where(self, variable: str, text: str) -> Anchor:
        """Only where that local variable of the function holds this text: one turn of a loop over kinds of layers."""
        return self.model_copy(update={"condition": (variable, text)})

    def through(self, last: Anchor) -> Anchor:
        """A citation from the first line of this place to the last line of another."""
        return self.model_copy(update={"until": last})

    def __str__(self) -> str:
        text = ".".join([_quoted(self.place), *(str(step) for step in self.steps)])
        if self.condition is not None:
            text += f" where {self.condition[0]}={self.condition[1]}"
        if self.within is not None:
            text += f" inside {_bracketed(self.within)}"
        if self.until is not None:
            text += f" through {_bracketed(self.until)}"
        return text


def at(place: str) -> Anchor:
    """Start an anchor at a function, method or class by its qualified name, or at the module ('')."""
    return Anchor(place=place)


def parse(text: str) -> Anchor:
    """The anchor that prints as `text`. Raises `DeclarationError` that names what was not understood."""
    return _Reader(text).whole()


def _quoted(place: str) -> str:
    """A place as it prints: in quotes where a part of it (a method called `left`) would be read as a step."""
    if not place:
        return "module"
    parts = place.split(".")
    return f"'{place}'" if place == "module" or not set(parts[1:]).isdisjoint(KINDS) else place


def _bracketed(anchor: Anchor) -> str:
    parts = (anchor.within, anchor.until, anchor.condition)
    return str(anchor) if parts == (None, None, None) else f"({anchor})"


class _Reader:
    """Reads a printed anchor from left to right: a place, steps, and after ` inside ` or ` through ` another."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def whole(self) -> Anchor:
        anchor = self.anchor()
        if self.position < len(self.text):
            self.fail("the end")
        return anchor

    def anchor(self) -> Anchor:
        anchor = self.simple()
        if condition := self.match(r" where ([^\W\d]\w*)=([\w.-]+)"):
            anchor = anchor.where(condition[1], condition[2])
        within = self.other() if self.take(" inside ") else None
        until = self.other() if self.take(" through ") else None
        return anchor.model_copy(update={"within": within, "until": until})

    def other(self) -> Anchor:
        if not self.take("("):
            return self.simple()
        anchor = self.anchor()
        if not self.take(")"):
            self.fail("a closing bracket")
        return anchor

    def simple(self) -> Anchor:
        place, steps = self.place(), []
        while self.take("."):
            steps.append(self.step())
        return Anchor(place=place, steps=tuple(steps))

    def place(self) -> str:
        if quoted := self.match(r"'([^']+)'"):
            return quoted[1]
        first = self.match(r"[^\W\d]\w*")
        if first is None:
            self.fail("a function, a class or `module`")
        place = first[0]
        # A part that a step is called by, or that has brackets, is a step.
        while part := self.match(rf"\.(?!(?:{'|'.join(KINDS)})\b)([^\W\d]\w*)(?![\w(])"):
            place += part[0]
        return "" if place == "module" else place

    def step(self) -> Step:
        found = self.match(rf"({'|'.join(KINDS)})\b")
        if found is None:
            self.fail(f"a step, one of {', '.join(KINDS)},")
        kind = cast(StepKind, found[1])
        inner = self.inner() if self.take("(") else ""
        counted = re.fullmatch(r"(.+), (-?\d+)", inner, re.DOTALL) if kind in NAMED else None
        if counted:
            return Step(kind=kind, name=counted[1], nth=int(counted[2]))
        if kind in NAMED and inner:
            return Step(kind=kind, name=inner)
        if kind not in NAMED and re.fullmatch(r"-?\d+", inner):
            return Step(kind=kind, nth=int(inner))
        if inner or kind in NAMED | COUNTED:
            self.fail(f"what {kind} takes, not {inner!r}, ")
        return Step(kind=kind)

    def inner(self) -> str:
        """What stands between brackets: Python as `ast.unparse` writes it, with brackets and strings of its own."""
        start, depth = self.position, 0
        while self.position < len(self.text):
            if self.match(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""):
                continue
            character = self.text[self.position]
            if character in "'\"":
                self.fail("a text that ends")
            if character in "([{":
                depth += 1
            elif character in ")]}":
                depth -= 1
            self.position += 1
            if depth < 0:
                return self.text[start : self.position - 1]
        return self.fail("a closing bracket")

    def take(self, what: str) -> bool:
        found = self.text.startswith(what, self.position)
        self.position += len(what) if found else 0
        return found

    def match(self, pattern: str) -> re.Match[str] | None:
        found = re.compile(pattern, re.DOTALL).match(self.text, self.position)
        if found:
            self.position = found.end()
        return found

    def fail(self, expected: str) -> NoReturn:
        before, after = self.text[: self.position], self.text[self.position :]
        raise DeclarationError(
            f"{self.text!r} is no anchor: {expected} was expected after {before!r}, not {after!r}.",
            "Write it as an anchor prints, such as `Attention.forward.assigns(scores, 1).left`.",
        )
