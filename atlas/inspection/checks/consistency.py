"""Consistency: what two ways of computing the same thing must agree on, row by row, with real weights.

A decode step computes what the full sequence computes at its position; the cache after some steps is that of one
prefill of the same tokens; and an independent implementation gives the same logits. Rounding differs, so none is
exact. A model without weights here is not spoken for by another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from atlas.graph.nodes import Cache, Tensor
from atlas.graph.resolve import Resolved
from atlas.inspection.arrays import Array, as_array
from atlas.inspection.checks import Subject
from atlas.inspection.checks._independent import NAME, applies, independent_logits
from atlas.inspection.checks._live import Live, Taken, Witness, live
from atlas.inspection.checks.result import Kind, Result
from atlas.inspection.compare import Framed, align, row_differences
from atlas.inspection.evaluate import row_errors
from atlas.inspection.frames import ATTENDED
from atlas.inspection.frames import Pass as Frame
from atlas.runtime.captures import Captured
from atlas.runtime.references.base import Pass

KIND: Kind = "consistency"
ORDER = 50
TOLERANCE = 3e-5
"""Of a row's norm, in float32: rounding adds up over the layers. Wrong code, cache or position is wrong by far more."""
TOLERANCES = {torch.float32: TOLERANCE, torch.bfloat16: 0.15}


def check(subject: Subject) -> Iterator[Result]:
    """Results for a model whose weights are here; else one that says what is missing."""
    found = live(subject)
    if found is None or found.stands_in:
        yield Result(
            kind=KIND,
            status="pending",
            what="decode, cache and an independent implementation agree with it",
            subject=subject.model.name,
            detail="Its weights are not here.",
            hint=f"Give them: atlas check {subject.model.id} --checkpoint {subject.model.id}=PATH",
        )
        return
    witness = found.witness
    subject.progress(f"{witness.model.name}: decode against full sequence", None)
    for node in witness.model.graph.nodes.values():
        if isinstance(node.node, Tensor) and {"positions", "queries"} & set(node.node.shape):
            yield from _decode_is_full(found, node)
    subject.progress(f"{witness.model.name}: the cache against one prefill", None)
    yield from _cache_is_prefill(found)
    subject.progress(f"{witness.model.name}: logits against {NAME}", None)
    yield from _logits_agree(found)


def _decode_is_full(found: Live, node: Resolved) -> Iterator[Result]:
    witness, worst, where, count = found.witness, 0.0, "", 0
    whole = witness.passes[-1]
    for taken in witness.passes:
        if taken.view != "decode":
            continue
        for layer in _layers(witness, node):
            gap = _gap(witness, node, layer, taken, whole)
            if gap is not None:
                count += 1
                if gap > worst or not where:
                    worst, where = gap, taken.words if layer is None else f"{taken.words}, layer {layer}"
    if count:
        what = "a decode step gives what the full sequence gives at its position"
        yield _result(found, what, node.path, worst, where, count)


def _cache_is_prefill(found: Live) -> Iterator[Result]:
    witness = found.witness
    caches = [node for node in witness.model.graph.nodes.values() if isinstance(node.node, Cache)]
    if not caches:
        return
    runner, tokens = witness.runner, witness.tokens
    work = Pass(tokens, 0)
    sites = runner.sites([node.path for node in caches])
    logits, recording = runner.capture(work, runner.memory(len(tokens)), sites)
    once = Taken("full", None, work, logits, recording)
    last = [taken for taken in witness.passes if taken.view == "decode"][-1]
    for node in caches:
        gaps = {layer: _gap(witness, node, layer, last, once) for layer in _layers(witness, node)}
        known = {layer: gap for layer, gap in gaps.items() if gap is not None}
        if not known:
            continue
        layer = max(known, key=lambda at: known[at])
        what = f"after {last.step} decode steps it is that of one prefill of the same tokens"
        yield _result(found, what, node.path, known[layer], f"layer {layer}", len(known))


def _logits_agree(found: Live) -> Iterator[Result]:
    witness = found.witness
    why = applies(witness.runner)
    what = f"logits agree with {NAME} on the same weights"
    if why:
        yield Result(kind=KIND, status="noted", what=what, subject=found.subject, node="unembedding/logits", detail=why)
        return
    theirs = as_array(independent_logits(witness.runner, witness.tokens))
    worst, where = 0.0, ""
    for taken in witness.passes:
        rows = theirs[:, taken.work.start : taken.work.stop]
        gap = float(row_errors(as_array(taken.logits), rows)[0].max())
        if gap > worst or not where:
            worst, where = gap, taken.words
    yield _result(found, what, "unembedding/logits", worst, where, len(witness.passes))


def _gap(witness: Witness, node: Resolved, layer: int | None, one: Taken, other: Taken) -> float | None:
    """The worst row; None where one of the two passes does not compute the node."""
    values = [witness.value(taken, node.path, layer) for taken in (one, other)]
    if values[0] is None or values[1] is None:
        return None
    if values[0].tensor.dtype is torch.int64:
        axis = values[0].axes.index("positions")
        whole = values[1].tensor.narrow(axis, one.work.start, one.work.stop - one.work.start)
        return 0.0 if torch.equal(values[0].tensor, whole) else float("inf")
    framed = [
        _framed(value, node, witness.facts(taken, layer))
        for value, taken in zip(values, (one, other), strict=True)
        if value is not None
    ]
    worst = row_differences(align(framed[0], framed[1])).worst
    return float("inf") if worst is None else worst


def _in_rows(array: Array, axes: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
    """With positions not last: a row is what one position has, and a decode step has one position."""
    if axes[-1] not in ("positions", "queries") or len(axes) < 2:
        return array, axes
    return np.swapaxes(array, -1, -2), (*axes[:-2], axes[-1], axes[-2])


def _framed(value: Captured, node: Resolved, facts: Frame) -> Framed:
    """A value in its pass. What is computed outside the blocks for those with a window (a mask) has that window."""
    array, axes = _in_rows(as_array(value.tensor), value.axes)
    for extent in node.shape["full"] or ():
        if extent.window is not None:
            axes = tuple(ATTENDED if name == extent.axis else name for name in axes)
            facts = replace(facts, window=extent.window)
    return Framed(array, axes, facts)


def _layers(witness: Witness, node: Resolved) -> list[int | None]:
    if not node.in_blocks:
        return [None]
    return [layer for layer in range(witness.runner.n_layers) if node.exists_in(layer)]


def _result(found: Live, what: str, node: str, worst: float, where: str, count: int) -> Result:
    allowed = TOLERANCES[found.witness.runner.checkpoint.placement.dtype]
    good = worst <= allowed
    return Result(
        kind=KIND,
        status="passed" if good else "failed",
        what=what,
        subject=found.subject,
        node=node,
        detail="" if good else f"{where}: a row differs by {worst:.2g} of its norm, {allowed:g} is allowed.",
        hint="" if good else "Look at the first node that differs in order of data flow.",
        numbers={"comparisons": count, "worst_row": worst if worst < float("inf") else "not finite", "worst_at": where}
        | {"tolerance": allowed},
    )
