"""The page of one node, and of a whole model: contexts made from a model's view, the state and the backend."""

from __future__ import annotations

from markupsafe import Markup
from starlette.requests import Request

from atlas.catalog import Model
from atlas.errors import NotFound
from atlas.graph.evidence import SourceRef
from atlas.graph.nodes import Component
from atlas.graph.resolve import Resolved
from atlas.models.entry import CitedConfiguration
from atlas.web import prose, walk
from atlas.web.code_column import range_text, source
from atlas.web.contexts import EmbedContext, ModelContext, NodeContext, SourceLine
from atlas.web.cost_tables import POSITIONS, cost_note, cost_rows, pass_costs
from atlas.web.figures import figures
from atlas.web.live_values import live_context, live_model
from atlas.web.model_view import ModelView
from atlas.web.pieces import Chip, LineRange, Link, NodeRef
from atlas.web.place_bar import place_bar
from atlas.web.site import THEMES, Site
from atlas.web.state import State, node_href
from atlas.web.verified import verification

EARLIER = "an earlier version, cited by its lines"


def find_node(view: ModelView, path: str, state: State) -> Resolved:
    """Raises `NotFound` with a link to the nearest node."""
    try:
        return view.graph[path]
    except NotFound as error:
        near = view.graph.nearest(path)
        raise NotFound(
            f"{view.model.name} has no node {path[:200]!r}.",
            error.hint,
            nearest=near,
            nearest_name=f"{view.graph[near].name} ({near})",
            href=node_href(view.model.id, near),
            query=state.query,
        ) from None


def node_context(site: Site, request: Request, model_id: str, path: str, state: State) -> NodeContext:
    """Raises `NotFound` for an unknown model or node."""
    view = site.views[model_id]
    node = find_node(view, path, state)
    model = view.model
    shape = node.shape[state.view]
    inside = isinstance(node.node, Component)
    description = prose.plain(node.node.description)
    title = f"{model.name} · {node.name}"
    return NodeContext(
        frame=site.frame(
            request,
            title,
            f"{node.name} in {model.name}: {description}",
            model=model,
            path=path,
            place=place_bar(view, path, state, live_model(site.catalog, site.backend, model.id)),
        ),
        path=path,
        walk=walk.current(request, model, path),
        embed=_embed(site, request, f"/embed/{model.id}/{path}{State(view=state.view).query}"),
        kind=node.kind,
        repeat=view.repeat(node),
        name=node.name,
        symbol=prose.symbol(node.symbol),
        code_name=model.code_name(path),
        lede=prose.inline(node.node.description),
        chips=view.chips(shape) if shape else (),
        shape=prose.shape_words(shape) if shape else Markup(""),
        absent=view.absent(node, state.view),
        derived=model.architecture.derived,
        size_note=view.size_note(node),
        equation=view.equation(node, state.view),
        flow=view.flow(node, state.view),
        explanation=view.explanation(node),
        costs=cost_rows(model, path, state.view),
        layers=node.layers.words if node.layers is not None else "",
        contents=view.tree(path, state.view) if inside else (),
        aliases=view.aliases(node),
        verification=verification(site.ledger, view, path, live_model(site.catalog, site.backend, model.id)),
        diagram=view.diagram(path if inside else node.parent, state.view, path, state.opened),
        code=view.code(path),
        live=live_context(site.catalog, site.backend, model, path, state),
    )


def _embed(site: Site, request: Request, href: str) -> str:
    """The full address of the page for frames, as far as it is known."""
    if site.published is not None:
        return site.published.address(href)
    return f"{request.url.scheme}://{request.url.netloc}{href}"


def embed_context(site: Site, request: Request, model_id: str, path: str, state: State) -> EmbedContext:
    """The node to stand in a frame of another site. Raises `NotFound`."""
    view = site.views[model_id]
    node = find_node(view, path, state)
    shape = node.shape[state.view]
    inside = isinstance(node.node, Component)
    theme = request.query_params.get("theme", "")
    sources = view.code(path).sources
    return EmbedContext(
        theme=theme if theme in THEMES else "",
        title=f"{node.name} in {view.model.name}",
        page=node_href(model_id, path),
        model_name=view.model.name,
        kind=node.kind,
        name=node.name,
        path=path,
        symbol=prose.symbol(node.symbol),
        lede=prose.inline(node.node.description),
        chips=view.chips(shape) if shape else (),
        shape=prose.shape_words(shape) if shape else Markup(""),
        equation=view.equation(node, state.view),
        flow=view.flow(node, state.view),
        diagram=view.diagram(path, state.view, path, ()).svg if inside else Markup(""),
        source=sources[0] if sources else None,
    )


