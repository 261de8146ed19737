"""The format of recorded runs: which files there are, what is in each, and which version this is.

A recorded run is a folder of members, or the same members in one zip file without compression (a bundle):

    manifest.json               format, kind and run; every other member with its size and sha256
    run.json                    `RecordedRun`: the run as the API gives it, and what of it is held
    model.json                  `CarriedModel`: what the run's model is, where the catalogue does not have it (format 2)
    labels.json.z               the label of every token of the vocabulary, in order
    index/VIEW/NODE.json        `Index`: the tensors of one node in one view, and where their pieces lie
    sheets/VIEW/NODE.N.bin      pieces one after another, each of them deflated by itself
    expressions/VIEW/PLACE.json.z  what expressions of the reference code gave, at a glance, deflated (format 2)

NODE is the node's path with dots for slashes; VIEW is a view, or `parameter`. A piece is a tile of a tensor (see
`blocks`), or an answer of the API as JSON. PLACE is a layer's number or `outside`, then a decode step's after a dot.
Nothing in it is code, and nothing is read but as numbers and JSON. Every
size is known before anything is unpacked.

Owns names, versions and data only; knows neither torch nor files.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from atlas.graph.axes import View

PLAIN: Literal[1] = 1
FORMAT: Literal[2] = 2
"""The format of a run of declared tensors whose model every catalogue has, and of one with more than that. It grows
when an older reader could not read what is written.
"""
KIND = "openmodelatlas recorded run"
MANIFEST, RUN, MODEL, LABELS = "manifest.json", "run.json", "model.json", "labels.json.z"
MEMBER = r"(run\.json|model\.json|labels\.json\.z|(index|sheets)/[a-z]+/[a-z0-9][a-z0-9.-]*\.(json|bin)"
MEMBER += r"|expressions/(full|prefill|decode)/(outside|[0-9]{1,6})(\.[0-9]{1,9})?\.json\.z)"
"""What the name of a member looks like: never a way out of the folder."""

Shelf = Literal["full", "prefill", "decode", "parameter"]
"""Under which name tensors stand: a view, or `parameter` for what has none."""
SHELVES: tuple[Shelf, ...] = ("full", "prefill", "decode", "parameter")
Answer = Literal["summary", "heads", "predictions", "explanation"]
"""Answers of the API that are kept as they were given: what a tensor is, its heads, the tokens that it speaks of, and
how one of its numbers came to be (format 2).
"""
Count = Annotated[int, Field(ge=0, le=1 << 53)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Identity = Annotated[str, Field(pattern=r"^[0-9a-f]{8,64}$")]
Setting = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,99}$")]
"""The name of a setting: none that begins with an underscore, which libraries keep for themselves."""
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.*+| -]{0,2000}$")]
"""The value of a setting: no address, no path, no code."""
Integer = Annotated[int, Field(ge=-(1 << 53), le=1 << 53)]
Plain = bool | Integer | float | Word | None
Several = Annotated[list[Plain], Field(max_length=10_000)]
Grouped = dict[Setting, Plain | Several | dict[Setting, Plain | Several]]


class Data(BaseModel):
    """Immutable; an unknown field is an error, so that what is not understood is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Member(Data):
    """A file: its size in bytes and its sha256."""

    size: Count
    sha256: Digest


class Head(BaseModel):
    """What is read of a manifest first, whatever its format."""

    model_config = ConfigDict(extra="ignore")

    format: int = Field(ge=1)
    kind: str


class Manifest(Data):
    """Every member with its size and hash."""

    format: Literal[1, 2]
    kind: str
    run: Identity
    members: dict[Annotated[str, Field(pattern=f"^{MEMBER}$", max_length=300)], Member]


class RecordedToken(Data):
    """As the API gives it."""

    position: Count
    id: Count
    text: str
    label: str
    origin: Literal["prompt", "generated"]
    template: bool = False


