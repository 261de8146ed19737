"""Which file holds which page. A file holds one view of a page; the rest of its query is for the page's scripts.

`/models/M/N?view=decode&layer=3` is `models/M/N/decode.html?layer=3`: a node's path has no dot in it, so the files of a
page stand beside those of the nodes inside it. `static/address.js` says the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import parse_qsl, urlencode, urlsplit

from atlas.graph.axes import VIEWS

MADE = ("view", "walk")
"""What of a query a server writes into the page."""


@dataclass(frozen=True)
class Address:
    """A page as a server has it: its path, and what of its query decides what is in it."""

    path: str
    view: str = "full"
    walk: str = ""
    a: str = ""
    b: str = ""

    @property
    def query(self) -> str:
        """The query for the server."""
        given = {"view": "" if self.view == "full" else self.view, "walk": self.walk, "a": self.a, "b": self.b}
        return urlencode({name: value for name, value in given.items() if value})

    @property
    def file(self) -> str:
        """The file that holds it, from the site's folder."""
        path = self.path.strip("/")
        if path == "compare" and self.a:
            return f"compare/{self.a}/{self.b}.html" if self.b else f"compare/{self.a}/index.html"
        name = f"walk-{self.walk}" if self.walk else "index" if self.view == "full" else self.view
        return f"{path}/{name}.html" if path else f"{name}.html"


def read(href: str) -> tuple[Address, str]:
    """An address of a server (`/models/a?view=decode&layer=3#live`) as a page, and what follows its file's name."""
    parts = urlsplit(href)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    compare = parts.path.rstrip("/") == "/compare"
    mine = ("a", "b") if compare else MADE
    rest = urlencode([(name, value) for name, value in query.items() if name not in mine], safe="/,:")
    after = (f"?{rest}" if rest else "") + (f"#{parts.fragment}" if parts.fragment else "")
    path = parts.path.rstrip("/") or "/"
    if compare:
        return Address(path, a=query.get("a", ""), b=query.get("b", "")), after
    view = query.get("view", "full") if path.startswith(("/models/", "/embed/")) else "full"
    return Address(path, view if view in VIEWS else "full", query.get("walk", "")), after


def way_up(file: str) -> str:
    """From a file to the site's folder: `../../`, or nothing."""
    return "../" * (len(PurePosixPath(file).parts) - 1)
