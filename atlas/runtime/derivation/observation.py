"""What was seen of a model's code, put in order: values that have one shape in each layer and view.

A value whose layers differ becomes several, each in its layers. One that has no shape of its own is told, so that it
can be left out: the turns of a loop differ, it is computed in a block by a module outside it, or no anchor tells it
from another. Knows nothing of running code, and nothing of graphs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from atlas.graph.anchors import Anchor
from atlas.graph.axes import View

BLOCK_INPUT, TOKENS = "block-input", "token-ids"
"""The keys of what a block and the model are given."""
LAYER = "{layer}"
"""Stands for the number of a block in the names of modules and weights."""
Pass = tuple[View, int | None]
"""A view and a layer (None: outside the blocks) in which something was seen."""
Shape = tuple[int, ...]
Served = tuple[str, Anchor | None]
"""A module on whose behalf a function ran, and the call by which it was reached."""


@dataclass
class Value:
    """One value of the code in one module: where it is made, its shapes, and what flows into it.

    `function`, `name`, `nth` and `element` are those of its statement, `text` its expression. `module` is the qualified
    name of the module whose forward made it (or called the function that did), with `{layer}` for the number of the
    block, and `call` the call by which it was reached. `observed` are the shapes of its turns in each pass, and
    `sources` the keys of other values or of parameters, each with the passes in which it went in.
    """

    key: str
    function: str
    name: str
    nth: int
    element: int | None
    anchor: Anchor
    text: str
    module: str
    call: Anchor | None = None
    observed: dict[Pass, list[Shape]] = field(default_factory=dict)
    sources: dict[str, set[Pass]] = field(default_factory=dict)

    @property
    def layers(self) -> set[int | None]:
        """The layers in which it was seen."""
        return {layer for _, layer in self.observed}

    @property
    def shapes(self) -> dict[View, Shape]:
        """Its shape in each view, in its first layer there."""
        found: dict[View, Shape] = {}
        for (view, _), shapes in self.observed.items():
            found.setdefault(view, shapes[0])
        return found

    @property
    def turns(self) -> int:
        """How often the line runs in a pass, at most."""
        return max(map(len, self.observed.values()), default=1)


@dataclass(frozen=True)
class Weight:
    """A parameter: its name with `{layer}`, its shape, and the layers that have it so (none outside the blocks)."""

    key: str
    name: str
    shape: Shape
    layers: frozenset[int]


@dataclass(frozen=True)
class Observation:
    """Everything that was seen.

    `values` are in the order of data flow. `named` are the keys of values that every decoder has, by their paths
    (`embedding/embedded`). `modules` are the class of each module by its name, and `ends` the components that every
    decoder has outside its blocks, by the names of their modules. `blocks` is the name of the list of blocks, `block`
    their class, `body` that of what has the list; `chosen` is how many experts each token goes to, where there are any.
    `lengths` are the lines of each function.
    """

    values: Mapping[str, Value]
    named: Mapping[str, str]
    weights: Mapping[str, Weight]
    modules: Mapping[str, str]
    ends: Mapping[str, str]
    blocks: str
    block: str
    body: str
    layers: int
    chosen: int
    lengths: Mapping[str, int]


def generic(name: str, blocks: str) -> tuple[str, int | None]:
    """The name of a module or a weight with `{layer}`, and the number of its block if it is in one.

    `blocks` is the name of the list of blocks.
    """
    prefix = f"{blocks}."
    number, dot, rest = name.removeprefix(prefix).partition(".")
    if not name.startswith(prefix) or not number.isdecimal():
        return name, None
    return f"{prefix}{LAYER}{dot}{rest}", int(number)


def merged(order: Sequence[str], seen: Iterable[str], *, first: bool = True) -> list[str]:
    """One order of all keys: those of another pass or layer that are new come behind what came before them there.

    Where nothing came before, they begin the order if this is the first part of a pass, else they end it.
    """
    found, place = list(order), -1 if first else len(order) - 1
    for key in seen:
        if key in found:
            place = found.index(key)
        else:
            place += 1
            found.insert(place, key)
    return found


def anchored(value: Value, served: Collection[Served]) -> Anchor | None:
    """The anchor of a value alone; None where nothing tells it from another.

    `served` are all on whose behalf its function ran: if there are several, the call in the function around it tells.
    """
    if len(served) < 2:
        return value.anchor
    alike = [module for module, call in served if call == value.call]
    return value.anchor.inside(value.call) if value.call is not None and len(alike) == 1 else None


def fits(value: Value, blocks: str) -> bool:
    """Whether a value has a shape of its own, and is computed in a block by a module of it or outside by one outside.

    `blocks` is the name of the list of blocks.
    """
    inside = value.module.startswith(f"{blocks}.{LAYER}")
    return bool(_groups(value)) and all((layer is not None) == inside for layer in value.layers)


def settled(
    values: Mapping[str, Value], weights: Mapping[tuple[str, int | None], Shape]
) -> tuple[dict[str, Value], dict[str, Weight]]:
    """Values with one shape in each layer and view, and the parameters (given by generic name and layer)."""
    made = _weights(weights)
    parts: dict[str, list[Value]] = {}
    for key, value in values.items():
        parts[key] = [
            replace(value, key=_numbered(key, number), observed={at: value.observed[at] for at in passes})
            for number, passes in enumerate(_groups(value), 1)
        ]
    pieces: dict[str, list[Value | Weight]] = defaultdict(list)
    for key, several in parts.items():
        pieces[key] += several
    for weight in made.values():
        pieces[weight.name].append(weight)
    kept: dict[str, Value] = {}
    for key, value in values.items():
        for part in parts[key]:
            sources: dict[str, set[Pass]] = defaultdict(set)
            for source, passes in value.sources.items():
                for at in passes & part.observed.keys():
                    for name in _pieces_in(pieces.get(source, []), at[1]) or [source]:
                        sources[name].add(at)
            kept[part.key] = replace(part, sources=dict(sources))
    return kept, made


def _pieces_in(pieces: list[Value | Weight], layer: int | None) -> list[str]:
    """The keys of those that exist in this layer. Outside the blocks, what is read of them is of the last one."""
    if len(pieces) < 2:
        return [piece.key for piece in pieces]
    if layer is None:
        layer = max((one for piece in pieces for one in piece.layers if one is not None), default=None)
    return [piece.key for piece in pieces if layer in piece.layers]


def _weights(found: Mapping[tuple[str, int | None], Shape]) -> dict[str, Weight]:
    grouped: dict[str, dict[Shape, set[int]]] = defaultdict(dict)
    for (name, layer), shape in found.items():
        layers = grouped[name].setdefault(shape, set())
        if layer is not None:
            layers.add(layer)
    made = {}
    for name, shapes in grouped.items():
        for number, (shape, layers) in enumerate(shapes.items(), 1):
            key = _numbered(name, number)
            made[key] = Weight(key, name, shape, frozenset(layers))
    return made


def _numbered(key: str, number: int) -> str:
    return key if number == 1 else f"{key}#{number}"


def _groups(value: Value) -> list[list[Pass]]:
    """Its passes, together in layers where it has the same shapes; nothing where it has none of its own."""
    by_layer: dict[int | None, dict[View, Shape]] = defaultdict(dict)
    for (view, layer), shapes in value.observed.items():
        if len(set(shapes)) > 1:
            return []
        by_layer[layer][view] = shapes[0]
    groups: dict[tuple[tuple[View, Shape], ...], list[Pass]] = {}
    for layer, seen in by_layer.items():
        if len({len(shape) for shape in seen.values()}) > 1:
            return []
        groups.setdefault(tuple(seen.items()), []).extend((view, layer) for view in seen)
    return list(groups.values())
