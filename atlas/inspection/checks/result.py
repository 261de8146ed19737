"""What a check has to say: its subject, what was compared, with which numbers, and whether it held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from atlas.graph.axes import Frozen

Kind = Literal["sources", "shapes", "edges", "equations", "consistency", "checkpoint"]
Status = Literal["passed", "failed", "pending", "noted"]

KINDS: tuple[Kind, ...] = get_args(Kind)
STATUSES: tuple[Status, ...] = get_args(Status)


class Result(Frozen):
    """One thing that was looked at.

    *pending*: it could not be looked at yet, and `hint` says what would allow it; it is no pass. *noted*: a fact
    that a reader should know and that neither holds nor fails. `subject` says whose code or weights were looked at.
    `node` is the node that it is about, empty where it is about the model as a whole.
    """

    kind: Kind
    status: Status
    what: str
    subject: str
    node: str = ""
    detail: str = ""
    hint: str = ""
    numbers: Mapping[str, int | float | str] = {}


class ModelReport(Frozen):
    """All results of one model, in the order in which they came, and the time that they took, in seconds."""

    model: str
    name: str
    results: tuple[Result, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing failed. What is pending has not passed."""
        return not self.of("failed")

    def of(self, status: Status, kind: Kind | None = None) -> tuple[Result, ...]:
        """The results with this status, of one kind or of all."""
        return tuple(r for r in self.results if r.status == status and kind in (None, r.kind))

    def about(self, node: str) -> tuple[Result, ...]:
        """The results of one node."""
        return tuple(result for result in self.results if result.node == node)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of checks that were made, in order."""
        return tuple(dict.fromkeys(result.kind for result in self.results))

    def counts(self, kind: Kind | None = None) -> dict[Status, int]:
        """How many results have each status."""
        return {status: len(self.of(status, kind)) for status in STATUSES}
