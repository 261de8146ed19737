"""What each template is given: one frozen, typed context a template. What several share is in `atlas.web.pieces`.

Owns names and types only. `Markup` is HTML that is safe as it is; `str` is text, which templates escape.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from markupsafe import Markup

from atlas.graph.axes import View
from atlas.web.figures import Figure
from atlas.web.pieces import (
    AliasRow,
    Chip,
    CodeColumn,
    CostRow,
    Diagram,
    Flow,
    Frame,
    LineRange,
    Link,
    LiveContext,
    NodeRef,
    PassCost,
    Source,
    Verification,
    WalkStop,
)


@dataclass(frozen=True)
class ModelCard:
    """A model on the front page. `preview` is the index of its drawing, which models of the same graph share."""

    id: str
    href: str
    name: str
    publisher: str
    released: str
    sort: date
    kind: str
    attention: str
    follows: Link | None
    parameters: str
    cache: str
    layers: int
    live: bool
    preview: int


@dataclass(frozen=True)
class Family:
    """The models of one architecture."""

    name: str
    summary: Markup
    models: tuple[ModelCard, ...]


@dataclass(frozen=True)
class HomeContext:
    """home.html. `missing` are models that cannot be shown here, each with what is in the way."""

    frame: Frame
    families: tuple[Family, ...]
    previews: tuple[Markup, ...]
    timeline: tuple[tuple[str, tuple[ModelCard, ...]], ...]
    missing: tuple[tuple[str, str], ...]
    count: int
    live_name: str
    start: tuple[tuple[Link, str], ...]


@dataclass(frozen=True)
class SourceLine:
    """A repository's file in a model's header."""

    label: str
    repository: str
    revision: str
    path: str
    href: str
    ranges: tuple[LineRange, ...]
    note: str


@dataclass(frozen=True)
class ModelContext:
    """model.html. `differs` are the nodes that the model's predecessor lacks, `differs_at` the lines of their code."""

    frame: Frame
    name: str
    publisher: str
    released: str
    kind: str
    attention: str
    follows: Link | None
    follows_id: str
    differs: tuple[NodeRef, ...]
    differs_at: tuple[LineRange, ...]
    reads_as: str
    lines: tuple[SourceLine, ...]
    summary: Markup
    figures: tuple[Figure, ...]
    costs: tuple[PassCost, ...]
    cost_positions: str
    cost_note: str
    configuration: tuple[tuple[str, str], ...]
    sizes: tuple[tuple[Chip, str], ...]
    errata: tuple[Source, ...]
    verification: Verification
    diagram: Diagram
    code: CodeColumn
    live: LiveContext


@dataclass(frozen=True)
class NodeContext:
    """node.html. `absent` says why the node is not there in this view, `layers` in which it is if not in all, `derived`
    whether its model was read off the code. `embed` is the page for frames: its full address, or only its path where
    the site's address is not known.
    """

    frame: Frame
    path: str
    walk: WalkStop | None
    embed: str
    kind: str
    repeat: str
    name: str
    symbol: Markup
    code_name: str
    lede: Markup
    chips: tuple[Chip, ...]
    shape: Markup
    absent: str
    derived: bool
    size_note: str
    equation: Markup
    flow: Flow
    explanation: Markup
    costs: tuple[CostRow, ...]
    layers: str
    contents: tuple[NodeRef, ...]
    aliases: tuple[AliasRow, ...]
    verification: Verification
    diagram: Diagram
    code: CodeColumn
    live: LiveContext


@dataclass(frozen=True)
class EmbedContext:
    """embed.html: one node to stand in a frame of another site. `source` cites where it is computed.

    `diagram` is a component's own, without its list.
    """

    theme: str
    title: str
    page: str
    model_name: str
    kind: str
    name: str
    path: str
    symbol: Markup
    lede: Markup
    chips: tuple[Chip, ...]
    shape: Markup
    equation: Markup
    flow: Flow
    diagram: Markup
    source: Source | None


