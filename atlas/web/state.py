"""What a reader can set on any page (view, run, layer, step, head, open parts) as it stands in the address.

Owns the reading and writing of that query. Links in pages are written with a slot where the query goes, so that
what is costly to render can be kept and used with any state: `fill` puts the query in at the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Literal
from urllib.parse import urlencode

from atlas.errors import BadRequest
from atlas.graph.axes import VIEW_NAMES, VIEWS, View

SLOT = "\uebfe"  # private characters, in no text of ours
OPEN_SLOT = "\uebff"  # one on either side of the paths that the link opens
RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
PATHS = re.compile(r"[a-z0-9/-]+(,[a-z0-9/-]+)*")
LARGEST = 100_000
Number = Literal["layer", "step", "head"]
NUMBERS: tuple[Number, ...] = ("layer", "step", "head")


@dataclass(frozen=True)
class State:
    """`layer` and `head` count those of the model that ran. None is what the page takes by itself.

    `opened` are the components that diagrams draw open, in place; None leaves the choice to the page. `others` are
    parameters that belong to parts of this very page (the live panel's): another page does not get them.
    """

    view: View = "full"
    run: str | None = None
    layer: int | None = None
    step: int | None = None
    head: int | None = None
    opened: tuple[str, ...] | None = None
    others: tuple[tuple[str, str], ...] = ()

    def with_(self, **changes: View | str | int | tuple[str, ...] | None) -> State:
        """The same with some of it changed."""
        return replace(self, **changes)  # type: ignore[arg-type]  # the names are those of the fields

    @property
    def query(self) -> str:
        """`?view=decode&layer=3`, or nothing where all is as it is by itself."""
        given = {
            "view": None if self.view == "full" else self.view,
            "run": self.run,
            "layer": self.layer,
            "step": self.step,
            "head": self.head,
            "open": None if self.opened is None else ",".join(self.opened),
        }
        text = urlencode({name: value for name, value in given.items() if value is not None}, safe="/,")
        return f"?{text}" if text else ""

    @property
    def whole_query(self) -> str:
        """As `query`, with the others: for links that stay on this page."""
        here = self.query
        rest = urlencode(self.others, safe="/,:")
        return here + ("&" if here else "?") * bool(rest) + rest

    def fill(self, markup: str) -> str:
        """Markup with this state in all its links."""
        filled = markup.replace(SLOT, escape(self.query))
        if OPEN_SLOT not in filled:
            return filled
        pieces = filled.split(OPEN_SLOT)
        for at in range(1, len(pieces), 2):
            pieces[at] = escape(self.with_(opened=tuple(filter(None, pieces[at].split(",")))).query)
        return "".join(pieces)


def read_state(query: Mapping[str, str]) -> State:
    """Raises `BadRequest` that names what is wrong and what would do. Other parameters are left to others."""
    view = query.get("view", "full")
    if view not in VIEWS:
        names = ", ".join(f"{key} ({VIEW_NAMES[key]})" for key in VIEWS)
        raise BadRequest(f"There is no view {view!r}.", f"Take one of {names}.")
    run = query.get("run") or None
    if run is not None and not RUN_ID.fullmatch(run):
        raise BadRequest("`run` is no id of a run.", "Leave it out, or take the id that POST /api/runs gave.")
    numbers: dict[Number, int | None] = {}
    for name in NUMBERS:
        text = query.get(name, "")
        if text and not (text.isascii() and text.isdecimal() and int(text[:9]) <= LARGEST and len(text) <= 6):
            raise BadRequest(f"`{name}` is {text[:40]!r}, which is no count.", f"Give a whole number from 0: {name}=0.")
        numbers[name] = int(text) if text else None
    opened = query.get("open")
    if opened and not (PATHS.fullmatch(opened) and len(opened) <= 600):
        raise BadRequest("`open` is no list of components.", "Give paths joined by commas: open=blocks/attention.")
    parts = None if opened is None else tuple(sorted(set(filter(None, opened.split(",")))))
    known = {"view", "run", "open", *NUMBERS}
    others = tuple((name[:40], value[:200]) for name, value in query.items() if name not in known)[:20]
    return State(view=view, run=run, **numbers, opened=parts, others=others)


def node_href(model: str, path: str = "") -> str:
    """The address of a model or of a node, with a slot for the state."""
    return f"/models/{model}{'/' if path else ''}{path}{SLOT}"


def open_href(model: str, path: str, opened: frozenset[str]) -> str:
    """The address of a page with these components drawn open."""
    return f"/models/{model}{'/' if path else ''}{path}{OPEN_SLOT}{','.join(sorted(opened))}{OPEN_SLOT}"
