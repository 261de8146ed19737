"""The words for how a number came to be: a formula and captured inputs as an explanation, each element with its place.

What no operation makes is told too: a block's input is handed on, an old row of a cache was written by another pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from atlas.catalog import Model
from atlas.graph.axes import View
from atlas.graph.nodes import Parameter, Tensor
from atlas.graph.resolve import Resolved
from atlas.inspection.arrays import as_array
from atlas.inspection.evaluate import Bound
from atlas.inspection.explained import Explanation, Figure, Source, Term, Total
from atlas.inspection.export import shortest
from atlas.inspection.formulas import Applied, Constant, Formula, Gathered, Leaf, finite, number
from atlas.inspection.frames import ATTENDED, Pass, pass_of
from atlas.inspection.tex import formula_tex, number_tex
from atlas.runtime.captures import Captured


@dataclass(frozen=True)
class Asked:
    """One element of a captured tensor, and what surrounds it."""

    model: Model
    captured: Captured
    cell: tuple[int, ...]
    made_in: Pass
    prompt_length: int

    @property
    def node(self) -> Resolved:
        return self.model.graph[self.captured.node]

    @property
    def value(self) -> complex:
        return number(as_array(self.captured.tensor)[self.cell])


@dataclass(frozen=True)
class Sources:
    """Turns elements of a reference's arguments into elements of nodes."""

    asked: Asked
    bound: Bound
    inputs: Mapping[str, Captured]

    def source(self, leaf: Leaf) -> Source:
        axes = self.bound.axes[leaf.name]
        kept = self.bound.kept
        index = tuple(kept[axis][at] if axis in kept else at for axis, at in zip(axes, leaf.index, strict=True))
        if leaf.name == "before":
            return self._earlier(axes, index)
        return source_of(self.asked, self.inputs[self.bound.paths[leaf.name]], index)

    def _earlier(self, axes: tuple[str, ...], index: tuple[int, ...]) -> Source:
        """A row that an earlier pass wrote: the same cache as it was after that pass."""
        asked = self.asked
        position = dict(zip(axes, index, strict=True))[ATTENDED] + asked.made_in.before - asked.made_in.kept
        view: View = "prefill" if position < asked.prompt_length else "decode"
        step = None if view == "prefill" else position - asked.prompt_length + 1
        window = asked.made_in.window
        then = pass_of(view, step, asked.prompt_length, 0, asked.captured.layer, window)
        first = then.first(ATTENDED) or 0
        cell = tuple(position - first if axis == ATTENDED else at for axis, at in zip(axes, index, strict=True))
        node = asked.node
        return Source(
            node=node.path,
            name=f"{node.name} after {view if step is None else f'decode step {step}'}",
            symbol=node.symbol,
            cell=list(cell),
            axes=list(axes),
            positions=_positions(then, axes, cell),
            figure=figure(as_array(asked.captured.tensor)[index]),
            view=view,
            layer=asked.captured.layer,
            step=step,
            learned=False,
        )


def source_of(asked: Asked, given: Captured, cell: tuple[int, ...]) -> Source:
    """An element of a tensor of the same pass, or of a parameter."""
    graph = asked.model.graph
    node = graph[given.node]
    learned = isinstance(node.node, Parameter)
    made_in = replace(asked.made_in, layer=given.layer, window=graph.window(given.layer))
    return Source(
        node=given.node,
        name=node.name,
        symbol=node.symbol,
        cell=list(cell),
        axes=list(given.axes),
        positions=[None] * len(cell) if learned else _positions(made_in, given.axes, cell),
        figure=figure(as_array(given.tensor)[cell]),
        view=given.view,
        layer=given.layer,
        step=given.step,
        learned=learned,
    )


def _positions(made_in: Pass, axes: Sequence[str], cell: Sequence[int]) -> list[int | None]:
    found: list[int | None] = []
    for axis, at in zip(axes, cell, strict=True):
        first = made_in.first(axis)
        found.append(None if first is None else first + at)
    return found


def figure(value: Any) -> Figure:
    """A number, of Python or numpy, as data; its text is the shortest decimal that reads back to it."""
    known = number(value) if finite(number(value)) else None
    if isinstance(value, complex | np.complexfloating):
        text = f"{shortest(value.real)} {'-' if value.imag < 0 else '+'} {shortest(abs(value.imag))}i"
        return Figure(
            value=None if known is None else known.real, imaginary=None if known is None else known.imag, text=text
        )
    return Figure(value=None if known is None else known.real, text=shortest(value))


def told(asked: Asked, maker: Resolved, bound: Bound, formula: Formula, inputs: Mapping[str, Captured]) -> Explanation:
    """The whole story of an element whose formula is known."""
    sources = Sources(asked, bound, inputs)
    outside = _once(sources.source(leaf) for leaf in _leaves(formula))
    totals = [_total(sources, found) for found in _sums(formula)]
    return _explanation(
        asked,
        maker,
        _sentence(maker, formula, outside, totals),
        numbers=f"{formula_tex(formula, bound.paths)} = {number_tex(formula.value)}",
        recomputed=formula.value,
        sources=outside,
        totals=totals,
    )


