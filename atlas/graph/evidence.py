"""Evidence: a claim, and where in which pinned file it can be read."""

from __future__ import annotations

from typing import Literal

from atlas.graph.anchors import Anchor
from atlas.graph.axes import Frozen

EvidenceKind = Literal["direct", "contextual", "erratum"]


class SourceRef(Frozen):
    """A file of a locked source: the lock's id, and the path in its repository."""

    source: str
    path: str

    def __str__(self) -> str:
        return f"{self.source}:{self.path}"


class Evidence(Frozen):
    """A claim with its citation.

    *direct*: the cited lines compute the node. *contextual*: they only surround it. *erratum*: the source is
    wrong there, and the claim says what it says, what is true, and how that is known.
    """

    id: str
    kind: EvidenceKind
    claim: str
    file: SourceRef
    anchors: tuple[Anchor, ...]
