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
from atlas.graph.axes import VIEWS, Axes, Extent, Frozen, View
from atlas.graph.nodes import (
    Architecture,
    Cache,
    Component,
    Node,
    Operation,
    Parameter,
    Tensor,
)

LIGHT = re.compile(r"<(#?)([a-z0-9_/-]+)>")
RUN_FACTS = frozenset({"start_pos", "positions", "before"})  # what a reference may ask of the pass itself
PATH = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(/[a-z0-9]+(-[a-z0-9]+)*)*")

Resolver = Callable[[str], str]


class Edge(Frozen):
    """Something flows from one node to another, in these views.

    `next_layer` joins a block's output to the next block's input, `first_layer` what enters the first block.
    `lends`: only shape, position or dtype is used.
    """

    source: str
    target: str
    views: tuple[View, ...] = VIEWS
    next_layer: bool = False
    first_layer: bool = False
    lends: bool = False


class Resolved(Frozen):
    """A node with its shape in each view, what it is made from and goes into, and its equation with lights.

    `inputs` and `outputs` are absolute paths. A tensor's equation is that of the operation that makes it.
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

    def producer(self, path: str) -> Resolved | None:
        """The operation that makes a tensor."""
        for source in self.nodes[path].inputs:
            return self.nodes[source]
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
        values: dict[str, object] = {**self.architecture.settings, **self.architecture.sizes}
        if name not in values:
            near = difflib.get_close_matches(name, values, 1)
            raise DeclarationError(
                f"{self.architecture.id}: {what} uses <#{name}>, which is no size or setting.",
                f"Did you mean {near[0]!r}?" if near else "Add it to settings.",
            )
        return tex_number(values[name])

    def _edges(self) -> Iterable[Edge]:
        made: dict[str, str] = {}
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
                yield Edge(source=source, target=node.path, views=views, lends=use.lends)
            for item in node.outputs:
                target = self.resolve_path(item, base, f"an output of {node.path!r}")
                if not isinstance(self._declared[target], Tensor):
                    raise DeclarationError(f"{node.path!r} outputs {target!r}, which is no tensor.", "Check it.")
                if set(self._computed(target)) != set(node.views):
                    raise DeclarationError(
                        f"{node.path!r} and its output {target!r} are computed in different views.",
                        "Give both the same.",
                    )
                if target in made:
                    raise DeclarationError(
                        f"{target!r} is made by both {made[target]!r} and {node.path!r}.", "Keep one."
                    )
                made[target] = node.path
                yield Edge(source=node.path, target=target, views=node.views)
        for source, target in self.architecture.loops:
            ends = [self.resolve_path(end, "", "a loop") for end in (source, target)]
            yield Edge(source=ends[0], target=ends[1], next_layer=True)
        for source, target in self.architecture.enters:
            ends = [self.resolve_path(end, "", "an entry") for end in (source, target)]
            yield Edge(source=ends[0], target=ends[1], first_layer=True)

    def _computed(self, path: str) -> tuple[View, ...]:
        """The views in which a node has a value."""
        node = self._declared[path]
        return node.views if isinstance(node, Tensor) else VIEWS

    def _check_axes(self, node: Node) -> None:
        """That the axes which a node names beside its shape are known and fit."""
        if isinstance(node, Component) and node.repeat is not None:
            self.axes.extent(node.repeat, self.architecture.sizes, "full")
        if isinstance(node, Tensor | Parameter) and node.sharded is not None and node.sharded not in node.shape:
            raise DeclarationError(f"It is split along {node.sharded!r}, which is no axis of its shape.", "Name one.")

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
        equation = plain = ""
        maker: Node | None = node if isinstance(node, Operation) else None
        if isinstance(node, Tensor) and inputs:
            maker = self._declared[inputs[0]]
        if isinstance(maker, Operation):
            where, what = _parent(maker.path), f"the equation of {maker.path!r}"
            equation = self.light(maker.equation, where, what)
            plain = self.light(maker.equation, where, what, marks=False)
        if isinstance(node, Operation):
            if not inputs or not outputs:
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
        )

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


def tex_number(value: object) -> str:
    """A number as TeX: 500000.0 as `500000`, 1e-05 as `10^{-5}`."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if "e" in text:
        mantissa, exponent = text.split("e")
        power = f"10^{{{int(exponent)}}}"
        return power if mantissa == "1" else rf"{mantissa} \cdot {power}"
    return text


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
