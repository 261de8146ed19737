"""What a publisher's file says of a model: name, date, lineage, and where its configuration stands."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from atlas.graph.anchors import Anchor
from atlas.graph.axes import Frozen
from atlas.graph.evidence import Evidence, SourceRef


class CitedConfiguration(Frozen):
    """A configuration read from the source itself: `values` leads to a dictionary of plain numbers, or to a class or a
    call, whose numbers are taken; those of `also` come on top.

    `shown` are the anchors whose lines a page prints, `corrected` the numbers that an erratum of the model says
    otherwise. Where no installed package carries the file, the numbers are
    `stated` here and the lines are kept in its lock; once the file is fetched, each of `names` (its name there to its
    name here) is compared with it.
    """

    file: SourceRef
    values: Anchor
    shown: tuple[Anchor, ...]
    claim: str
    also: tuple[Anchor, ...] = ()
    corrected: Mapping[str, int | float | bool | None] = {}
    stated: Mapping[str, int | float | bool | None] | None = None
    names: Mapping[str, str] = {}


class StatedConfiguration(Frozen):
    """A configuration that stands in a file without lines (the metadata of a checkpoint), stated here.

    Opening the checkpoint compares every value with the file's own.
    """

    values: Mapping[str, int | float | bool | None]
    claim: str
    repository: str
    revision: str
    path: str
    url: str
    sha256: str
    license: str
    license_url: str


class ModelEntry(Frozen):
    """One model of the catalogue. `reads_as` says what its code has to do with the code of its predecessor.

    `rank` orders the catalogue. `default_weights` marks the model whose checkpoint the atlas brings along, `untrained`
    one whose weights are random numbers.
    """

    id: str
    name: str
    publisher: str
    released: date
    architecture: str
    configuration: CitedConfiguration | StatedConfiguration
    follows: str | None = None
    reads_as: str = ""
    size: str = ""
    rank: int = 100
    default_weights: bool = False
    untrained: bool = False
    tied_embeddings: bool = False
    errata: tuple[Evidence, ...] = ()

    @property
    def released_words(self) -> str:
        """`Jul 2024`."""
        return self.released.strftime("%b %Y")