# --- a model


def model_context(site: Site, request: Request, model_id: str, state: State) -> ModelContext:
    """Raises `NotFound` for an unknown model."""
    view = site.views[model_id]
    model, entry = view.model, view.model.entry
    kind = model.architecture.kind
    follows = Link(site.catalog.entry(entry.follows).name, node_href(entry.follows)) if entry.follows else None
    differs = _differs(site, view, state)
    code = _code_lines(model)
    return ModelContext(
        frame=site.frame(
            request,
            model.name,
            f"{model.name} by {entry.publisher} ({entry.released_words}), a {kind[0].lower()}{kind[1:]}: its graph, "
            "equations, pinned sources and live values.",
            model=model,
            place=place_bar(view, "", state, live_model(site.catalog, site.backend, model.id)),
        ),
        name=model.name,
        publisher=entry.publisher,
        released=entry.released_words,
        kind=kind,
        attention=model.architecture.attention,
        follows=follows,
        follows_id=entry.follows or "",
        differs=differs,
        differs_at=_lines_of(model, differs),
        reads_as=f"{_subject(model, code)} {entry.reads_as}." if entry.reads_as else "",
        lines=(*code, _configuration_line(model)),
        summary=prose.inline(model.architecture.summary),
        figures=figures(model),
        costs=pass_costs(model),
        cost_positions=f"{POSITIONS:,}",
        cost_note=cost_note(model),
        configuration=tuple((key, str(value)) for key, value in model.config.items()),
        sizes=tuple(
            (Chip(axis, Markup(f"{size}"), view.graph.axes[axis].meaning), axis)
            for axis, size in model.architecture.sizes.items()
            if axis != "one"
        ),
        errata=tuple(source(model, piece) for piece in model.errata),
        verification=verification(site.ledger, view, "", live_model(site.catalog, site.backend, model.id)),
        diagram=view.diagram("", state.view, "", state.opened),
        code=view.code(""),
        live=live_context(site.catalog, site.backend, model, "", state),
    )


def _differs(site: Site, view: ModelView, state: State) -> tuple[NodeRef, ...]:
    """The nodes that the model's predecessor lacks."""
    before = view.model.entry.follows
    if not before:
        return ()
    other = site.catalog[before].graph.nodes
    return tuple(view.ref(path, state.view) for path in view.graph.nodes if path not in other)


def _subject(model: Model, code: tuple[SourceLine, ...]) -> str:
    """Of what a model's entry says how it computes: an earlier version of the code, the code, or the model itself."""
    if any(line.note == EARLIER for line in code):
        return "The earlier code" if model.entry.follows else "The reference code"
    return model.name if model.entry.follows else "The reference code"


def _lines_of(model: Model, nodes: tuple[NodeRef, ...]) -> tuple[LineRange, ...]:
    """Where the code of these steps stands."""
    found: dict[str, LineRange] = {}
    for ref in nodes:
        for piece in model.evidence(ref.path) if ref.kind == "operation" else ():
            if piece.kind == "direct":
                name = piece.path.rsplit("/", 1)[-1]
                found.update(
                    (link, LineRange(f"{name} {range_text(a)}", link))
                    for a, link in zip(piece.lines, piece.links, strict=True)
                )
    return tuple(found.values())


def _code_lines(model: Model) -> tuple[SourceLine, ...]:
    """The reference code that runs, then the other files that nodes cite."""
    ran = model.architecture.reference.file
    cited: dict[SourceRef, None] = {ran: None}
    for node in model.graph.nodes.values():
        cited.update((piece.file, None) for piece in node.node.evidence)
    config = model.entry.configuration
    if isinstance(config, CitedConfiguration):
        cited.pop(config.file, None)
    found = []
    for ref in cited:
        lock, locked = model.store.locks.locked(ref)
        note = "runs here, unmodified" if ref == ran else EARLIER if ref.source != ran.source else "cited by its lines"
        label = "Reference code" if ref == ran else "Also read"
        found.append(
            SourceLine(label, lock.repository, lock.short_revision, locked.path, lock.link(locked.path), (), note)
        )
    return tuple(found)


def _configuration_line(model: Model) -> SourceLine:
    piece = model.configuration
    ranges = tuple(LineRange(range_text(a), link) for a, link in zip(piece.lines, piece.links, strict=True))
    return SourceLine("Configuration", piece.repository, piece.short_revision, piece.path, piece.url, ranges, "")
