"""How one number came to be: its operation's reference, evaluated on arrays that remember, read off as an explanation.

Nothing is declared for it: the reference that checks the equation is the rule. Where a reference does what cannot be
followed, the inputs are named and the number is recomputed all the same. What no operation makes is followed too: a
block's input to the block before, an old row of a cache to the pass that wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import numpy as np

from atlas.errors import BadRequest, DeclarationError
from atlas.graph.nodes import Operation
from atlas.inspection.arrays import as_array
from atlas.inspection.evaluate import Bound, bind, evaluate, independent, wanted_inputs
from atlas.inspection.explained import Explanation
from atlas.inspection.formulas import Formula, number
from atlas.inspection.frames import COMPUTED, pass_of
from atlas.inspection.telling import Asked, told, unmade, untold
from atlas.inspection.tracked import Tracked, Untraceable, track
from atlas.runtime.captures import Captured
from atlas.runtime.expressions import is_expression

if TYPE_CHECKING:
    from atlas.runtime.engine import Engine


async def explain(
    engine: Engine, run_id: str, node: str, view: str, layer: int | None, step: int | None, cell: Sequence[int]
) -> Explanation:
    """How one element of a run's tensor was made.

    Raises as `engine.tensors`, and `BadRequest` for a cell that the tensor does not have, and for an expression.
    """
    if is_expression(node):
        raise BadRequest(
            "An expression of the source has no declared equation, so how it was made is not known.", "Ask for a node."
        )
    captured = await engine.tensor(run_id, node, view, layer, step)
    run = engine.run(run_id)
    model = run.runner.model
    window = model.graph.window(captured.layer)
    facts = pass_of(captured.view or "prefill", captured.step, run.prompt_length, len(run.ids), captured.layer, window)
    asked = Asked(model, captured, _checked(captured, cell), facts, run.prompt_length)
    maker = model.graph.producer(node, captured.layer)
    inputs: dict[str, Captured] = {}
    if maker is not None and isinstance(maker.node, Operation):
        wanted = wanted_inputs(model.graph, maker, captured.layer)
        last = run.runner.n_layers - 1
        if wanted:
            at = last if captured.layer is None else captured.layer
            inputs = await engine.tensors(run_id, [node, *wanted], view, at, captured.step)
    elif handed := _handed_on(asked):
        inputs = await engine.tensors(run_id, [handed[0]], view, handed[1], captured.step)
    return await anyio.to_thread.run_sync(partial(explain_cell, asked, inputs))


def explain_cell(asked: Asked, inputs: Mapping[str, Captured]) -> Explanation:
    """The same of captured values: `inputs` are those of the operation, by path."""
    graph, node = asked.model.graph, asked.node
    maker = graph.producer(node.path, asked.captured.layer)
    if maker is None:
        return unmade(asked, inputs)
    arrays = {path: (as_array(given.tensor), given.axes) for path, given in inputs.items()}
    arrays[node.path] = (as_array(asked.captured.tensor), asked.captured.axes)
    free = independent(graph, maker, node.path, asked.captured.layer)
    kept = {axis: (at,) for axis, at in zip(asked.captured.axes, asked.cell, strict=True) if axis in free}
    for axis in COMPUTED:  # two names of the same positions
        kept |= dict.fromkeys(COMPUTED, kept[axis]) if axis in kept else {}
    bound = bind(graph, maker, node.path, asked.made_in, arrays, kept)
    if isinstance(bound, str):
        return untold(asked, maker, bound, inputs)
    local = tuple(0 if axis in kept else at for axis, at in zip(asked.captured.axes, asked.cell, strict=True))
    if bound.unordered is not None:
        local = _same_number(bound, asked, local)
    try:
        formula = _formula(bound, node.path, local)
    except Untraceable as reason:
        recomputed = number(evaluate(bound, node.path)[local])
        return untold(asked, maker, f"Its reference is not followed number by number: {reason}.", inputs, recomputed)
    return told(asked, maker, bound, formula, inputs)


def _formula(bound: Bound, path: str, cell: tuple[int, ...]) -> Formula:
    """Raises `Untraceable`, and `DeclarationError` where the reference does not fit its inputs."""
    operation = bound.operation.node
    assert isinstance(operation, Operation)
    arguments = {
        name: Tracked.given(name, value) if isinstance(value, np.ndarray) else value
        for name, value in bound.arguments.items()
    }
    try:
        made = operation.reference(**arguments)
    except Untraceable:
        raise
    except (ValueError, IndexError, TypeError, ArithmeticError, AttributeError) as error:
        raise Untraceable(f"it cannot be evaluated so ({error})") from error
    values = made if isinstance(made, tuple) else (made,)
    found = track(values[bound.operation.outputs.index(path)])
    if len(found.shape) != len(cell) or any(at >= size for at, size in zip(cell, found.shape, strict=True)):
        raise DeclarationError(f"The reference of {operation.path!r} gives another shape.", "Check its axes.")
    return found.formula(cell)


def _same_number(bound: Bound, asked: Asked, cell: tuple[int, ...]) -> tuple[int, ...]:
    """Where the reference has the number of a cell, along an axis whose order means nothing."""
    along = asked.captured.axes.index(bound.unordered or "")
    place: tuple[Any, ...] = (slice(None), *cell[:along], *cell[along + 1 :])
    line = np.moveaxis(evaluate(bound, asked.node.path), along, 0)[place]
    return (*cell[:along], int(np.argmin(np.abs(line - asked.value))), *cell[along + 1 :])


def _handed_on(asked: Asked) -> tuple[str, int] | None:
    """Where a value comes from that no operation makes: the node, and the layer to look in."""
    layer = asked.captured.layer
    for edge in asked.model.graph.edges:
        if edge.target == asked.captured.node and (edge.next_layer if layer else edge.first_layer):
            return edge.source, (layer or 1) - 1
    return None


def _checked(captured: Captured, cell: Sequence[int]) -> tuple[int, ...]:
    shape = tuple(captured.tensor.shape)
    said = ", ".join(f"{axis} ({size:,})" for axis, size in zip(captured.axes, shape, strict=True))
    if len(cell) != len(shape):
        raise BadRequest(
            f"The cell {list(cell)} has {len(cell)} indices, but the tensor has {len(shape)} axes: {said}.",
            "Give one index for each axis, such as cell=0,3,211.",
        )
    for at, axis, size in zip(cell, captured.axes, shape, strict=True):
        if not 0 <= at < size:
            raise BadRequest(
                f"There is no index {at} along {axis!r}, which has size {size:,}.", f"Use 0 to {size - 1}.", axis=axis
            )
    return tuple(cell)
