"""Cells in frames: what stands in what, and which cells of a frame form its trunk.

The trunk is the residual stream with what carries on from its ends: the cells, or opened components, that one
straight line joins from top to bottom. Knows nothing of places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from atlas.render.diagram.cells import Cell
from atlas.render.diagram.levels import Level, Link


class Nest:
    """One level's cells. A *thing* is what stands in a frame: a cell, or an opened component, by its path."""

    def __init__(self, level: Level, found: Iterable[Cell]) -> None:
        self.level = level
        self.cells = {cell.id: cell for cell in found}
        self.cell_of = {glyph.path: cell for cell in self.cells.values() for glyph in cell.glyphs}
        self.opened = [item.path for item in level.items.values() if item.opened]
        self.frames = [level.root, *self.opened]
        self.trunks = {frame: self._trunk(frame) for frame in self.frames}

    def frame_of(self, path: str) -> str:
        """The frame in which an item stands."""
        return self.level.items[path].inside

    def frames_around(self, path: str) -> list[str]:
        """The frames around an item or opened component, innermost first, the whole diagram last."""
        frames = [self.frame_of(path)]
        while frames[-1] != self.level.root:
            frames.append(self.frame_of(frames[-1]))
        return frames

    def thing(self, path: str, frame: str) -> str | None:
        """What stands directly in `frame` for an item: its cell, the opened component around it, or nothing."""
        for inner, outer in pairwise([self.cell_of[path].id, *self.frames_around(path)]):
            if outer == frame:
                return inner
        return None

    def in_trunk(self, thing: str) -> bool:
        """Whether a thing belongs to the trunk of its frame."""
        return thing in self.trunks[self.frame_of(thing)]

    def along_trunk(self, thing: str, link: Link, *, out: bool) -> bool:
        """Whether a link leaves (`out`) or enters a thing along the trunk that the thing belongs to."""
        frame = self.frame_of(thing)
        trunk = self.trunks[frame]
        if thing not in trunk:
            return False
        place = trunk.index(thing)
        other = self.thing(link.target if out else link.source, frame)
        if other is None:  # beyond the frame, from or to its end
            at_end = place == (len(trunk) - 1 if out else 0)
            carries_on = frame != self.level.root and self.along_trunk(frame, link, out=out)
            return at_end and (link.stream or carries_on)
        beside = place + 1 if out else place - 1
        return not link.lends and 0 <= beside < len(trunk) and trunk[beside] == other

    def layers_between(self, frame: str, start: str, end: str) -> int:
        """How many things stand one below the other between two of a frame, on the longest way around the trunk."""
        after: dict[str, list[str]] = {}
        for link in self.level.links:
            source, target = self.thing(link.source, frame), self.thing(link.target, frame)
            if source is not None and target is not None and source != target and (source, target) != (start, end):
                after.setdefault(source, []).append(target)
        known: dict[str, float] = {end: 0}

        def steps(thing: str, behind: frozenset[str]) -> float:
            if thing not in known:
                behind |= {thing}
                ways = [1 + steps(following, behind) for following in after.get(thing, ()) if following not in behind]
                known[thing] = max(ways, default=float("-inf"))
            return known[thing]

        return int(max(1, steps(start, frozenset()))) - 1

    def main_source(self, cell: str) -> str:
        """The item whose line runs straight into a cell: the first that this diagram makes, or the first."""
        sources = [
            link.source
            for link in self.level.links
            if link.target == cell and not link.lends and self.cell_of[link.source].id != cell
        ]
        inner = [source for source in sources if not self.level.items[source].outside]
        return (inner or sources or [""])[0]

    def longest_chain(self, gap: float) -> float:
        """The height in px of the longest chain of cells with a gap between each two."""
        after: dict[str, list[str]] = {}
        for link in self.level.links:
            source, target = self.cell_of[link.source].id, self.cell_of[link.target].id
            if source != target:
                after.setdefault(source, []).append(target)
        heights = {path: cell.height + gap for path, cell in self.cells.items()}
        return max((sum(heights[path] for path in longest(start, after, heights)) for start in heights), default=0)

    def _trunk(self, frame: str) -> tuple[str, ...]:
        stream: dict[str, str] = {}
        after: dict[str, list[str]] = {}
        before: dict[str, list[str]] = {}
        for link in self.level.links:
            source, target = self.thing(link.source, frame), self.thing(link.target, frame)
            if source is None or target is None or source == target:
                continue
            if link.stream:
                stream[source] = target
            if not link.lends:
                after.setdefault(source, []).append(target)
                before.setdefault(target, []).append(source)
        chain = list(dict.fromkeys(path for path in stream if path not in stream.values()))[:1]
        while chain and chain[-1] in stream and stream[chain[-1]] not in chain:
            chain.append(stream[chain[-1]])
        if not chain:
            return ()
        chain += [path for path in longest(chain[-1], after) if path not in chain]
        while chain[0] in before and before[chain[0]][0] not in chain:
            chain.insert(0, before[chain[0]][0])
        return tuple(chain)


def longest(start: str, steps: Mapping[str, Iterable[str]], weights: Mapping[str, float] | None = None) -> list[str]:
    """The heaviest way on from `start`, each node counting 1 or its weight. Where steps go round, it stops."""
    known: dict[str, tuple[float, list[str]]] = {}

    def onward(node: str, behind: frozenset[str]) -> tuple[float, list[str]]:
        if node not in known:
            behind |= {node}
            ways = [onward(following, behind) for following in steps.get(node, ()) if following not in behind]
            weight, way = max(ways, key=lambda found: found[0], default=(0.0, []))
            known[node] = ((weights[node] if weights else 1) + weight, [node, *way])
        return known[node]

    return onward(start, frozenset())[1]
