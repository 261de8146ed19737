"""Search across all models: names, symbols, code names, paths, other communities' names, axes, and what is said.

Owns the index and the ranking. A name with a layer in it (`blk.3.attn_k.weight`, `hidden_states[4]`) leads to that
layer. Small slips of the finger are forgiven. Knows nothing of pages but their addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Lock

from rapidfuzz import fuzz

from atlas.catalog import Catalog, Model
from atlas.graph.axes import STANDARD_AXES, View
from atlas.graph.resolve import Resolved
from atlas.render import equations
from atlas.web.contexts import SearchHit
from atlas.web.prose import plain
from atlas.web.readable import readable
from atlas.web.state import State

LIMIT = 20
LEAST = 55.0
LAYER = re.compile(r"(?<![A-Za-z0-9_])\d+(?![A-Za-z0-9_])")
WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Key:
    """A text by which an entry is found. `weight` is what a full hit counts; `of` and `layout` are an alias's."""

    text: str
    weight: float
    of: str = ""
    layout: str = ""
    prose: bool = False

    @property
    def own(self) -> bool:
        """Whether a page need not say how it was found: by its name."""
        return not self.of


@dataclass
class Entry:
    """Something that can be found. `models` are those that have it; empty for what is no node."""

    kind: str
    name: str
    symbol: str
    path: str
    href: str
    keys: list[Key]
    models: dict[str, str] = field(default_factory=dict)
    order: int = 0


@dataclass(frozen=True)
class _Found:
    score: float
    key: Key
    layer: int | None = None


class SearchIndex:
    """The catalogue's index, made when it is first asked, and again when a model has joined."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._entries: list[Entry] = []
        self._of: tuple[str, ...] = ()
        self._making = Lock()

    def entries(self) -> list[Entry]:
        """All that can be found. Letters typed ask in threads of their own: one makes the index, the others wait."""
        ids = tuple(entry.id for entry in self._catalog)
        with self._making:
            if ids != self._of:
                self._entries, self._of = list(_entries(self._catalog)), ids
            return self._entries

    def search(self, query: str, *, model: str = "", view: View = "full", limit: int = LIMIT) -> tuple[SearchHit, ...]:
        """The best first. Nodes lead to `model` where it has them, in `view`."""
        query = " ".join(query.split())
        if not query:
            return ()
        ranked = []
        for entry in self.entries():
            best = max(
                (found for key in entry.keys for found in _matches(query, key)), key=lambda f: f.score, default=None
            )
            if best is not None and best.score >= LEAST:
                ranked.append((best, entry))
        ranked.sort(key=lambda pair: (-round(pair[0].score, 1), pair[1].order))
        return tuple(self._hit(found, entry, model, view) for found, entry in ranked[:limit])

    def _hit(self, found: _Found, entry: Entry, model: str, view: View) -> SearchHit:
        href = entry.href
        if entry.models:
            home = model if model in entry.models else next(iter(entry.models))
            href = f"/models/{home}/{entry.path}{State(view=view, layer=found.layer).query}"
        names = list(entry.models.values())
        return SearchHit(
            kind=entry.kind,
            name=entry.name,
            symbol=entry.symbol,
            path=entry.path,
            href=href,
            matched="" if found.key.own else found.key.text.replace("{layer}", "n"),
            of=found.key.of,
            layout=found.key.layout,
            models=(names[0] if len(names) == 1 else f"{len(names)} models") if names else "",
        )


def _entries(catalog: Catalog) -> Iterator[Entry]:
    order = 0
    known: dict[tuple[str, str, str], Entry] = {}
    for model in readable(catalog):
        listed = model.entry
        keys = [Key(model.name, 100), Key(model.id, 99), Key(f"{listed.publisher} {model.name}", 90)]
        yield Entry("model", model.name, "", model.id, f"/models/{model.id}", keys, order=-1)
        for node in model.graph.nodes.values():
            entry = known.get((listed.architecture, node.path, node.name))
            if entry is None:
                order += 1
                symbol = equations.text(node.symbol) if node.symbol else ""
                entry = Entry(node.kind, node.name, symbol, node.path, "", list(_keys(model, node)), order=order)
                known[listed.architecture, node.path, node.name] = entry
            entry.models[model.id] = model.name
    yield from known.values()
    for axis in STANDARD_AXES:
        texts = [Key(axis.name, 96), Key(axis.words, 90), Key(axis.meaning, 60, prose=True)]
        yield Entry("axis", axis.name, "", axis.meaning, f"/how-to-read#axis-{axis.name}", texts, order=10_000)


def _keys(model: Model, node: Resolved) -> Iterator[Key]:
    yield Key(node.name, 100)
    yield Key(node.path, 97)
    if node.symbol:
        yield Key(equations.text(node.symbol), 99, "symbol")
        yield Key(node.symbol, 95, "TeX")
    code = model.code_name(node.path)
    if code:
        yield Key(code, 94, "code")
    for alias in node.node.aliases:
        yield Key(alias.name, 98, alias.of, alias.layout)
    yield Key(plain(node.node.description), 70, prose=True)
    yield Key(plain(node.node.explanation), 62, prose=True)


def _matches(query: str, key: Key) -> Iterator[_Found]:
    if key.prose:
        words = [word.casefold() for word in WORD.findall(query)]
        text = key.text.casefold()
        if words and all(len(word) > 2 and word in text for word in words):
            yield _Found(key.weight, key)
        return
    yield _Found(_likeness(query, key.text) * key.weight / 100, key)
    if "{layer}" in key.text:
        exact = _template(key.text).fullmatch(query)
        if exact:
            layer = int(exact[1]) - (1 if "{layer}+1" in key.text else 0)
            if layer >= 0:
                yield _Found(key.weight, key, layer)
            return
        number = LAYER.search(query)
        if number:
            said = query[: number.start()] + "{layer}" + query[number.end() :]
            yield _Found(_likeness(said, key.text) * key.weight / 100, key, min(int(number[0][:6]), 99_999))


def _template(name: str) -> re.Pattern[str]:
    pattern = re.escape(name.replace("{layer}+1", "{layer}"))
    return re.compile(pattern.replace(re.escape("{layer}"), r"(\d{1,5})"), re.IGNORECASE)


def _likeness(query: str, text: str) -> float:
    """From 0 to 100. Case counts for one letter only (`S` and `s` are two things)."""
    if query == text:
        return 100
    a, b = query.casefold(), text.casefold()
    if len(b) <= 3:
        return 96 if a == b else 0
    if a == b:
        return 99
    share = 4 * len(a) / len(b)
    at = b.find(a)
    if at == 0:
        return 90 + share
    if at > 0:
        return (84 if not b[at - 1].isalnum() else 70) + share
    if len(a) < 4:
        return 0
    whole = max(fuzz.ratio(a, b), fuzz.token_sort_ratio(a, b))
    part = fuzz.partial_ratio(a, b) * 0.9 if len(a) <= len(b) else 0
    return 0.88 * max(whole, part) if max(whole, part) >= 72 else 0
