"""The graph as JSON: models, nodes, evidence; and whether the server is up and ready.

Owns the answers' models, which `/openapi.json` describes. Runs and tensors are elsewhere.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from atlas.catalog import Catalog, Model
from atlas.errors import NotReady
from atlas.graph.axes import VIEWS, View
from atlas.graph.evidence import EvidenceKind
from atlas.graph.nodes import Component, NodeKind
from atlas.graph.resolve import Resolved
from atlas.provenance.citations import Citation
from atlas.web.live_values import LiveValues
from atlas.web.problems import documented
from atlas.web.readable import readable
from atlas.web.site import Site

router = APIRouter()


class Answer(BaseModel):
    """What the API gives."""

    model_config = ConfigDict(populate_by_name=True)


class Health(Answer):
    """The server is up."""

    status: Literal["up"] = "up"


class Ready(Answer):
    """The default checkpoint is ready."""

    status: Literal["ready"] = "ready"
    model: str = Field(description="The model that runs.")
    demo_run: str | None = Field(description="The id of the demonstration run, once there is one.")


class Live(Answer):
    """Whether a model runs here itself, or another stands in."""

    available: bool = Field(description="Whether the model's own checkpoint is here.")
    stand_in: str | None = Field(description="The model whose values are shown instead; null if it runs itself.")


class ModelSummary(Answer):
    """One model of the catalogue."""

    id: str
    name: str
    publisher: str
    released: str = Field(description="ISO date.", examples=["2024-07-23"])
    kind: str
    attention: str
    architecture: str
    follows: str | None = Field(description="The id of the model that it follows.")
    derived: bool = Field(description="Whether its graph was read off its code, and nobody has described it.")
    live: Live


class AxisExtent(Answer):
    """One axis of a shape; `size` is null where it depends on the input."""

    axis: str
    symbol: str = Field(description="TeX.")
    size: int | None
    words: str


Shape = dict[View, list[AxisExtent] | None]


class NodeSummary(Answer):
    """A node in the graph. `shape` is null in a view where the node does not exist, and for what has no shape."""

    path: str
    parent: str = Field(description="The component that it is in; empty at the top.")
    kind: NodeKind
    name: str
    symbol: str = Field(description="TeX; empty for components and operations.")
    description: str
    repeat: int | None = Field(None, description="How often a component stands in a row.")
    views: list[View] = Field(description="The views in which it exists.")
    shape: Shape
    inputs: list[str]
    outputs: list[str]


class GraphEdge(Answer):
    """Something flows from one node to another."""

    source: str = Field(alias="from")
    target: str = Field(alias="to")
    views: list[View]
    next_layer: bool = Field(False, description="From a block's end to the next block's start.")
    first_layer: bool = Field(False, description="Into the first block.")
    lends: bool = Field(False, description="Only shape, position or dtype is used.")


class ModelGraph(ModelSummary):
    """A model, whole."""

    config: dict[str, int | float | bool | None]
    sizes: dict[str, int] = Field(description="Fixed axes by name.")
    nodes: list[NodeSummary] = Field(description="In order of data flow.")
    edges: list[GraphEdge]


class NodeAlias(Answer):
    """Another community's name."""

    name: str
    of: str
    layout: str = Field(description="How the value is laid out there, where it differs.")


class Source(Answer):
    """A pinned file."""

    repository: str
    revision: str
    path: str
    url: str = Field(description="The first cited line at the pinned revision.")
    sha256: str
    license: str
    license_url: str


class ExcerptPiece(Answer):
    """A run of lines; `start` and `end` are both in it."""

    start: int
    end: int
    code: str


class EvidencePiece(Answer):
    """A claim with its citation. `excerpt` is empty where no verified copy is here: `available` is false."""

    id: str
    kind: EvidenceKind
    claim: str
    source: Source
    lines: list[tuple[int, int]]
    links: list[str] = Field(description="One for each range of lines.")
    available: bool
    missing: str = Field(description="Why there is no excerpt.")
    excerpt: list[ExcerptPiece]


class NodeDetail(NodeSummary):
    """A node with everything that its page says."""

    code: str = Field(description="What the source calls it.")
    aliases: list[NodeAlias]
    absent: str = Field(description="Why it does not exist in the other views.")
    equation: str = Field(description="TeX; empty where nothing computes it.")
    explanation: str = Field(description="Paragraphs; `$...$` is TeX.")
    derived: bool = Field(description="Whether it was read off the code, and nobody has described it.")
    evidence: list[EvidencePiece]


class Hit(Answer):
    """One answer of the search. `matched` is the text by which it was found where that is not its name."""

    kind: str = Field(description="A node's kind, `model` or `axis`.")
    name: str
    symbol: str = Field(description="Plain text.")
    path: str
    href: str = Field(description="The page, at the layer that the query names.")
    matched: str
    of: str = Field(description="Whose name `matched` is.")
    layout: str = Field(description="How the value is laid out under that name, where it differs.")
    models: str = Field(description="The model that has it, or how many do.")


class Hits(Answer):
    """The best first."""

    query: str
    hits: list[Hit]


ModelId = Annotated[str, InPath(description="An id of /api/models.", examples=["llama-3-8b"])]
NodePath = Annotated[
    str, InPath(description="A node's path.", examples=["blocks/attention/attention-update"], max_length=300)
]


def _catalog(request: Request) -> Catalog:
    catalog: Catalog = request.app.state.catalog
    return catalog


def _live(request: Request, model: str) -> Live:
    backend: LiveValues | None = request.app.state.backend
    available = backend is not None and backend.has_checkpoint(model)
    stand_in = None if available or backend is None else backend.stand_in(model)
    return Live(available=available, stand_in=stand_in)


