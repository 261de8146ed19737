"""The front page: all models, by family and by date."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from markupsafe import Markup
from starlette.requests import Request

from atlas.catalog import Model
from atlas.web import prose
from atlas.web.contexts import Family, HomeContext, ModelCard
from atlas.web.drawing import preview
from atlas.web.figures import binary_bytes, cache_bytes_a_token, parameters
from atlas.web.pieces import Link
from atlas.web.readable import resolved
from atlas.web.site import Site
from atlas.web.state import node_href

START = (
    ("blocks/attention/attention-update", "where attention meets the residual stream"),
    ("blocks/attention/scale-similarities", "why similarities are divided by the root of the head width"),
    ("blocks/block-output", "what a block hands on"),
)


def home_context(site: Site, request: Request) -> HomeContext:
    """Every model of the catalogue."""
    drawn: dict[tuple[str, ...], int] = {}
    previews: list[Markup] = []
    cards = {}
    missing = []
    for entry, model in resolved(site.catalog):
        if not isinstance(model, Model):
            missing.append((entry.name, str(model)))
            continue
        graph_of = (str(model.architecture.sizes["layers"]), *model.graph.nodes)
        if graph_of not in drawn:
            drawn[graph_of] = len(previews)
            previews.append(preview(model))
        cards[entry.id] = _card(site, model, drawn[graph_of])
    published = (card for identity, card in cards.items() if not site.catalog.entry(identity).untrained)
    by_date = sorted(published, key=lambda card: (card.sort, card.name))
    live = site.catalog[site.backend.live_model].name if site.backend is not None else ""
    first = next(iter(cards), "")
    graph = site.catalog[first].graph.nodes if first else {}
    return HomeContext(
        frame=site.frame(
            request,
            "",
            f"{len(cards)} language models from the inside: every tensor with its shape, equation, pinned source and "
            "live values.",
        ),
        families=tuple(_families(site, cards)),
        previews=tuple(previews),
        timeline=tuple((month, tuple(group)) for month, group in groupby(by_date, key=lambda card: card.released)),
        missing=tuple(missing),
        count=len(cards),
        live_name=live,
        start=tuple((Link(graph[path].name, node_href(first, path)), why) for path, why in START if path in graph),
    )


def _card(site: Site, model: Model, drawing: int) -> ModelCard:
    entry = model.entry
    follows = Link(site.catalog.entry(entry.follows).name, node_href(entry.follows)) if entry.follows else None
    return ModelCard(
        id=model.id,
        href=node_href(model.id),
        name=model.name,
        publisher=entry.publisher,
        released=entry.released_words,
        sort=entry.released.replace(day=1),
        kind=model.architecture.kind,
        attention=model.architecture.attention,
        follows=follows,
        parameters=f"{parameters(model):,}",
        cache=binary_bytes(cache_bytes_a_token(model)),
        layers=model.architecture.sizes["layers"],
        live=site.backend is not None and site.backend.has_checkpoint(model.id),
        preview=drawing,
    )


def _families(site: Site, cards: dict[str, ModelCard]) -> Iterable[Family]:
    members: dict[str, list[str]] = {}
    for entry in (entry for entry in site.catalog if entry.id in cards):
        members.setdefault(entry.architecture, []).append(entry.id)
    for ids in members.values():
        one = site.catalog[ids[0]]
        yield Family(
            name=one.architecture.name,
            summary=prose.inline(one.architecture.summary),
            models=tuple(cards[model_id] for model_id in ids),
        )
