"""Equations: each operation's reference, in float64, on real inputs, against what the reference code made of them.

One prompt is taken through prefill, decode and full sequence, and every node is compared row by row in every layer.
What needs no weights is compared at the model's own configuration as well: frequencies, rotations, masks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module

from atlas.catalog import Model
from atlas.graph.nodes import Operation, Parameter, Tensor
from atlas.graph.resolve import Resolved
from atlas.inspection.answers import EquationCheck
from atlas.inspection.checks import Subject
from atlas.inspection.checks._live import PROMPT, STEPS, Live, Taken, Witness, live
from atlas.inspection.checks.result import Kind, Result
from atlas.inspection.frames import Pass
from atlas.inspection.verify import check_equation, inputs_of
from atlas.runtime.captures import Captured
from atlas.runtime.recorder import Recording

KIND: Kind = "equations"
ORDER = 40
COMPUTED, BEFORE = 5, 4000  # positions of the pass that needs no weights: far out, where angles are large


@dataclass(frozen=True)
class Compared:
    """One comparison, and where it was made."""

    where: str
    check: EquationCheck

    @property
    def badness(self) -> float:
        """How much of what was allowed was used; above 1 it failed."""
        if self.check.worst_row is None or not self.check.tolerance:
            return float("inf") if self.check.ok is False else 0.0
        return self.check.worst_row / self.check.tolerance


def check(subject: Subject) -> Iterator[Result]:
    """One result for each node that an operation makes, and one for all that nobody has written an equation for."""
    yield from unwritten(subject.model)
    yield from configured_results(subject.model)
    found = live(subject)
    if found is None:
        yield Result(
            kind=KIND,
            status="pending",
            what="every equation holds on real numbers",
            subject=subject.model.name,
            detail="Its weights are not here, and no model of its architecture stands in.",
            hint=f"Give them: atlas check {subject.model.id} --checkpoint {subject.model.id}=PATH",
        )
        return
    key = f"equations: {found.witness.model.id}"
    kept = subject.shared.get(key)
    if not isinstance(kept, dict):
        kept = subject.shared[key] = compare_all(found.witness, subject)
    for node in subject.model.graph.nodes.values():
        if node.path in kept:
            yield _result(node, found, kept[node.path])


def compare_all(witness: Witness, subject: Subject) -> dict[str, list[Compared]]:
    """Every comparison on one prompt's passes, by node: all layers of prefill, last decode step and full sequence."""
    found: dict[str, list[Compared]] = defaultdict(list)
    chosen = [taken for taken in witness.passes if taken.step in (None, STEPS)]
    for node in made_nodes(witness.model):
        subject.progress(f"{witness.model.name}: equation of {node.path}", None)
        for layer in _layers(witness.model, node):
            for taken in chosen:
                compared = compare_one(witness, taken, node, layer)
                if compared is not None:
                    found[node.path].append(compared)
    return dict(found)


def compare_one(witness: Witness, taken: Taken, node: Resolved, layer: int | None) -> Compared | None:
    """One node in one pass and layer; None where the pass does not compute it."""
    captured = witness.value(taken, node.path, layer)
    if captured is None:
        return None
    last = witness.model.architecture.sizes["layers"] - 1
    inputs: dict[str, Captured] = {}
    for path in inputs_of(witness.model, node.path, layer):
        value = witness.value(taken, path, last if layer is None else layer)
        if value is not None:
            inputs[path] = value
    where = taken.words if layer is None else f"{taken.words}, layer {layer}"
    return Compared(where, check_equation(witness.model, witness.facts(taken, layer), node.path, captured, inputs))


def made_nodes(model: Model) -> Iterator[Resolved]:
    """The tensors and caches that operations make whose equations somebody has written."""
    for node in model.graph.nodes.values():
        if isinstance(node.node, Tensor) and node.inputs and not any(_derived(model, path) for path in node.inputs):
            yield node