@dataclass(frozen=True)
class WalkContext:
    """walk.html"""

    frame: Frame
    model_name: str
    stops: tuple[WalkStop, ...]


@dataclass(frozen=True)
class GlossaryEntry:
    """A word, and where what it means can be seen."""

    id: str
    name: str
    text: Markup
    node: Link | None


@dataclass(frozen=True)
class GlossaryContext:
    """glossary.html"""

    frame: Frame
    model_name: str
    entries: tuple[GlossaryEntry, ...]


@dataclass(frozen=True)
class AxisRow:
    """An axis in the table of axes: its symbol in each view, or its symbol."""

    name: str
    symbols: tuple[Markup, ...]
    meaning: str


@dataclass(frozen=True)
class HowToReadContext:
    """how-to-read.html"""

    frame: Frame
    axes: tuple[AxisRow, ...]
    example_name: str
    example_href: str
    example: Markup
    example_flow: Flow
    live_name: str


@dataclass(frozen=True)
class CompareRow:
    """One line of a comparison."""

    name: str
    a: Markup
    b: Markup
    href: str = ""


@dataclass(frozen=True)
class NodeDifference:
    """A node that both models have and that differs, with what of it does."""

    name: str
    kind: str
    path: str
    a: str
    b: str
    rows: tuple[CompareRow, ...]


@dataclass(frozen=True)
class Comparison:
    """Two models side by side. What is the same in both is counted, and folded."""

    a: Link
    b: Link
    lineage: tuple[CompareRow, ...]
    configuration: tuple[CompareRow, ...]
    same_configuration: tuple[CompareRow, ...]
    sizes: tuple[CompareRow, ...]
    same_sizes: tuple[CompareRow, ...]
    figures: tuple[CompareRow, ...]
    only_a: tuple[NodeRef, ...]
    only_b: tuple[NodeRef, ...]
    differing: tuple[NodeDifference, ...]
    same: tuple[NodeRef, ...]
    verdict: str


@dataclass(frozen=True)
class CompareContext:
    """compare.html. `comparison` is None before two models were chosen."""

    frame: Frame
    models: tuple[Link, ...]
    a: str
    b: str
    comparison: Comparison | None


@dataclass(frozen=True)
class SearchHit:
    """One answer of the search: what matched, and where it leads."""

    kind: str
    name: str
    symbol: str
    path: str
    href: str
    matched: str
    of: str
    layout: str
    models: str


@dataclass(frozen=True)
class SearchContext:
    """search.html"""

    frame: Frame
    query: str
    hits: tuple[SearchHit, ...]


@dataclass(frozen=True)
class ProblemContext:
    """problem.html: what happened, what to do next."""

    frame: Frame
    status: int
    title: str
    detail: str
    hint: str
    request_id: str
    suggestion: Link | None = None
    links: tuple[Link, ...] = field(default=())


@dataclass(frozen=True)
class MissingContext:
    """missing.html: what a published site's host gives for an address that has no file."""

    frame: Frame


@dataclass(frozen=True)
class Endpoint:
    """One call of the API."""

    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[tuple[str, str, str], ...]
    answers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ApiContext:
    """api.html: the API as a page."""

    frame: Frame
    groups: tuple[tuple[str, tuple[Endpoint, ...]], ...]


@dataclass(frozen=True)
class PublishedRun:
    """A recorded run of a published site: where it is shown, and what was left out, in words, by view and node."""

    id: str
    href: str
    model_name: str
    text: str
    tokens: int
    size: str
    left_out: tuple[tuple[View | None, tuple[tuple[str, str], ...]], ...]


@dataclass(frozen=True)
class PublishedContext:
    """published.html: what a published site holds."""

    frame: Frame
    models: tuple[Link, ...]
    pages: int
    budget: str
    runs: tuple[PublishedRun, ...]
