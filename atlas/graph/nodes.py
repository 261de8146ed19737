"""What a graph is made of: components, operations, tensors, parameters and caches, as frozen declarations.

Paths are written relative to the component that declares them where a function returns nodes, and absolute in
the finished declaration. TeX may contain lights: `<similarities>` is the symbol of the node of that path
(relative to the operation's component, or absolute), `<#head_dim>` the size or setting of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn

from atlas.errors import DeclarationError
from atlas.graph.anchors import Anchor
from atlas.graph.axes import VIEWS, Axis, Frozen, View
from atlas.graph.evidence import Evidence, SourceRef

NodeKind = Literal["component", "operation", "tensor", "parameter", "cache"]


class Alias(Frozen):
    """Another community's name for the same thing: searchable, shown, never used as ours.

    `layout` says how that name's value is laid out where it differs from ours.
    """

    name: str
    of: str
    layout: str = ""


class Layers(Frozen):
    """Some of a model's layers, by what tells them apart: `local` and `global`, `dense` and `routed`."""

    name: str
    numbers: tuple[int, ...]

    def __contains__(self, layer: object) -> bool:
        return layer in self.numbers

    @property
    def words(self) -> str:
        """`local layers: 0-4, 6-10`."""
        runs: list[list[int]] = []
        for number in self.numbers:
            if runs and runs[-1][1] == number - 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        listed = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
        return f"{self.name} layers: {listed}"


class Declared(Frozen):
    """What every node says of itself. `explanation` is paragraphs; `$...$` in it is TeX with lights.

    `layers` are those in which a node of the blocks exists, where that is not all of them; a component's hold for
    everything in it that does not say its own.
    """

    path: str
    name: str
    description: str
    layers: Layers | None = None
    explanation: str = ""
    aliases: tuple[Alias, ...] = ()
    evidence: tuple[Evidence, ...] = ()


class Component(Declared):
    """A part with parts. `repeat` names the axis that says how often it stands in a row.

    `module` is the attribute path of the module that runs it, with `{layer}` where it is repeated.
    """

    kind: Literal["component"] = "component"
    repeat: str | None = None
    plural: str = ""
    module: str = ""


class Quantity(Declared):
    """Something with a symbol and a shape: axes by name."""

    symbol: str
    shape: tuple[str, ...]


class Tensor(Quantity):
    """A value that a pass computes. `hook` is the one place where it comes to be.

    `views` are those that compute it. `when` is "build" for what is computed as the model is built.
    `absent` says why it does not exist in the other views. `sharded` names the axis split by tensor parallelism.
    `joined`: the place is in a loop, and the values of its turns are put together along the first axis. `unordered`
    names an axis along which the code promises no order.
    """

    kind: Literal["tensor", "cache"] = "tensor"
    hook: Anchor
    views: tuple[View, ...] = VIEWS
    when: Literal["pass", "build"] = "pass"
    absent: str = ""
    complex: bool = False
    joined: bool = False
    unordered: str | None = None
    sharded: str | None = None


class Cache(Tensor):
    """A value kept between passes: after this pass's write, the current rows included."""

    kind: Literal["tensor", "cache"] = "cache"


class Parameter(Quantity):
    """A learned weight, stored [out, in]. `weight` is its name in the reference code, with `{layer}`."""

    kind: Literal["parameter"] = "parameter"
    weight: str
    built: Anchor | None = None
    sharded: str | None = None


class Use(Frozen):
    """An input of an operation that needs a word more than its path.

    `lends` marks an input that gives only its shape, position or dtype. `instead_of` names the input that this
    one replaces in passes that do not compute that one. `named` is the parameter of the reference that takes it.
    `layers` are those in which it is read, where others read something else.
    """

    path: str
    lends: bool = False
    instead_of: str = ""
    named: str = ""
    layers: Layers | None = None

    @property
    def parameter(self) -> str:
        """The name under which the reference takes it: the path's last part, `-` as `_`, unless `named`."""
        return self.named or self.path.rsplit("/", 1)[-1].replace("-", "_")


class Operation(Declared):
    """Inputs to outputs, with the equation twice: as TeX, and as a float64 reference in a few lines of numpy.

    What is computed from the configuration alone, as the model is built, has no inputs.

    The reference's parameters are named as the inputs (the last part of the path, `-` as `_`), as sizes or
    settings of the configuration, or a fact of the pass: `start_pos`, `positions` (how many it computes). It
    returns the output, or a tuple of them. `place` is where the step stands in the source, where that is not
    the expression that makes its first output. `derived`: read off the code while it ran, with no reference.
    """

    kind: Literal["operation"] = "operation"
    inputs: tuple[str | Use, ...]
    outputs: tuple[str, ...]
    equation: str
    reference: Callable[..., Any]
    place: Anchor | None = None
    views: tuple[View, ...] = VIEWS
    absent: str = ""
    derived: bool = False

    @property
    def uses(self) -> tuple[Use, ...]:
        """All inputs, as `Use`."""
        return tuple(item if isinstance(item, Use) else Use(path=item) for item in self.inputs)


def no_reference() -> NoReturn:
    """The reference of what is derived: it has none, and checks ask before they call."""
    raise DeclarationError("Nobody has written this operation's equation: it is derived from the code.", "Declare it.")


Node = Component | Operation | Tensor | Cache | Parameter


class Reference(Frozen):
    """The code that an architecture is read from and run by. `runner` names a module of `atlas.runtime`.

    Of a library with many models, `model` is the class that is built and `arguments` what its configuration takes.
    """

    runner: str
    file: SourceRef
    block: str
    forward: str
    model: str = ""
    arguments: Mapping[str, Any] = {}


class Window(Frozen):
    """Sliding-window attention: a query sees `size` positions, its own included, in these layers (None: in all).

    A cache keeps one position less than that between passes.
    """

    size: int
    layers: Layers | None = None


class Architecture(Frozen):
    """A finished declaration for one configuration: nodes in order of data flow.

    `sizes` are the fixed axes; `settings` further numbers that equations and references may use.
    `loops` are pairs of tensors (from, to) joined from one layer to the next; `enters` those joined at the first.
    `layer_kinds` are all kinds of layers, where they differ.
    """

    id: str
    name: str
    summary: str
    kind: str
    attention: str
    reference: Reference
    nodes: tuple[Node, ...]
    axes: tuple[Axis, ...] = ()
    sizes: Mapping[str, int]
    settings: Mapping[str, int | float | bool | None]
    loops: tuple[tuple[str, str], ...] = ()
    enters: tuple[tuple[str, str], ...] = ()
    layer_kinds: tuple[Layers, ...] = ()
    window: Window | None = None

    @property
    def derived(self) -> bool:
        """Whether it, or a part of it, was read off the code, and nobody has described it yet."""
        return any(isinstance(node, Operation) and node.derived for node in self.nodes)