class Coverage(Data):
    """How much of one node in one view is held: `words` names what, `why` says why not the rest."""

    node: str
    view: Shelf
    held: Count
    of: Count
    words: str
    why: str = ""


class Glanced(Data):
    """Where it is held what expressions gave in a view: each layer (null: outside the blocks) and decode step."""

    view: View
    places: tuple[tuple[Count | None, Count | None], ...]


class RecordedRun(Data):
    """A run: what determines it, its tokens, and how much of it is here.

    `checkpoint` and `reference` are sha256 of the weights and of the code that ran; with the request they give the
    run's id. `vocabulary` is the number of labels.
    """

    id: Identity
    model: str = Field(max_length=200)
    architecture: str = Field(max_length=200)
    layers: int = Field(ge=1, le=100_000)
    checkpoint: Digest
    checkpoint_words: str
    quantization: str | None
    reference: Digest
    machine: str
    prompt: str
    prompt_length: Count
    max_new_tokens: Count
    temperature: float = Field(ge=0, allow_inf_nan=False)
    seed: Count
    tokens: tuple[RecordedToken, ...]
    steps: Count
    vocabulary: Count
    budget: Count
    held: tuple[Coverage, ...]
    expressions: tuple[Glanced, ...] = ()


class Derivation(Data):
    """What a graph was read off: code of transformers of a version, of a class with these arguments of its
    configuration. `settings` are what else of the configuration gives axes and layers their names.
    """

    version: str = Field(pattern=r"^[0-9][0-9A-Za-z.+-]{0,40}$")
    model_class: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9]{0,99}$")
    arguments: dict[Setting, Plain | Several | Grouped] = Field(max_length=1000)
    settings: dict[Setting, Integer | Annotated[list[Word], Field(max_length=10_000)]] = Field(max_length=1000)


class CarriedModel(Data):
    """A model that a receiver's catalogue need not have: its configuration, and what its graph is read off where no
    declaration describes it. No weights, and no code.
    """

    id: str = Field(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$", max_length=100)
    name: str = Field(max_length=200)
    released: date
    file: str = Field(max_length=300)
    sha256: Digest
    values: dict[Setting, bool | Integer | float | None] = Field(max_length=1000)
    tied_embeddings: bool
    untrained: bool
    derivation: Derivation | None = None


class Piece(Data):
    """Where deflated bytes lie: sheet number, offset and length in it, and the length once they are inflated."""

    sheet: Count
    at: Count
    size: Count
    full: Count


class Overview(Data):
    """Every plane of a tensor reduced by 2**level along rows and columns: the largest magnitude of each cell."""

    levels: tuple[int, int]
    piece: Piece


class Held(Data):
    """One tensor: its numbers as tiles in order, and answers of the API about it."""

    layer: int | None
    step: int | None
    dtype: str
    shape: tuple[Count, ...] = Field(max_length=12)
    tiles: tuple[Piece, ...]
    overview: Overview | None = None
    answers: dict[Answer, Piece]


class Index(Data):
    """All tensors of one node in one view that are held, by layer and step."""

    node: str
    view: Shelf
    axes: tuple[str, ...]
    tensors: tuple[Held, ...]


def shelf_of(view: View | None) -> Shelf:
    """Where tensors of a view stand; a parameter has none."""
    return view or "parameter"


def index_name(view: Shelf, node: str) -> str:
    """The member with the index of a node in a view."""
    return f"index/{view}/{node.replace('/', '.')}.json"


def glances_name(view: View, layer: int | None, step: int | None) -> str:
    """The member that says what expressions gave in one part of a pass."""
    place = "outside" if layer is None else str(layer)
    return f"expressions/{view}/{place}{'' if step is None else f'.{step}'}.json.z"


def sheet_name(view: Shelf, node: str, number: int) -> str:
    """A member with pieces."""
    return f"sheets/{view}/{node.replace('/', '.')}.{number}.bin"
