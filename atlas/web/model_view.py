"""One model as pages show it: its nodes as links, shapes, equations and flows, kept once made.

Everything here depends on the declaration and the view alone, never on a run: links have a slot for the state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from markupsafe import Markup, escape

from atlas.catalog import Catalog, Model
from atlas.graph.axes import Extent, View
from atlas.graph.nodes import Cache, Component, Operation, Parameter, Tensor
from atlas.graph.resolve import Edge, Resolved
from atlas.render.diagram.belonging import badges, belonging
from atlas.web import prose
from atlas.web.code_column import code_column
from atlas.web.drawing import diagram
from atlas.web.figures import BYTES, copies, numbers_in, parameters, parameters_of_one
from atlas.web.pieces import AliasRow, Chip, CodeColumn, Diagram, Flow, NodeRef, SomeLayers
from atlas.web.state import node_href

T = TypeVar("T")


class ModelView:
    """Builds and keeps the pieces of one model's pages. Thread-safe."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.graph = model.graph
        self._kept: dict[tuple[object, ...], object] = {}
        self._mutex = threading.RLock()

    def _once(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        with self._mutex:
            if key not in self._kept:
                self._kept[key] = make()
            return self._kept[key]  # type: ignore[return-value]  # a key is used with one kind of value only

    # --- nodes as links

    def ref(self, path: str, view: View, note: str = "") -> NodeRef:
        """A node on its own; `note` says how it is used where it is listed."""
        node = self.graph[path]
        shape = node.shape[view]
        return NodeRef(
            path=path,
            href=node_href(self.model.id, path),
            kind=node.kind,
            name=self.component_name(node) if node.kind == "component" else node.name,
            symbol=prose.symbol(node.symbol),
            shape=prose.shape_words(shape) if shape else Markup(""),
            note=note,
            absent=bool(self.absent(node, view)),
            layers=some.words if (some := belonging(self.graph).get(path)) is not None else "",
        )

    def tree(self, component: str, view: View) -> tuple[NodeRef, ...]:
        """What is inside a component, to the bottom, in order of data flow."""
        return self._once(("tree", component, view), lambda: tuple(self._tree(component, view)))

    def _tree(self, component: str, view: View) -> list[NodeRef]:
        found = []
        for node in self.graph.children(component):
            inside = tuple(self._tree(node.path, view)) if node.kind == "component" else ()
            whole = self.ref(node.path, view)
            found.append(replace(whole, children=inside, code=self.model.code_name(node.path)))
        return found

    def component_name(self, node: Resolved) -> str:
        """`32 independent transformer blocks` for what is repeated, else its name."""
        if isinstance(node.node, Component) and node.node.repeat and node.node.plural:
            return f"{self.model.architecture.sizes[node.node.repeat]} {node.node.plural}"
        return node.name

    def repeat(self, node: Resolved) -> str:
        """`32 in a row`, for what is repeated."""
        if isinstance(node.node, Component) and node.node.repeat:
            return f"{self.model.architecture.sizes[node.node.repeat]} in a row"
        return ""

    # --- what a node says of itself

    def absent(self, node: Resolved, view: View) -> str:
        """Why a node does not exist in a view; empty where it does."""
        declared = node.node
        if isinstance(declared, Tensor | Operation) and view not in declared.views:
            return declared.absent
        return ""

    def chips(self, shape: tuple[Extent, ...]) -> tuple[Chip, ...]:
        """A shape as one chip an axis."""
        return tuple(
            Chip(
                axis=extent.axis,
                size=escape(f"{extent.size}") if extent.size is not None else prose.light_symbol(extent.symbol),
                meaning=self.graph.axes[extent.axis].meaning,
            )
            for extent in shape
        )

    def size_note(self, node: Resolved) -> str:
        """How much of memory a parameter, a cache or a component takes."""
        model = self.model
        if isinstance(node.node, Parameter):
            if model.entry.tied_embeddings and node.path == "unembedding/weight":
                return "Tied: the same matrix as the embedding, counted there."
            one = numbers_in(model, node)
            count = copies(model, node)
            return f"{one:,} parameters" + (f" a layer, {one * count:,} in {count}" if node.in_blocks else "")
        if isinstance(node.node, Cache):
            one, count = numbers_in(model, node) * BYTES, copies(model, node)
            return f"{one:,} bytes a token and layer in bfloat16, {one * count:,} in {count} layers"
        if isinstance(node.node, Component):
            whole, each = parameters(model, node.path), parameters_of_one(model, node.path)
            if not whole:
                return "no parameters"
            if len(each) > 1:
                kinds = ", ".join(f"{one:,} parameters a {kind} layer" for kind, one in each.items())
                return f"{kinds}, {whole:,} in all"
            ((_, one),) = each.items()
            count = copies(model, node) if node.in_blocks else model.architecture.sizes["layers"]
            return f"{one:,} parameters" + (f" a layer, {whole:,} in {count}" if node.in_blocks or one != whole else "")
        return ""

    def aliases(self, node: Resolved) -> tuple[AliasRow, ...]:
        """Other communities' names, with n for the layer."""
        return tuple(
            AliasRow(alias.name.replace("{layer}", "n"), alias.of, alias.layout) for alias in node.node.aliases
        )

    def equation(self, node: Resolved, view: View) -> Markup:
        """The equation with its lights. Where a view has one input in place of another, that one's symbol stands."""
        if not node.equation:
            return Markup("")
        return self._once(("equation", node.path, view), lambda: self._equation(node, view))

    def _equation(self, node: Resolved, view: View) -> Markup:
        tex = node.equation
        maker = self.maker(node, view)
        if maker is not None and isinstance(maker.node, Operation):
            for use in maker.node.uses:
                if not use.instead_of:
                    continue
                mine, other = (
                    self.graph[self.graph.resolve_path(path, maker.parent, maker.path)]
                    for path in (use.path, use.instead_of)
                )
                if other.shape[view] is None:
                    tex = tex.replace(
                        rf"\htmlData{{node={other.path}}}{{{other.symbol}}}",
                        rf"\htmlData{{node={mine.path}}}{{{mine.symbol}}}",
                    )
        return prose.equation(tex, self.graph, node.path)

    def explanation(self, node: Resolved) -> Markup:
        """The explanation's paragraphs."""
        return self._once(("explanation", node.path), lambda: prose.paragraphs(node.explanation))

    # --- what flows

    def maker(self, node: Resolved, view: View | None = None) -> Resolved | None:
        """The operation whose equation a node shows: itself, or the one that makes it (in a view)."""
        if node.kind == "operation":
            return node
        return self.graph.producer(node.path, view=view) if node.inputs else None

    def flow(self, node: Resolved, view: View) -> Flow:
        """What a node is made from, and where it goes, in a view."""
        return self._once(("flow", node.path, view), lambda: self._flow(node, view))

    def _flow(self, node: Resolved, view: View) -> Flow:
        rows: list[tuple[str, NodeRef]] = []
        maker = self.maker(node, view)
        if maker is not None:
            for edge in self._edges(view, target=maker.path):
                heading = "weight" if self.graph[edge.source].kind == "parameter" else "in"
                rows.append((heading, self.ref(edge.source, view, self._note(edge, maker, view))))
            rows += [("out", self.ref(path, view)) for path in maker.outputs if path == node.path or node == maker]
        else:
            for edge in self.graph.edges:
                if edge.target == node.path and (edge.first_layer or edge.next_layer):
                    note = "in layer 0" if edge.first_layer else "of the layer before, elsewhere"
                    rows.append(("in", self.ref(edge.source, view, note)))
        used = [self.ref(edge.target, view) for edge in self._edges(view, source=node.path)] if node != maker else []
        loops = [
            self.ref(edge.target, view, "of the next layer")
            for edge in self.graph.edges
            if edge.source == node.path and edge.next_layer
        ]
        made = (self.ref(maker.path, view),) if maker is not None and node != maker else ()
        return Flow(tuple(rows), made, (*loops, *used))

    def _edges(self, view: View, *, source: str = "", target: str = "") -> list[Edge]:
        return [
            edge
            for edge in self.graph.edges
            if view in edge.views
            and not (edge.next_layer or edge.first_layer)
            and ((source and edge.source == source) or (target and edge.target == target))
        ]

    def _note(self, edge: Edge, maker: Resolved, view: View) -> str:
        if edge.lends:
            return "its shape only"
        assert isinstance(maker.node, Operation)
        for use in maker.node.uses:
            if use.instead_of and self.graph.resolve_path(use.path, maker.parent, maker.path) == edge.source:
                other = self.graph[self.graph.resolve_path(use.instead_of, maker.parent, maker.path)]
                return f"in place of {other.name.lower()}" if other.shape[view] is None else ""
        return ""

    # --- the columns

    def code(self, path: str) -> CodeColumn:
        """The right column ('' is the model's)."""
        return self._once(("code", path), lambda: code_column(self.model, path))

    def diagram(self, component: str, view: View, page: str, parts: tuple[str, ...] | None) -> Diagram:
        """The left column of a node's page: a component's map, and the same as a list.

        By itself the whole model is drawn with what is repeated open, and a component with nothing open.
        """
        if parts is None:
            parts = tuple(self.open_by_itself(component))
        title = self.component_name(self.graph[component]) if component else self.model.name
        drawn = diagram(self.model, component, view, page, parts)
        some = tuple(
            SomeLayers(badge.letters, at, badge.layers.words, f"pattern-{at}" in drawn)
            for badge in badges(self.graph).values()
            for at in (badge.pattern % 2,)
        )
        return Diagram(component, title, drawn, self.tree(component, view), node_href(self.model.id, component), some)

    def open_by_itself(self, component: str) -> frozenset[str]:
        """The parts that a component's map has open where nobody asks for others."""
        inside = () if component else self.graph.children("")
        return frozenset(one.path for one in inside if isinstance(one.node, Component) and one.node.repeat)

    def neighbours(self, path: str) -> tuple[str, str]:
        """The nodes before and after in order of data flow; empty at either end."""
        order = self._once(("order",), lambda: tuple(self.graph.nodes))
        at = order.index(path)
        return order[at - 1] if at else "", order[at + 1] if at + 1 < len(order) else ""


class Views:
    """The catalogue's models as pages show them, each made when it is first asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def __getitem__(self, model: str) -> ModelView:
        """Raises `NotFound`."""
        return _view(self.catalog[model])


@lru_cache(maxsize=512)
def _view(model: Model) -> ModelView:
    return ModelView(model)
