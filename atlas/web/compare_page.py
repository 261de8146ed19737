"""Two models side by side: what differs, and what is the same, read off their declarations.

A node that has the same form in both and other numbers (sizes, epsilon) counts as the same form: the numbers are in
the tables of configuration and sizes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from markupsafe import Markup, escape
from starlette.requests import Request

from atlas.catalog import Model
from atlas.graph.axes import VIEW_NAMES, VIEWS
from atlas.graph.nodes import Operation, Quantity
from atlas.graph.resolve import Resolved
from atlas.web import prose
from atlas.web.contexts import CompareContext, CompareRow, Comparison, NodeDifference
from atlas.web.figures import figures
from atlas.web.model_view import ModelView
from atlas.web.pieces import Link
from atlas.web.site import Site
from atlas.web.state import node_href

_NODE = re.compile(r'data-node="([^"]+)"')


def compare_context(site: Site, request: Request, a: str, b: str) -> CompareContext:
    """Raises `NotFound` for an unknown model. An empty id is one that was not chosen yet."""
    chosen = [site.catalog.entry(model).name for model in (a, b) if model]
    both = bool(a and b)
    title = " and ".join(chosen) if both else "Compare two models"
    names = tuple((entry.id, entry.name) for entry in site.catalog)
    return CompareContext(
        frame=site.frame(
            request,
            f"{title} compared" if both else title,
            f"{title} side by side: configuration, sizes, parameters, KV cache, and the nodes that differ.",
            model=site.catalog[a] if a else None,
        ),
        models=tuple(Link(entry.name, entry.id) for entry in site.catalog),
        a=a,
        b=b,
        comparison=compared(site.views[a], site.views[b], names) if both else None,
    )


@lru_cache(maxsize=128)
def compared(a: ModelView, b: ModelView, names: tuple[tuple[str, str], ...]) -> Comparison:
    """The whole comparison, its links with a slot for the state. `names` are those of all models, by id."""
    one, other = a.model, b.model
    configuration = _rows(one.config, other.config, lambda value: escape(str(value)))
    sizes = _rows(one.architecture.sizes, other.architecture.sizes, lambda value: escape(str(value)))
    common = [path for path in one.graph.nodes if path in other.graph.nodes]
    differing = tuple(_differences(a, b, common))
    differ = {difference.path for difference in differing}
    only_a = tuple(a.ref(path, "full") for path in one.graph.nodes if path not in other.graph.nodes)
    only_b = tuple(b.ref(path, "full") for path in other.graph.nodes if path not in one.graph.nodes)
    same = tuple(a.ref(path, "full") for path in common if path not in differ)
    changed = [row for row in configuration if row.a != row.b]
    return Comparison(
        a=Link(one.name, node_href(one.id)),
        b=Link(other.name, node_href(other.id)),
        lineage=tuple(_lineage(one, other, names)),
        configuration=tuple(changed),
        same_configuration=tuple(row for row in configuration if row.a == row.b),
        sizes=tuple(row for row in sizes if row.a != row.b),
        same_sizes=tuple(row for row in sizes if row.a == row.b),
        figures=tuple(
            CompareRow(
                mine.label, escape(f"{mine.value} {mine.unit}".strip()), escape(f"{theirs.value} {theirs.unit}".strip())
            )
            for mine, theirs in zip(figures(one), figures(other), strict=False)
        ),
        only_a=only_a,
        only_b=only_b,
        differing=differing,
        same=same,
        verdict=_verdict(one, other, len(only_a), len(only_b), len(differing), len(same), len(changed)),
    )


def _verdict(one: Model, other: Model, only_a: int, only_b: int, differing: int, same: int, changed: int) -> str:
    if not (only_a or only_b or differing):
        numbers = f"; {changed} settings differ" if changed else ", with the same settings"
        return f"The same graph: all {same} nodes have the same form{numbers}."
    said = []
    if only_a:
        said.append(f"{only_a} {_nodes(only_a)} only in {one.name}")
    if only_b:
        said.append(f"{only_b} {_nodes(only_b)} only in {other.name}")
    if differing:
        said.append(f"{differing} {_nodes(differing)} in both, but different")
    return f"{'; '.join(said)}. {same} are of the same form."


def _nodes(count: int) -> str:
    return "node" if count == 1 else "nodes"


def _lineage(one: Model, other: Model, names: tuple[tuple[str, str], ...]) -> Iterator[CompareRow]:
    facts: tuple[tuple[str, Callable[[Model], str]], ...] = (
        ("Publisher", lambda model: model.entry.publisher),
        ("Released", lambda model: model.entry.released_words),
        ("Follows", lambda model: dict(names).get(model.entry.follows or "", "–")),
        ("Kind", lambda model: model.architecture.kind),
        ("Attention", lambda model: model.architecture.attention),
        ("Embeddings", lambda model: "tied" if model.entry.tied_embeddings else "separate"),
    )
    for name, fact in facts:
        yield CompareRow(name, escape(fact(one)), escape(fact(other)))


def _rows(a: Mapping[str, object], b: Mapping[str, object], show: Callable[[object], Markup]) -> list[CompareRow]:
    missing = Markup("–")
    return [
        CompareRow(name, show(a[name]) if name in a else missing, show(b[name]) if name in b else missing)
        for name in dict.fromkeys((*a, *b))
    ]


def _differences(a: ModelView, b: ModelView, paths: Iterable[str]) -> Iterator[NodeDifference]:
    for path in paths:
        mine, theirs = a.graph[path], b.graph[path]
        rows = tuple(_unlike(a, b, mine, theirs))
        if rows:
            yield NodeDifference(
                name=mine.name,
                kind=mine.kind,
                path=path,
                a=node_href(a.model.id, path),
                b=node_href(b.model.id, path),
                rows=rows,
            )


def _unlike(a: ModelView, b: ModelView, mine: Resolved, theirs: Resolved) -> Iterator[CompareRow]:
    if mine.name != theirs.name:
        yield CompareRow("name", escape(mine.name), escape(theirs.name))
    if mine.symbol != theirs.symbol:
        yield CompareRow("symbol", prose.symbol(mine.symbol), prose.symbol(theirs.symbol))
    if _form(a, mine) != _form(b, theirs):
        left, right = _equation(a, mine), _equation(b, theirs)
        yield CompareRow("equation", _marked(left, right), _marked(right, left))
    if _axes(mine) != _axes(theirs):
        yield CompareRow("axes", escape(", ".join(_axes(mine))), escape(", ".join(_axes(theirs))))
    for view in VIEWS:
        if (mine.shape[view] is None) != (theirs.shape[view] is None):
            there = ["computed" if node.shape[view] is not None else "not computed" for node in (mine, theirs)]
            yield CompareRow(VIEW_NAMES[view].lower(), escape(there[0]), escape(there[1]))
    for heading, ours, others in (("from", mine.inputs, theirs.inputs), ("goes to", mine.outputs, theirs.outputs)):
        if ours != others:
            yield CompareRow(heading, _names(a, ours, others), _names(b, others, ours))


def _equation(view: ModelView, node: Resolved) -> Markup:
    return prose.equation(node.equation, view.graph, display=False) if node.equation else Markup("none")


def _form(view: ModelView, node: Resolved) -> str:
    """The equation before numbers are put in."""
    maker = view.maker(node)
    return maker.node.equation if maker is not None and isinstance(maker.node, Operation) else ""


def _axes(node: Resolved) -> tuple[str, ...]:
    return node.node.shape if isinstance(node.node, Quantity) else ()


def _marked(equation: Markup, other: Markup) -> Markup:
    """An equation with a mark on the symbols of nodes that the other has not."""
    theirs = set(_NODE.findall(other))
    return Markup(_NODE.sub(lambda m: m[0] if m[1] in theirs else f'{m[0]} data-differs=""', equation))


def _names(view: ModelView, mine: tuple[str, ...], theirs: tuple[str, ...]) -> Markup:
    parts = [
        Markup("<mark>{}</mark>").format(view.graph[path].name) if path not in theirs else escape(view.graph[path].name)
        for path in mine
    ]
    return Markup(", ").join(parts) if parts else Markup("–")
