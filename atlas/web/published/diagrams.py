"""The diagrams of a published site with parts opened in place: which of them are drawn, and the files that hold them.

What a reader can open in a few clicks is drawn when the site is built, up to a number for each diagram; beyond that a
page closes other parts to open the one that is asked for. Knows nothing of pages but their addresses.
`static/published/diagrams.js` reads the files, and says the same as this.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping

from atlas.catalog import Model
from atlas.errors import RenderError
from atlas.graph.axes import VIEWS, View
from atlas.graph.resolve import Graph
from atlas.render.diagram import component_svg

log = logging.getLogger(__name__)
MOST = 16
"""Sets of parts that are drawn open in one diagram, besides each part by itself."""
Parts = frozenset[str]


def folder_of(model: str) -> str:
    """Where the drawings of a model are, in the site's folder."""
    return f"diagrams/{model}"


def parts_of(graph: Graph, component: str) -> tuple[str, ...]:
    """The components inside a component ('' is the model), to the bottom, in order of data flow."""
    within = f"{component}/" if component else ""
    return tuple(path for path, node in graph.nodes.items() if node.kind == "component" and path.startswith(within))


def drawn_sets(graph: Graph, component: str, by_itself: Parts, most: int) -> tuple[Parts, ...]:
    """The sets of parts that are drawn open, those first that take fewest clicks from what is open `by_itself`.

    At most `most`, then each part by itself, so that each can be opened whatever else is open. Of as many clicks the
    larger parts come first. A part is open only where those around it are.
    """
    parts = parts_of(graph, component)
    size = {part: sum(path.startswith(f"{part}/") for path in graph.nodes) for part in parts}
    around = {part: frozenset(other for other in parts if part.startswith(f"{other}/")) for part in parts}
    ordered = sorted(parts, key=lambda part: (-size[part], parts.index(part)))
    found: dict[Parts, None] = {by_itself: None, frozenset(): None}
    next_ones = [by_itself]
    while next_ones and len(found) < most:
        here, *next_ones = next_ones
        for part in ordered:
            if part in here:
                after = frozenset(one for one in here if one != part and part not in around[one])
            elif around[part] <= here:
                after = here | {part}
            else:
                continue
            if after not in found and len(found) < most:
                found[after] = None
                next_ones.append(after)
    return tuple({**found, **{around[part] | {part}: None for part in parts}})


class Drawings:
    """The drawings of one model. `by_itself` gives what a component's diagram has open when a page is opened."""

    def __init__(
        self,
        model: Model,
        components: tuple[str, ...],
        by_itself: Callable[[str], Parts],
        link: Callable[[str, View], str],
        most: int = MOST,
    ) -> None:
        """`components` are those whose diagrams pages show; `link` gives a node's address in a view, or '' for none."""
        self.model = model
        self.link = link
        graph = model.graph
        self.sets: Mapping[str, tuple[Parts, ...]] = {
            one: drawn_sets(graph, one, by_itself(one), most) for one in components if parts_of(graph, one)
        }

    def __len__(self) -> int:
        return len(VIEWS) * sum(map(len, self.sets.values()))

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The name and content of each file, in the folder of the model. Last the list of them all."""
        listed = {}
        for component, sets in self.sets.items():
            parts = parts_of(self.model.graph, component)
            listed[component] = {"parts": parts, "drawn": [sorted(map(parts.index, one)) for one in sets]}
            for number, opened in enumerate(sets):
                for view in VIEWS:
                    name = ".".join(filter(None, (view, component.replace("/", "."), str(number), "svg.z")))
                    yield name, zlib.compress(self._drawn(component, view, opened).encode(), 9)
        yield "index.json", json.dumps(listed, separators=(",", ":")).encode()

    def _drawn(self, component: str, view: View, opened: Parts) -> str:
        """A drawing that no page is marked in; empty where there is none, which is logged."""
        try:
            return component_svg(
                self.model.graph,
                component,
                view=view,
                link=lambda path: self.link(path, view),
                expanded=opened,
                toggle=lambda _: "",
            ).replace(' href=""', "")
        except RenderError as error:
            log.error("%s: %s cannot be drawn: %s", self.model.id, component or "the model", error)
            return ""
