"""How much of a run is held, in words: what a page says of a tensor that was left out, or of which some was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atlas.graph.axes import View
from atlas.graph.nodes import Parameter, Tensor
from atlas.graph.resolve import Graph
from atlas.inspection.recorded.layout import SHELVES, Coverage, Shelf


@dataclass(frozen=True)
class Shelved:
    """Of one node in one view: how many tensors there are, and the layer and step of those that are held."""

    of: int
    places: tuple[tuple[int | None, int | None], ...]


def coverage(graph: Graph, shelves: Mapping[tuple[Shelf, str], Shelved], budget: int) -> tuple[Coverage, ...]:
    """A line for each node and view; those that were not chosen have `of` 0."""
    found = []
    for shelf in SHELVES:
        for path, node in graph.nodes.items():
            shelved = shelves.get((shelf, path))
            if shelved is not None and shelved.of:
                whole = len(shelved.places) == shelved.of
                words = "all of it" if whole else _words(shelved.places)
                why = "" if whole else f"the rest was left out to keep within {megabytes(budget)}"
                held = len(shelved.places)
                found.append(Coverage(node=path, view=shelf, held=held, of=shelved.of, words=words, why=why))
            elif shelved is None and isinstance(node.node, Tensor | Parameter):
                views: Sequence[Shelf] = node.node.views if isinstance(node.node, Tensor) else ("parameter",)
                if shelf in views:
                    why = "it was not chosen for recording"
                    found.append(Coverage(node=path, view=shelf, held=0, of=0, words="nothing", why=why))
    return tuple(found)


def megabytes(size: int) -> str:
    """`500 MB`, `2.5 MB`, `800 kB`."""
    return f"{size / 1e6:,.4g} MB" if size >= 1e6 else f"{size / 1e3:,.4g} kB"


def spans(numbers: Sequence[int]) -> str:
    """`0 to 3, 5`"""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)


def _words(places: Sequence[tuple[int | None, int | None]]) -> str:
    """Which layers, and which decode steps where these are not the same in all of them."""
    if not places:
        return "nothing"
    by_layer: dict[int | None, list[int]] = {}
    for layer, step in places:
        by_layer.setdefault(layer, []).extend([] if step is None else [step])
    if None in by_layer:
        return f"steps {spans(by_layer[None])}"
    same: dict[tuple[int, ...], list[int]] = {}
    for layer, steps in by_layer.items():
        same.setdefault(tuple(sorted(steps)), []).append(layer or 0)
    return "; ".join(
        f"layers {spans(layers)}" + (f", steps {spans(steps)}" if steps else "") for steps, layers in same.items()
    )


def left_out(held: Sequence[Coverage], node: str, view: View) -> str:
    """What a page says where not all of a node is held in a view; empty where it is, and where there is nothing."""
    for one in held:
        if one.node == node and one.view in (view, "parameter") and one.held < max(1, one.of):
            said = "nothing of it" if not one.held else f"{one.words} of it, {one.held:,} of {one.of:,} tensors"
            return f"The recorded run holds {said}: {one.why}."
    return ""
