"""From a declaration to the flat graph that pages show: paths made absolute, sizes put in, everything checked.

Whatever a declaration gets wrong is found here, at load, and named with its place: an unknown axis, an edge to
nowhere, a symbol that no node declares, a reference whose parameters are not among its inputs.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from atlas.errors import DeclarationError, NotFound
from atlas.graph.axes import VIEW_NAMES, VIEWS, Axes, Extent, Frozen, View
from atlas.graph.nodes import (
    Architecture,
    Cache,
    Component,
    Layers,
    Node,
    Operation,
    Parameter,
    Tensor,
    Use,
)

LIGHT = re.compile(r"<(#?)([a-z0-9_/-]+)>")
RUN_FACTS = frozenset({"start_pos", "positions", "before"})  # what a reference may ask of the pass itself
PATH = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(/[a-z0-9]+(-[a-z0-9]+)*)*")

Resolver = Callable[[str], str]


class Edge(Frozen):
    """Something flows from one node to another, in these views.

    `next_layer` joins a block's output to the next block's input, `first_layer` what enters the first block.
    `lends`: only shape, position or dtype is used. `layers`: only there (None: in all).
    """

    source: str
    target: str
    views: tuple[View, ...] = VIEWS
    next_layer: bool = False
    first_layer: bool = False
    lends: bool = False
    layers: Layers | None = None


class Resolved(Frozen):
    """A node with its shape in each view, what it is made from and goes into, and its equation with lights.

    `inputs` and `outputs` are absolute paths. A tensor's equation is that of the operation that makes it; where layers
    differ in that, all are given. `layers` are those in which the node exists, None if in all (or outside the blocks).
    """

    path: str
    parent: str
    node: Node
    shape: Mapping[View, tuple[Extent, ...] | None]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    equation: str = ""
    plain_equation: str = ""
    explanation: str = ""
    layers: Layers | None = None

    def exists_in(self, layer: int | None) -> bool:
        """Whether a pass can compute the node in this layer (None: in some)."""
        return self.layers is None or layer is None or layer in self.layers

    @property
    def first_layer(self) -> int:
        """The first layer in which the node exists."""
        return self.layers.numbers[0] if self.layers is not None else 0

    @property
    def kind(self) -> str:
        return self.node.kind

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def symbol(self) -> str:
        """TeX without lights; empty for components and operations."""
        return self.node.symbol if isinstance(self.node, Tensor | Parameter) else ""

    @property
    def in_blocks(self) -> bool:
        """Whether the node exists once per layer."""
        return self.path.startswith("blocks/")


class Graph:
    """The resolved graph of one model: nodes by path in order of data flow, and edges."""

    def __init__(self, architecture: Architecture) -> None:
        """Raises `DeclarationError` for anything that does not hold together."""
        self.architecture = architecture
        self.axes = Axes(architecture.axes)
        self._declared: dict[str, Node] = {}
        for node in architecture.nodes:
            _check_path(node.path)
            if node.path in self._declared:
                raise DeclarationError(f"{architecture.id}: {node.path!r} is declared twice.", "Rename one.")
            self._declared[node.path] = node
            self._check_layers(node)
        self.edges: tuple[Edge, ...] = tuple(self._edges())
        self.nodes: dict[str, Resolved] = {path: self._resolve(node) for path, node in self._declared.items()}

    def __getitem__(self, path: str) -> Resolved:
        """Raises `NotFound` that suggests the nearest node."""
        found = self.nodes.get(path)
        if found is None:
            near = self.nearest(path)
            raise NotFound(f"There is no node {path!r}.", f"Did you mean {near!r}?", nearest=near)
        return found

    def nearest(self, path: str) -> str:
        """The path most like `path`, its last part counting most."""
        leaf = path.rsplit("/", 1)[-1]

        def likeness(other: str) -> float:
            whole = difflib.SequenceMatcher(None, path, other).ratio()
            return whole + difflib.SequenceMatcher(None, leaf, other.rsplit("/", 1)[-1]).ratio()

        return max(self.nodes, key=likeness)

    def children(self, path: str) -> tuple[Resolved, ...]:
        """The nodes directly inside a component ('' is the model), in order of data flow."""
        return tuple(node for node in self.nodes.values() if node.parent == path)

    def ancestors(self, path: str) -> tuple[Resolved, ...]:
        """The components around a node, outermost first."""
        parts = path.split("/")[:-1]
        return tuple(self.nodes["/".join(parts[: i + 1])] for i in range(len(parts)))

    def producer(self, path: str, layer: int | None = None, view: View | None = None) -> Resolved | None:
        """The operation that makes a tensor: in this layer and view, or the first declared."""
        for source in self.nodes[path].inputs:
            if self.nodes[source].exists_in(layer) and (view is None or view in self._computed(source)):
                return self.nodes[source]
        return None

    def uses(self, operation: str, view: View | None = None, layer: int | None = None) -> list[tuple[Use, str]]:
        """Each input of an operation with its absolute path: in this view and layer, or in any.

        What replaces another input (`instead_of`) is left out where a view is given that has the other.
        """
        node = self.nodes[operation].node
        assert isinstance(node, Operation)
        found = []
        for use in node.uses:
            path = self.resolve_path(use.path, _parent(operation), operation)
            if use.layers is not None and layer is not None and layer not in use.layers:
                continue
            if not self.nodes[path].exists_in(layer):
                continue
            if view is not None:
                other = use.instead_of and self.nodes[self.resolve_path(use.instead_of, _parent(operation), operation)]
                if (other and other.shape[view] is not None) or self.nodes[path].shape[view] is None:
                    continue
            found.append((use, path))
        return found

    def window(self, layer: int | None) -> int | None:
        """How many positions a query of this layer may see, its own included; None if all before it."""
        window = self.architecture.window
        if window is None or (window.layers is not None and layer not in window.layers):
            return None
        return window.size

    def layers_of(self, path: str) -> Layers | None:
        """The layers in which a node exists, by its own word or that of the nearest component around it."""
        while path:
            declared = self._declared.get(path)
            if declared is not None and declared.layers is not None:
                return declared.layers
            path = _parent(path)
        return None

    def resolve_path(self, path: str, base: str, what: str) -> str:
        """`path` as seen from the component `base`: relative first, then from each component outwards."""
        scope = base
        while True:
            candidate = f"{scope}/{path}" if scope else path
            if candidate in self._declared:
                return candidate
            if not scope:
                break
            scope = scope.rpartition("/")[0]
        near = difflib.get_close_matches(path, [*self._declared, *(p.rsplit("/")[-1] for p in self._declared)], 1)
        hint = f"Did you mean {near[0]!r}?" if near else "Declare it first."
        raise DeclarationError(f"{self.architecture.id}: {what} names {path!r}, which is no node.", hint)

    @cached_property
    def operations(self) -> tuple[Resolved, ...]:
        """All operations, in order of data flow."""
        return tuple(node for node in self.nodes.values() if isinstance(node.node, Operation))

    def light(self, tex: str, base: str, what: str, *, marks: bool = True) -> str:
        """TeX with each `<path>` replaced by that node's symbol and each `<#size>` by its number.

        With `marks` they are wrapped for KaTeX's `\\htmlData`, so that the page can tie them to their node.
        """

        def put(match: re.Match[str]) -> str:
            sharp, name = match.groups()
            if sharp:
                value = self._number(name, what)
                return rf"\htmlData{{axis={name}}}{{{value}}}" if marks else value
            path = self.resolve_path(name, base, what)
            node = self._declared[path]
            if not isinstance(node, Tensor | Parameter):
                raise DeclarationError(
                    f"{self.architecture.id}: {what} shows {name!r}, a {node.kind} without a symbol.",
                    "Only tensors, caches and parameters have symbols.",
                )
            return rf"\htmlData{{node={path}}}{{{node.symbol}}}" if marks else node.symbol

        return LIGHT.sub(put, tex)

    def _number(self, name: str, what: str) -> str:
        values: dict[str, float | bool | None] = {**self.architecture.settings, **self.architecture.sizes}
        if name not in values:
            near = difflib.get_close_matches(name, values, 1)
            raise DeclarationError(
                f"{self.architecture.id}: {what} uses <#{name}>, which is no size or setting.",
                f"Did you mean {near[0]!r}?" if near else "Add it to settings.",
            )
        value = values[name]
        if value is None:
            raise DeclarationError(
                f"{self.architecture.id}: {what} uses <#{name}>, which this configuration leaves out.",
                "Write the equation for both cases.",
            )
        return tex_number(value)

    def _edges(self) -> Iterable[Edge]:
        made: dict[str, list[str]] = {}
        for node in self._declared.values():
            if not isinstance(node, Operation):
                continue
            base = _parent(node.path)
            what = f"an input of {node.path!r}"
            replaced = {use.path: self.resolve_path(use.instead_of, base, what) for use in node.uses if use.instead_of}
            for use in node.uses:
                source = self.resolve_path(use.path, base, what)
                views = node.views
                if use.path in replaced:
                    views = tuple(view for view in views if view not in self._computed(replaced[use.path]))
                elif source in replaced.values():
                    views = tuple(view for view in views if view in self._computed(source))
                missing = [view for view in views if view not in self._computed(source)]
                if missing:
                    raise DeclarationError(
                        f"{node.path!r} is computed in {missing[0]}, where its input {source!r} is not.",
                        "Give it the same views, or an input that stands in (`instead_of`).",
                    )
                layers = use.layers or self.layers_of(node.path)
                yield Edge(source=source, target=node.path, views=views, lends=use.lends, layers=layers)
            for item in node.outputs:
                target = self.resolve_path(item, base, f"an output of {node.path!r}")
                if not isinstance(self._declared[target], Tensor):
                    raise DeclarationError(f"{node.path!r} outputs {target!r}, which is no tensor.", "Check it.")
                layers = self.layers_of(node.path)
                for other in made.setdefault(target, []):
                    others, rival = self.layers_of(other), self._declared[other]
                    if isinstance(rival, Operation) and set(rival.views).isdisjoint(node.views):
                        continue
                    if layers is None or others is None or set(layers.numbers) & set(others.numbers):
                        raise DeclarationError(
                            f"{target!r} is made by both {other!r} and {node.path!r} in the same layers.", "Keep one."
                        )
                made[target].append(node.path)
                yield Edge(source=node.path, target=target, views=node.views, layers=layers)
        for target, makers in made.items():
            if set(self._computed(target)) != {view for maker in makers for view in self._computed(maker)}:
                raise DeclarationError(
                    f"{makers[0]!r} and its output {target!r} are computed in different views.", "Give both the same."
                )
        for source, target in self.architecture.loops:
            ends = [self.resolve_path(end, "", "a loop") for end in (source, target)]
            yield Edge(source=ends[0], target=ends[1], next_layer=True)
        for source, target in self.architecture.enters:
            ends = [self.resolve_path(end, "", "an entry") for end in (source, target)]
            yield Edge(source=ends[0], target=ends[1], first_layer=True)

    def _computed(self, path: str) -> tuple[View, ...]:
        """The views in which a node has a value."""
        node = self._declared[path]
        return node.views if isinstance(node, Tensor | Operation) else VIEWS

    def _check_axes(self, node: Node) -> None:
        """That the axes which a node names beside its shape are known and fit."""
        if isinstance(node, Component) and node.repeat is not None:
            self.axes.extent(node.repeat, self.architecture.sizes, "full")
        if isinstance(node, Tensor | Parameter) and node.sharded is not None and node.sharded not in node.shape:
            raise DeclarationError(f"It is split along {node.sharded!r}, which is no axis of its shape.", "Name one.")

    def _check_layers(self, node: Node) -> None:
        if node.layers is None:
            return
        count = self.architecture.sizes.get("layers", 0)
        if not node.path.startswith("blocks/") or any(not 0 <= number < count for number in node.layers.numbers):
            raise DeclarationError(
                f"{self.architecture.id}: {node.path!r} exists in {node.layers.words}, of {count} layers of blocks.",
                "Give layers only to what stands in the blocks, and only those that there are.",
            )

    def _resolve(self, node: Node) -> Resolved:
        base = node.path if isinstance(node, Component) else _parent(node.path)
        parent = _parent(node.path)
        if parent and not isinstance(self._declared.get(parent), Component):
            raise DeclarationError(f"{node.path!r} is inside {parent!r}, which is no component.", "Declare it.")
        shape: dict[View, tuple[Extent, ...] | None] = dict.fromkeys(VIEWS)
        try:
            self._check_axes(node)
            if isinstance(node, Tensor | Parameter):
                for view in self._computed(node.path):
                    shape[view] = tuple(self.axes.extent(name, self.architecture.sizes, view) for name in node.shape)
        except DeclarationError as error:
            raise DeclarationError(f"{self.architecture.id}: {node.path}: {error.detail}", error.hint) from None
        if isinstance(node, Tensor | Operation) and set(node.views) != set(VIEWS) and not node.absent:
            raise DeclarationError(f"{node.path!r} does not say why it is absent in a view.", "Set `absent`.")
        flow = [edge for edge in self.edges if not edge.next_layer and not edge.first_layer]
        inputs = tuple(dict.fromkeys(edge.source for edge in flow if edge.target == node.path))
        outputs = tuple(dict.fromkeys(edge.target for edge in flow if edge.source == node.path))
        makers = [node.path] if isinstance(node, Operation) else list(inputs) if isinstance(node, Tensor) else []
        equation, plain = self._equation(makers, marks=True), self._equation(makers, marks=False)
        if isinstance(node, Operation):
            made = [self._declared[path] for path in outputs]
            configured = bool(made) and all(isinstance(one, Tensor) and one.when == "build" for one in made)
            if not outputs or not (inputs or configured):
                raise DeclarationError(f"{node.path!r} has no inputs or no outputs.", "Name them.")
            self._check_reference(node)
        text = self.light(node.explanation, base, f"the explanation of {node.path!r}")
        return Resolved(
            path=node.path,
            parent=parent,
            node=node,
            shape=shape,
            inputs=inputs,
            outputs=outputs,
            equation=equation,
            plain_equation=plain,
            explanation=text,
            layers=self.layers_of(node.path),
        )

    def _equation(self, makers: list[str], *, marks: bool) -> str:
        """The equations of these operations: of one alone, or under each other with the layers that each is for."""
        found = []
        for path in makers:
            maker, layers = self._declared[path], self.layers_of(path)
            if isinstance(maker, Operation):
                tex = self.light(maker.equation, _parent(path), f"the equation of {path!r}", marks=marks)
                views = " and ".join(VIEW_NAMES[view].lower() for view in maker.views)
                found.append((tex, f"{layers.name} layers" if layers else views))
        if len(found) < 2:
            return found[0][0] if found else ""
        rows = r" \\[4pt] ".join(rf"& {tex} && \text{{({name})}}" for tex, name in found)
        return rf"\begin{{aligned}} {rows} \end{{aligned}}"

    def _check_reference(self, node: Operation) -> None:
        known = {use.parameter for use in node.uses} | RUN_FACTS
        known |= set(self.architecture.sizes) | set(self.architecture.settings)
        for name in inspect.signature(node.reference).parameters:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                raise DeclarationError(
                    f"The reference of {node.path!r} takes {name!r}, which is no input, size or setting.",
                    f"Did you mean {near[0]!r}?" if near else "",
                )


def tex_number(value: float | bool) -> str:
    """A number as TeX, all its digits: 500000.0 as `500000`, 1e-05 as `10^{-5}`."""
    if isinstance(value, bool):
        return rf"\text{{{str(value).lower()}}}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    power = f"10^{{{int(exponent)}}}"
    return power if mantissa == "1" else rf"{mantissa} \cdot {power}"


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _check_path(path: str) -> None:
    if not PATH.fullmatch(path):
        raise DeclarationError(
            f"{path!r} is no node path.", "Use lower-case words joined by `-`, and `/` between parts."
        )


def is_cache(node: Node) -> bool:
    """Whether a node is kept between passes."""
    return isinstance(node, Cache)
