"""Costs as pages print them: a table for a step, and for a whole pass with numbers and what they mean."""

from __future__ import annotations

from functools import lru_cache

from markupsafe import Markup, escape

from atlas.catalog import Model
from atlas.graph.axes import VIEWS, Extent, View
from atlas.web.costs import cost, total
from atlas.web.figures import binary_bytes
from atlas.web.pieces import CostRow, PassCost
from atlas.web.prose import light_symbol

POSITIONS = 1024
"""Of the example: one sequence of so many positions, or a decode step that attends to as many."""
EXAMPLE = {"B": 1, "T": POSITIONS, "P": POSITIONS, "T_k": POSITIONS}


def cost_rows(model: Model, path: str, current: View) -> tuple[CostRow, ...]:
    """What an operation, or one copy of a component, takes in each view in which it is computed.

    Nothing of what is derived from code: a line of code may be several operations, whose factors nobody has named.
    """
    found: list[CostRow] = []
    if model.architecture.derived:
        return ()
    for view in VIEWS:
        part = cost(model, path, view)
        if part is not None:
            found.append(
                CostRow(
                    view=view,
                    current=view == current,
                    formula=Markup(" × ").join(_factor(extent) for extent in part.factors),
                    multiply_adds=part.multiply_adds.markup,
                    weights=part.weights.markup,
                    cache=part.cache.markup,
                    values=part.values.markup,
                    written=part.written.markup,
                )
            )
    return tuple(found)


def _factor(extent: Extent) -> Markup:
    size = escape(str(extent.size)) if extent.size is not None else light_symbol(extent.symbol)
    return Markup('<span class="axis" data-axis="{}">{} {}</span>').format(extent.axis, size, extent.words)


@lru_cache(maxsize=256)
def pass_costs(model: Model) -> tuple[PassCost, ...]:
    """What a prefill and a decode step take, all layers; nothing of what is derived from code."""
    if model.architecture.derived:
        return ()
    views: tuple[View, ...] = ("prefill", "decode")
    return tuple(_pass_cost(model, view) for view in views)


def _pass_cost(model: Model, view: View) -> PassCost:
    whole = total(model, view)
    work, read = whole.multiply_adds.at(_values(model)), (whole.weights + whole.cache).at(_values(model))
    return PassCost(
        view=view,
        formula=whole.multiply_adds.markup,
        multiply_adds=f"{work:,}",
        weights=binary_bytes(whole.weights.at(_values(model))),
        cache=binary_bytes(whole.cache.at(_values(model))),
        ratio=f"{work / read:,.0f}" if work >= 10 * read else f"{work / read:.2g}",
    )


def _values(model: Model) -> dict[str, int]:
    window = model.architecture.window
    return {**EXAMPLE, "T_w": min(POSITIONS, window.size) if window is not None else POSITIONS}


def cost_note(model: Model) -> str:
    """Why a decode step waits for memory; empty where costs are not known."""
    if not pass_costs(model):
        return ""
    prefill, decode = pass_costs(model)
    local = ""
    if model.architecture.window is not None:
        local = (
            f" Layers with a window read at most {model.architecture.window.size:,} positions; here all are counted."
        )
    return (
        f"A decode step reads every weight that it uses for a single position: {decode.ratio} multiply-adds a byte. "
        "Processors do tens to hundreds in the time they take to read one, so decode is bound by memory, and several "
        "sequences at once cost hardly more than one. A prefill uses each weight for all its positions: "
        f"{prefill.ratio} multiply-adds a byte, so it is bound by arithmetic.{local}"
    )
