"""The checks of one captured tensor: its shape, its equation and its source, each computed on request and remembered.

A check that does not apply has `ok` None, and says why; one that fails says what it found. Which tensors a check needs
is read off the graph, and the engine gives them in one replay. Checks of whole models are `atlas.inspection.checks`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from atlas.catalog import Model
from atlas.errors import DeclarationError, SourceError
from atlas.graph.nodes import Operation, Parameter, Tensor
from atlas.inspection.answers import Checks, EquationCheck, ShapeCheck, SourceCheck
from atlas.inspection.arrays import as_array, dtype_name
from atlas.inspection.evaluate import TOLERANCES, Bound, bind, coarsest, compare, wanted_inputs
from atlas.inspection.frames import Pass, pass_of
from atlas.runtime.captures import Captured
from atlas.runtime.expressions import is_expression

if TYPE_CHECKING:
    from atlas.runtime.engine import Engine

REMEMBERED = 4096


def checks_for(model: Model, run_facts: Pass, node: str, captured: Captured, inputs: Mapping[str, Captured]) -> Checks:
    """Check one captured tensor of a model. `inputs` are captured tensors of the same pass by path.

    Those that `inputs_of` names are enough; one that the pass does not compute is left out.
    """
    return Checks(
        shape=check_shape(model, run_facts, node, captured.tensor.shape),
        equation=check_equation(model, run_facts, node, captured, inputs),
        source=check_source(model),
    )


def inputs_of(model: Model, node: str, layer: int | None = None) -> list[str]:
    """The nodes whose captured values the equation check of a node needs in this layer."""
    if is_expression(node):
        return []
    maker = model.graph.producer(node, layer)
    return [] if maker is None or not isinstance(maker.node, Operation) else wanted_inputs(model.graph, maker, layer)


def check_shape(model: Model, run_facts: Pass, node: str, observed: Sequence[int]) -> ShapeCheck:
    """The declared shape in this pass's view against the observed one, axis by axis."""
    if is_expression(node):
        return ShapeCheck(ok=None, why="Nobody has declared what this expression is.")
    resolved = model.graph[node]
    declared = resolved.shape["full" if isinstance(resolved.node, Parameter) else run_facts.view]
    if declared is None:
        return ShapeCheck(ok=False, why=f"{node!r} is declared absent in {run_facts.view}, but was computed.")
    expected = run_facts.expected(declared)
    if len(observed) == len(expected):
        expected = [
            size if extent.free else wanted for extent, wanted, size in zip(declared, expected, observed, strict=True)
        ]
    if list(observed) == expected:
        return ShapeCheck(ok=True, expected=expected)
    if len(observed) != len(expected):
        why = f"{len(expected)} axes are declared, {len(observed)} were observed."
    else:
        wrong = [
            f"{extent.axis} is {seen}, not {size}"
            for extent, size, seen in zip(declared, expected, observed, strict=True)
            if seen != size
        ]
        why = f"{'; '.join(wrong).capitalize()}."
    return ShapeCheck(ok=False, why=why, expected=expected)


def check_equation(
    model: Model, run_facts: Pass, node: str, captured: Captured, inputs: Mapping[str, Captured]
) -> EquationCheck:
    """The reference of the operation that makes a node, evaluated and compared row by row."""
    maker = None if is_expression(node) else model.graph.producer(node, run_facts.layer)
    if maker is None:
        return EquationCheck(ok=None, why=_no_equation(model, node))
    everything = {path: (as_array(given.tensor), given.axes) for path, given in inputs.items()}
    found = as_array(captured.tensor)
    everything[node] = (found, captured.axes)
    bound = bind(model.graph, maker, node, run_facts, everything)
    if isinstance(bound, str):
        return EquationCheck(ok=None, operation=maker.path, why=bound)
    try:
        result = compare(bound, node, found, captured.axes, _held_to(captured, bound, inputs))
    except DeclarationError as error:
        return EquationCheck(ok=False, operation=maker.path, why=str(error))
    why = ""
    if result.rows_checked == 0 and result.rows:
        why = "The reference gives another shape."
    elif result.kept:
        sizes = dict(zip(captured.axes, found.shape, strict=True))
        parts = [f"{count:,} of {sizes[axis]:,} {axis}" for axis, count in result.kept.items()]
        why = f"So large a tensor is checked in part: {', '.join(parts)}, spread evenly."
    return EquationCheck(
        ok=result.ok,
        why=why,
        operation=maker.path,
        max_abs_error=result.max_abs_error,
        worst_row=result.worst_row,
        worst_at=list(result.worst_at),
        tolerance=result.tolerance,
        rows_checked=result.rows_checked,
        rows=result.rows,
    )