def untold(
    asked: Asked, maker: Resolved, why: str, inputs: Mapping[str, Captured], recomputed: complex | None = None
) -> Explanation:
    """An element whose formula is not known: what it is made from, and its value again if that can be had."""
    names = [asked.model.graph[path].name.lower() for path in inputs if path != asked.captured.node]
    made_from = f" It is made from {', '.join(names)}." if names else ""
    return _explanation(asked, maker, f"{maker.node.description} {why}{made_from}", recomputed=recomputed)


def unmade(asked: Asked, inputs: Mapping[str, Captured]) -> Explanation:
    """What no operation makes: handed on, learned, given, or computed from the configuration."""
    declared = asked.node.node
    if isinstance(declared, Parameter):
        return _explanation(asked, None, "A learned number: it is read from the checkpoint, and nothing here made it.")
    for path, given in inputs.items():
        source = source_of(asked, given, asked.cell)
        sentence = f"Handed on: it is the same number as in {asked.model.graph[path].name.lower()}{_of_layer(source)}."
        return _explanation(asked, None, sentence, sources=[source])
    if isinstance(declared, Tensor) and declared.when == "build":
        return _explanation(asked, None, "Computed from the configuration alone, when the model was built.")
    return _explanation(asked, None, "Given to the pass: nothing in the model made it.")


def _explanation(
    asked: Asked,
    maker: Resolved | None,
    sentence: str,
    *,
    numbers: str = "",
    recomputed: complex | None = None,
    sources: Sequence[Source] = (),
    totals: Sequence[Total] = (),
) -> Explanation:
    captured, node, value = asked.captured, asked.node, asked.value
    return Explanation(
        node=node.path,
        name=node.name,
        cell=list(asked.cell),
        axes=list(captured.axes),
        view=captured.view,
        layer=captured.layer,
        step=captured.step,
        operation=None if maker is None else maker.path,
        operation_name="" if maker is None else maker.name,
        sentence=sentence,
        equation=node.plain_equation,
        numbers=numbers,
        captured=figure(as_array(captured.tensor)[asked.cell]),
        recomputed=None if recomputed is None else figure(recomputed),
        difference=None if recomputed is None else figure(_difference(recomputed, value)),
        sources=list(sources),
        totals=list(totals),
    )


def _total(sources: Sources, found: Gathered) -> Total:
    terms = [Term(figure=figure(term.value), sources=_once(map(sources.source, _leaves(term)))) for term in found.shown]
    sums = found.how in ("sum", "mean")
    return Total(
        how=found.how,
        count=found.count,
        figure=figure(found.value),
        terms=terms,
        rest=figure(found.rest) if sums else None,
        rest_count=found.count - len(found.shown),
    )


def _sentence(maker: Resolved, formula: Formula, outside: Sequence[Source], totals: Sequence[Total]) -> str:
    """What was done, in words."""
    match formula:
        case Leaf():
            return f"Nothing is computed: one number of {outside[0].name.lower()}, in another place."
        case Constant():
            return f"{maker.node.description} It depends on no number of an input."
        case Applied(function="pick"):
            chosen, by = outside[0], outside[-1].name.lower()
            return f"Nothing is computed: row {chosen.cell[0]:,} of {chosen.name.lower()}, chosen by {by}."
    words = {"sum": "a sum of {}", "mean": "a mean of {}", "max": "the largest of {}", "min": "the smallest of {}"}
    held = [words.get(total.how, "a product of {}").format(f"{total.count:,} terms") for total in totals]
    return f"{maker.node.description} In it: {', '.join(held)}." if held else maker.node.description


def _leaves(formula: Formula) -> Iterator[Leaf]:
    """The elements of inputs outside of sums, in order."""
    if isinstance(formula, Leaf):
        yield formula
    elif isinstance(formula, Applied):
        for part in formula.parts:
            yield from _leaves(part)


def _sums(formula: Formula) -> list[Gathered]:
    """The outermost sums, each once."""
    if isinstance(formula, Gathered):
        return [formula]
    if not isinstance(formula, Applied):
        return []
    found = [total for part in formula.parts for total in _sums(part)]
    return [total for at, total in enumerate(found) if total not in found[:at]]


def _once(sources: Iterable[Source]) -> list[Source]:
    return list({(source.node, source.view, source.layer, tuple(source.cell)): source for source in sources}.values())


def _difference(recomputed: complex, value: complex) -> complex:
    """Zero where both are the same, infinities included."""
    if recomputed == value or (recomputed != recomputed and value != value):
        return 0.0
    return value - recomputed


def _of_layer(source: Source) -> str:
    return "" if source.layer is None else f" of layer {source.layer}"
