"""Pages read as a browser would read them: elements, ids, links, and text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "input", "br", "img", "hr", "path", "use"})


@dataclass
class Element:
    """One start tag, with the text inside it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""

    def __getitem__(self, name: str) -> str:
        return self.attributes[name]


@dataclass
class Page(HTMLParser):
    """The elements of a page in order."""

    markup: str
    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[Element] = []
        self.feed(self.markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str = "", **attributes: str) -> list[Element]:
        """Those of a tag with these attributes (`data_view` is data-view; "*" is any value)."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [
            one
            for one in self.elements
            if (not tag or one.tag == tag)
            and all(name in one.attributes and value in ("*", one.attributes[name]) for name, value in wanted.items())
        ]

    def one(self, tag: str = "", **attributes: str) -> Element:
        """The only one."""
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} of <{tag} {attributes}>"
        return found[0]

    def links(self) -> set[str]:
        """Where its links lead."""
        return {one["href"] for one in self.all("a", href="*")}

    def ids(self) -> list[str]:
        return [one["id"] for one in self.all(id="*")]
