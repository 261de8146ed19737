"""What several pages are made of, as templates are given it: the frame around each, and the pieces on it.

Owns names and types only. `Markup` is HTML that is safe as it is; `str` is text, which templates escape.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from atlas.graph.axes import View
from atlas.web.stand_in import StandIn

# --- the frame around every page


@dataclass(frozen=True)
class Link:
    """`current` marks the page's own."""

    text: str
    href: str
    current: bool = False


@dataclass(frozen=True)
class ViewLink:
    """One end of the view toggle."""

    view: View
    text: str
    href: str
    current: bool
    key: str


@dataclass(frozen=True)
class Stepper:
    """A count that the place bar shows, with links one down and one up (empty at an end, `most` None if unknown)."""

    name: str
    value: int
    most: int | None
    down: str
    up: str
    keys: tuple[str, str]


@dataclass(frozen=True)
class PlaceBar:
    """Where the reader is, and the ways on: breadcrumb, view switch, layer and step, neighbours."""

    crumbs: tuple[Link, ...]
    views: tuple[ViewLink, ...] = ()
    steppers: tuple[Stepper, ...] = ()
    up: Link | None = None
    before: Link | None = None
    after: Link | None = None


@dataclass(frozen=True)
class Frame:
    """The head of the document and the site bar. `theme` is empty where the system decides.

    `read_only` is whether this reader may start no run, `published` whether the page is a file of a site without a
    server; then `canonical` is empty where the site's address is not known.
    """

    title: str
    description: str
    canonical: str
    origin: str
    theme: str
    model_id: str = ""
    model_name: str = ""
    others: tuple[Link, ...] = ()
    query: str = ""
    place: PlaceBar | None = None
    scripts: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    index: bool = True
    preview_image: str = ""
    read_only: bool = False
    published: bool = False


# --- pieces


@dataclass(frozen=True)
class Chip:
    """One axis of a shape: its size, or its symbol where the input decides."""

    axis: str
    size: Markup
    meaning: str


@dataclass(frozen=True)
class NodeRef:
    """A node as lists print it. `shape` is in words, empty for what has none; `note` says how it is used here.

    `layers` are those that have or use it, in words; empty where all do.
    """

    path: str
    href: str
    kind: str
    name: str
    symbol: Markup
    shape: Markup
    code: str = ""
    note: str = ""
    absent: bool = False
    layers: str = ""
    children: tuple[NodeRef, ...] = ()


@dataclass(frozen=True)
class Flow:
    """What a node is made from and goes into. A row's heading is `in`, `weight` or `out`."""

    rows: tuple[tuple[str, NodeRef], ...]
    made_by: tuple[NodeRef, ...] = ()
    used_by: tuple[NodeRef, ...] = ()


@dataclass(frozen=True)
class LineRange:
    """`139–145`, and where it can be read at the pinned revision."""

    text: str
    href: str


@dataclass(frozen=True)
class Excerpt:
    """A run of lines. `omitted` says what was left out before it."""

    html: Markup
    omitted: str = ""


@dataclass(frozen=True)
class CodeFile:
    """Excerpts of one pinned file, under one heading. `role` says what they have to do with the node."""

    name: str
    repository: str
    path: str
    revision: str
    href: str
    ranges: tuple[LineRange, ...]
    excerpts: tuple[Excerpt, ...]
    role: str


@dataclass(frozen=True)
class Source:
    """One piece of evidence. `note` compares it with what ran, where both are here."""

    id: str
    kind: str
    claim: Markup
    repository: str
    path: str
    revision: str
    href: str
    ranges: tuple[LineRange, ...]
    license: str
    license_href: str
    sha256: str
    missing: str
    note: str
    excerpts: tuple[Excerpt, ...]


