"""The anchor language: where in a source file a value comes to be, said by structure.

An anchor never holds a line number or a copied line. `at("Attention.forward").assigns("scores", nth=1).left`
reads: in that method, the first assignment to `scores`, the left operand of what is assigned. Resolution
against a file's syntax tree lives in `atlas.provenance.resolution`; this module only builds the data.
"""

from __future__ import annotations

from typing import Literal

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

    def through(self, last: Anchor) -> Anchor:
        """A citation from the first line of this place to the last line of another."""
        return self.model_copy(update={"until": last})

    def __str__(self) -> str:
        text = ".".join([self.place or "module", *(str(step) for step in self.steps)])
        if self.within is not None:
            text += f" inside {self.within}"
        if self.until is not None:
            text += f" through {self.until}"
        return text


def at(place: str) -> Anchor:
    """Start an anchor at a function, method or class by its qualified name, or at the module ('')."""
    return Anchor(place=place)