def _held_to(captured: Captured, bound: Bound, inputs: Mapping[str, Captured]) -> str:
    """The dtype whose tolerance an output is held to: where its inputs are coarser (float32 logits from bfloat16
    weights), theirs. Whole numbers are exact.
    """
    made = dtype_name(captured.tensor)
    if made not in TOLERANCES:
        return made
    return coarsest([made, *(dtype_name(inputs[path].tensor) for path in bound.paths.values() if path in inputs)])


def check_source(model: Model) -> SourceCheck:
    """The reference code's file as it is on the disk now. What was loaded was compared with it when it was loaded."""
    reference = model.architecture.reference.file
    locked = model.store.locks.locked(reference)[1]
    try:
        model.store.read(reference)
    except SourceError as error:
        return SourceCheck(ok=False, why=str(error), file=str(reference), sha256=locked.sha256)
    return SourceCheck(ok=True, file=str(reference), sha256=locked.sha256)


class Verifier:
    """Checks of runs' tensors: made one at a time in a thread of its own, so that no request waits for arithmetic
    that it did not ask for, and remembered. Thread-safe as long as one event loop uses it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checks")
        self._known: OrderedDict[tuple[object, ...], Checks] = OrderedDict()

    def close(self) -> None:
        """Let the check under way end, and drop those that wait."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def checks(self, engine: Engine, run_id: str, captured: Captured) -> Checks:
        """The checks of a tensor that this engine gave for a run. Raises as `engine.tensors`."""
        key = (run_id, captured.node, captured.view, captured.layer, captured.step)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            # The file may have been edited since.
            return known.model_copy(update={"source": check_source(engine.model_of(run_id))})
        run = engine.run(run_id)
        model = run.runner.model
        view = captured.view or "prefill"
        window = model.graph.window(captured.layer)
        facts = pass_of(view, captured.step, run.prompt_length, len(run.ids), captured.layer, window)
        wanted = inputs_of(model, captured.node, captured.layer)
        inputs: dict[str, Captured] = {}
        if wanted:
            # Outside the blocks, what is read of them is of the last one.
            layer = run.runner.n_layers - 1 if captured.layer is None else captured.layer
            inputs = await engine.tensors(run_id, [captured.node, *wanted], view, layer, captured.step)
        work = partial(checks_for, model, facts, captured.node, captured, inputs)
        found = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        self._known[key] = found
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found


def _no_equation(model: Model, node: str) -> str:
    if is_expression(node):
        return "Nobody has declared how this expression comes to be."
    resolved = model.graph[node]
    declared = resolved.node
    if isinstance(declared, Parameter):
        return "A learned weight: it is read from the checkpoint, and no equation makes it."
    handed = [
        edge.source for edge in model.graph.edges if edge.target == node and (edge.next_layer or edge.first_layer)
    ]
    if handed:
        return f"Handed on from {' or '.join(dict.fromkeys(reversed(handed)))}; nothing is computed."
    if isinstance(declared, Tensor) and declared.when == "build":
        return "Computed from the configuration when the model is built; no operation makes it from another node."
    return "Given to the pass, not computed by it."
