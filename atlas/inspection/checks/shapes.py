"""Shapes: the reference code is run at the model's true size in each view, and every declared shape compared.

Nothing is computed: tensors have shapes and no numbers, so every size of model fits. Symbols stand for one number in
all shapes of a pass. What is declared absent must not come to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from atlas.graph.axes import VIEWS, View
from atlas.graph.nodes import Parameter, Tensor
from atlas.graph.resolve import Graph, Resolved
from atlas.inspection.checks import Subject
from atlas.inspection.checks._true_size import Traced, layers_of, size_of, traced
from atlas.inspection.checks.result import Kind, Result

KIND: Kind = "shapes"
ORDER = 20


def check(subject: Subject) -> Iterator[Result]:
    """One result for each tensor, cache and parameter, and one that notes what had to be assumed, or was left out."""
    found = traced(subject)
    if found.left_out:
        what = "every layer, or one that is alike, was run"
        yield Result(kind=KIND, status="noted", what=what, subject=found.subject, detail=found.left_out)
    if found.assumed:
        what = "the way of the code through its experts"
        yield Result(kind=KIND, status="noted", what=what, subject=found.subject, detail=found.assumed)
    for node in subject.model.graph.nodes.values():
        if isinstance(node.node, Parameter):
            yield parameter_result(found, node)
        elif isinstance(node.node, Tensor):
            yield tensor_result(found, node)


def tensor_result(found: Traced, node: Resolved) -> Result:
    """One tensor in all views and layers."""
    assert isinstance(node.node, Tensor)
    layers = found.layers_of(node)
    numbers: dict[str, int | float | str] = {}
    if node.in_blocks:
        numbers = {"layers": len(layers_of(found.model, node)), "layers_run": len(layers)}
    wrong: list[str] = []
    for view in VIEWS:
        seen = {
            layer: [tuple(value.shape) for value in found.passes[view].values.get((node.path, layer), ())]
            for layer in layers
        }
        shapes = {shape for given in seen.values() for shape in given}
        numbers[view] = " or ".join(sorted(_printed(shape) for shape in shapes)) or "absent"
        wrong += _faults(found.model.graph, node, view, seen)
    return Result(
        kind=KIND,
        status="failed" if wrong else "passed",
        what="the declared shape is observed in every view",
        subject=found.subject,
        node=node.path,
        detail=" ".join(wrong),
        hint="Mend the node's axes, or the architecture's sizes." if wrong else "",
        numbers=numbers,
    )


def parameter_result(found: Traced, node: Resolved) -> Result:
    """One parameter in all layers."""
    assert isinstance(node.node, Parameter)
    declared = node.shape["full"] or ()
    expected = tuple(extent.size for extent in declared)
    wrong: list[str] = []
    layers = layers_of(found.model, node)
    for layer in layers:
        name = node.node.weight.format(layer=layer)
        shape = found.parameters.get(name)
        if shape is None:
            wrong.append(f"The reference has no parameter {name}.")
        elif shape != expected:
            wrong.append(f"{name} is {_printed(shape)}, not {_printed(expected)}.")
    numbers: dict[str, int | float | str] = {"shape": _printed(expected)}
    if node.in_blocks:
        numbers["layers"] = len(layers)
    return Result(
        kind=KIND,
        status="failed" if wrong else "passed",
        what="the parameter has the declared shape",
        subject=found.subject,
        node=node.path,
        detail=" ".join(wrong[:3]),
        hint="Mend the node's axes or its `weight`." if wrong else "",
        numbers=numbers,
    )


def _faults(graph: Graph, node: Resolved, view: View, seen: dict[int | None, list[tuple[int, ...]]]) -> Iterator[str]:
    """What is wrong in one view: the first layer of each kind of fault."""
    declared, joined = node.shape[view], isinstance(node.node, Tensor) and node.node.joined
    missing = [layer for layer, shapes in seen.items() if not shapes]
    if declared is None:
        came = [layer for layer, shapes in seen.items() if shapes]
        if came:
            yield f"{view}: it is declared absent, but comes to be{_where(came)}."
        return
    if missing:
        yield f"{view}: it never comes to be{_where(missing)}."
    told: set[str] = set()
    for layer, shapes in seen.items():
        # The turns of a loop are put together along their first axis.
        whole = [(sum(s[0] for s in shapes), *shapes[0][1:])] if joined and shapes else shapes
        for shape in whole:
            expected = [size_of(extent, view, graph.window(layer)) for extent in declared]
            fault = ""
            if len(shape) != len(expected):
                fault = f"{len(expected)} axes are declared, {len(shape)} were observed, {_printed(shape)}"
            else:
                fault = ", ".join(
                    f"axis {extent.axis} ({extent.symbol}) is {size}, not {'bound' if wanted is None else wanted}"
                    for extent, wanted, size in zip(declared, expected, shape, strict=True)
                    if wanted != size and not extent.free
                )
            if fault and fault not in told:
                told.add(fault)
                yield f"{view}{_where([layer])}: {fault}."


def _where(layers: Sequence[int | None]) -> str:
    known = [layer for layer in layers if layer is not None]
    if not known:
        return ""
    return f" in layer {known[0]}" + (f" and {len(known) - 1} more" if len(known) > 1 else "")


def _printed(shape: Sequence[int | None]) -> str:
    return " × ".join(str(size) for size in shape) or "scalar"