def unwritten(model: Model) -> Iterator[Result]:
    """Says so where operations are derived from the code, so that there is no equation to compare with."""
    operations = model.graph.operations
    derived = [node.path for node in operations if _derived(model, node.path)]
    if derived:
        yield Result(
            kind=KIND,
            status="pending",
            what="every equation holds on real numbers",
            subject=model.architecture.name,
            detail=f"{len(derived)} of its {len(operations)} operations were read off the code, without an equation.",
            hint="Write them: atlas draft PATH prints where to start.",
        )


def _derived(model: Model, path: str) -> bool:
    node = model.graph[path].node
    return isinstance(node, Operation) and node.derived


def configured_results(model: Model) -> Iterator[Result]:
    """What the reference computes from the configuration alone, at this model's own."""
    runner = import_module(f"atlas.runtime.references.{model.architecture.reference.runner}")
    recording: Recording = runner.TrueSizeRunner.configured(model, COMPUTED, BEFORE)
    facts = Pass("prefill", COMPUTED, BEFORE)
    subject = f"the reference code at {model.name}'s configuration"
    for node in made_nodes(model):
        wanted = inputs_of(model, node.path)
        value = recording.last(node.path)
        inputs = {path: recording.last(path) for path in wanted}
        weighed = any(isinstance(model.graph[path].node, Parameter) for path in wanted)
        if value is None or weighed or node.in_blocks or any(given is None for given in inputs.values()):
            continue
        captured = {
            path: Captured(path, "prefill", None, None, tensor, _shape(model, path))
            for path, tensor in {**inputs, node.path: value}.items()
            if tensor is not None
        }
        found = check_equation(model, facts, node.path, captured[node.path], captured)
        compared = Compared(f"positions {BEFORE} to {BEFORE + COMPUTED - 1}", found)
        yield _summed(node, subject, "its equation holds at the model's own configuration", [compared])


def _shape(model: Model, path: str) -> tuple[str, ...]:
    node = model.graph[path].node
    assert isinstance(node, Tensor | Parameter)
    return node.shape


def _layers(model: Model, node: Resolved) -> Iterable[int | None]:
    if not node.in_blocks:
        return [None]
    return [layer for layer in range(model.architecture.sizes["layers"]) if node.exists_in(layer)]


def _result(node: Resolved, found: Live, compared: list[Compared]) -> Result:
    what = f"its equation holds in prefill, decode and full sequence of {PROMPT!r}"
    return _summed(node, found.subject, what, compared)


def _summed(node: Resolved, subject: str, what: str, compared: list[Compared]) -> Result:
    """The worst of all comparisons of a node."""
    failed = [one for one in compared if one.check.ok is False]
    undone = [one for one in compared if one.check.ok is None]
    worst = max(compared, key=lambda one: one.badness)
    wrong = [
        f"{one.where}: row {list(one.check.worst_at or [])} is {_number(one.check.worst_row)} of its norm away, "
        f"{_number(one.check.tolerance)} is allowed. {one.check.why}".strip()
        for one in sorted(failed, key=lambda one: -one.badness)[:2]
    ]
    wrong += [f"{one.where}: it could not be evaluated. {one.check.why}" for one in undone[:1]]
    if len(failed) > 2:
        wrong.append(f"And in {len(failed) - 2} more.")
    numbers: dict[str, int | float | str] = {
        "comparisons": len(compared),
        "rows": sum(one.check.rows_checked for one in compared),
        "worst_row": worst.check.worst_row if worst.check.worst_row is not None else "not finite",
        "tolerance": worst.check.tolerance or 0.0,
        "worst_at": worst.where,
        "max_abs_error": max((one.check.max_abs_error or 0.0 for one in compared), default=0.0),
    }
    return Result(
        kind=KIND,
        status="failed" if wrong else "passed",
        what=what,
        subject=subject,
        node=node.path,
        detail=" ".join(wrong),
        hint="Compare the operation's TeX and reference with the cited lines." if wrong else "",
        numbers=numbers,
    )


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2g}"