@router.get("/healthz", tags=["server"])
async def healthz() -> Health:
    """Whether the server is up."""
    return Health()


@router.get("/readyz", tags=["server"], responses=documented(503))
async def readyz(request: Request) -> Ready:
    """Whether the default checkpoint is ready. Until then a problem says how far it is, in words and as a share."""
    backend: LiveValues | None = request.app.state.backend
    if backend is None:
        raise NotReady("This server runs no model.", "Start it with: atlas serve")
    status = backend.status
    if not status.ready:
        if status.error is not None:
            raise NotReady(status.error.detail, status.error.hint, stage=status.stage, progress=None, failed=True)
        raise NotReady(
            f"Not ready yet: {status.stage}.", "Ask again in a while.", stage=status.stage, progress=status.progress
        )
    return Ready(model=backend.live_model, demo_run=backend.demo_run())


@router.get("/api/models", tags=["graph"])
def list_models(request: Request) -> list[ModelSummary]:
    """Every model of the catalogue."""
    catalog = _catalog(request)
    return [ModelSummary(**_summary(model), live=_live(request, model.id)) for model in readable(catalog)]


@router.get("/api/models/{model}", tags=["graph"], responses=documented(404))
def get_model(request: Request, model: ModelId) -> ModelGraph:
    """A model's whole graph: nodes in order of data flow, and edges."""
    found = _catalog(request)[model]
    nodes, edges = _graph(found)
    return ModelGraph(
        **_summary(found),
        live=_live(request, model),
        config=dict(found.config),
        sizes=dict(found.architecture.sizes),
        nodes=list(nodes),
        edges=list(edges),
    )


@router.get("/api/models/{model}/nodes/{node:path}", tags=["graph"], responses=documented(404, 422))
def get_node(request: Request, model: ModelId, node: NodePath) -> NodeDetail:
    """One node: shape in each view, equation, explanation, other names, and evidence with excerpts."""
    return _detail(_catalog(request)[model], node)


@router.get("/api/search", tags=["graph"], responses=documented(422))
def search(
    request: Request,
    q: Annotated[str, Query(max_length=200, description="A name, a symbol, code, or another library's name.")],
    model: Annotated[str, Query(max_length=100, description="Nodes lead to this model where it has them.")] = "",
    view: View = "full",
) -> Hits:
    """Search all models: `attention update`, `S_s`, `blk.3.attn_k.weight`, `self_attn.k_proj`, `resid_mid`."""
    site: Site = request.app.state.site
    found = site.index.search(q, model=model, view=view)
    return Hits(query=q, hits=[Hit(**{name: getattr(hit, name) for name in Hit.model_fields}) for hit in found])


def _summary(model: Model) -> dict[str, str | bool | None]:
    entry = model.entry
    return {
        "id": model.id,
        "name": model.name,
        "publisher": entry.publisher,
        "released": entry.released.isoformat(),
        "kind": model.architecture.kind,
        "attention": model.architecture.attention,
        "architecture": entry.architecture,
        "follows": entry.follows,
        "derived": model.architecture.derived,
    }


@lru_cache(maxsize=256)
def _graph(model: Model) -> tuple[tuple[NodeSummary, ...], tuple[GraphEdge, ...]]:
    nodes = tuple(NodeSummary(**_node(model, node)) for node in model.graph.nodes.values())
    edges = tuple(
        GraphEdge(
            source=edge.source,
            target=edge.target,
            views=list(edge.views),
            next_layer=edge.next_layer,
            first_layer=edge.first_layer,
            lends=edge.lends,
        )
        for edge in model.graph.edges
    )
    return nodes, edges


def _node(model: Model, node: Resolved) -> dict[str, object]:
    declared = node.node
    repeat = declared.repeat if isinstance(declared, Component) else None
    return {
        "path": node.path,
        "parent": node.parent,
        "kind": node.kind,
        "name": node.name,
        "symbol": node.symbol,
        "description": declared.description,
        "repeat": model.architecture.sizes[repeat] if repeat else None,
        "views": list(getattr(declared, "views", VIEWS)),
        "shape": {
            view: None
            if shape is None
            else [AxisExtent(axis=e.axis, symbol=e.symbol, size=e.size, words=e.words) for e in shape]
            for view, shape in node.shape.items()
        },
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
    }


@lru_cache(maxsize=1024)
def _detail(model: Model, path: str) -> NodeDetail:
    node = model.graph[path]
    base = node.path if node.kind == "component" else node.parent
    return NodeDetail(
        **_node(model, node),
        code=model.code_name(path),
        aliases=[NodeAlias(name=alias.name, of=alias.of, layout=alias.layout) for alias in node.node.aliases],
        absent=getattr(node.node, "absent", ""),
        equation=node.plain_equation,
        explanation=model.graph.light(node.node.explanation, base, f"the explanation of {path!r}", marks=False),
        derived=model.architecture.derived,
        evidence=[_evidence(piece) for piece in model.evidence(path)],
    )


def _evidence(piece: Citation) -> EvidencePiece:
    return EvidencePiece(
        id=piece.id,
        kind=piece.kind,
        claim=piece.claim,
        source=Source(
            repository=piece.repository,
            revision=piece.revision,
            path=piece.path,
            url=piece.url,
            sha256=piece.sha256,
            license=piece.license,
            license_url=piece.license_url,
        ),
        lines=list(piece.lines),
        links=list(piece.links),
        available=piece.available,
        missing=piece.missing,
        excerpt=[ExcerptPiece(start=part.start, end=part.end, code=part.code) for part in piece.excerpt],
    )