@dataclass(frozen=True)
class CodeColumn:
    """The right column: excerpts, then sources. `heading` lists files and lines."""

    heading: str
    files: tuple[CodeFile, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class SomeLayers:
    """What a diagram's badge and broken line stand for: `L`, pattern 0, `local layers: 0-4`; and whether it has them.

    One that is not shown may be there when a part is opened.
    """

    letters: str
    pattern: int
    words: str
    shown: bool


@dataclass(frozen=True)
class Diagram:
    """A component's map: `svg` empty where it cannot be drawn, and the same graph as a nested list.

    `path` is the component's, '' the model's; `some` are the kinds of layers that the model tells apart.
    """

    path: str
    title: str
    svg: Markup
    nodes: tuple[NodeRef, ...]
    href: str
    some: tuple[SomeLayers, ...] = ()


@dataclass(frozen=True)
class CheckMark:
    """One thing that was checked: `ok` None where it was not, and `text` then says so. `href` leads to what was
    compared.
    """

    id: str
    ok: bool | None
    text: str
    title: str = ""
    href: str = ""


@dataclass(frozen=True)
class ProofLine:
    """One comparison: of what, whose, with which numbers. `node` is given on pages of many nodes."""

    status: str
    node: NodeRef | None
    what: str
    subject: str
    detail: str
    numbers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Proof:
    """All comparisons of one kind. `more` is how many are not shown."""

    id: str
    ok: bool | None
    title: str
    text: str
    lines: tuple[ProofLine, ...]
    more: int


@dataclass(frozen=True)
class Verification:
    """What was checked about a page's subject. `checked` is when, empty where no check is on record; `unverified` says
    what is not.
    """

    marks: tuple[CheckMark, ...]
    proofs: tuple[Proof, ...]
    checked: str
    command: str
    unverified: str


@dataclass(frozen=True)
class AliasRow:
    """Another community's name."""

    name: str
    of: str
    layout: str


@dataclass(frozen=True)
class CostRow:
    """What a step takes in one view, as formulas in what the input decides. `formula` names the axes multiplied."""

    view: View
    current: bool
    formula: Markup
    multiply_adds: Markup
    weights: Markup
    cache: Markup
    values: Markup
    written: Markup


@dataclass(frozen=True)
class PassCost:
    """What a whole pass takes: as a formula, and as numbers for one sequence of so many positions."""

    view: View
    formula: Markup
    multiply_adds: str
    weights: str
    cache: str
    ratio: str


@dataclass(frozen=True)
class WalkStop:
    """A stop of the guided walk, counted from 1."""

    number: int
    count: int
    title: str
    text: Markup
    here: Link
    node: str
    before: Link | None
    after: Link | None


@dataclass(frozen=True)
class LiveAxis:
    """One axis of the shown tensor's shape in the current view; `size` is the page's model's, None if it runs."""

    name: str
    symbol: str
    size: int | None
    words: str


@dataclass(frozen=True)
class RankChoice:
    """A link that shows one rank's share, or all."""

    text: str
    href: str
    current: bool


@dataclass(frozen=True)
class LiveSplit:
    """How the model that runs is split over several processes. `rank` is the one whose share is shown, None for all."""

    sentence: str
    rank: int | None
    choices: tuple[RankChoice, ...]


@dataclass(frozen=True)
class LiveContext:
    """What the live panel (live.html, as `live`) knows of the page before any script runs.

    `node` is the page's own (empty on a model's page); `shown` is the tensor, cache or parameter whose values it
    shows: itself, an operation's first output, a component's last tensor. `exists` is false where the model that
    runs lacks it, or the view does not compute it, and `why_not` says why. `layers` counts the live model's.
    `stand_in` is None where the page's model runs itself. `live_model` is empty where nothing runs here. `held` says
    how its weights are held (number format, device, memory), then what else to know of them.
    `chat`: its tokenizer has a chat template, as far as is known yet.
    `stage` says in words what the backend is doing while `ready` is false, `failed` what stopped it. `recorded` says
    what a recorded run does not hold of this node; it is empty where all is held, or computed.
    """

    model: str
    model_name: str
    live_model: str
    live_name: str
    stand_in: StandIn | None
    held: tuple[str, ...]
    chat: bool
    node: str
    shown: str
    shown_name: str
    kind: str
    axes: tuple[LiveAxis, ...]
    view: View
    layer: int | None
    step: int | None
    head: int | None
    run: str | None
    demo_run: str | None
    layers: int
    in_blocks: bool
    exists: bool
    why_not: str
    ready: bool
    stage: str
    progress: float | None
    failed: str
    split: LiveSplit | None = None
    recorded: str = ""
