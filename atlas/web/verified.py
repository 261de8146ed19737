"""What was checked, as a page shows it: a mark for each kind of check, and behind it what was compared, with numbers.

Reads the ledger; the source alone is looked at as the page is made. A mark names its subject: this model's own code,
or weights that stand in. What failed is as plain as what holds, and what was not checked says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from atlas.catalog import Model
from atlas.graph.nodes import Component
from atlas.inspection.checks.result import KINDS, Kind, Result, Status
from atlas.inspection.ledger import Ledger
from atlas.web.model_view import ModelView
from atlas.web.pieces import CheckMark, NodeRef, Proof, ProofLine, Verification

TITLES: dict[Kind, str] = {
    "sources": "Sources",
    "shapes": "Shape",
    "edges": "Edges",
    "equations": "Equation",
    "consistency": "Consistency",
    "checkpoint": "Checkpoint",
}
MARKED: dict[Kind, str] = {"shapes": "shape", "edges": "edges", "equations": "equation"}
"""The kinds that have a mark of their own; the source's is made from the files as they are now."""

UNVERIFIED = (
    "Checkpoint, tokenizer and the values of tensors of this model are not verified here: its weights are not on this "
    "machine."
)
ORDER: tuple[Status, ...] = ("failed", "pending", "noted", "passed")
SHOWN = 12
"""Lines of a kind that a page of many nodes shows; what failed comes first."""


def source_marks(model: Model) -> tuple[CheckMark, ...]:
    """The reference code against its lock, looked at now."""
    ran = model.architecture.reference.file
    lock, locked = model.store.locks.locked(ran)
    found = model.store.available(ran)
    name = locked.path.rsplit("/", 1)[-1]
    text = f"source {name} {locked.sha256[:8]}…" if found else f"source {name} is not the pinned one, or not here"
    title = f"sha256 {locked.sha256}, as pinned at {lock.short_revision}"
    return (CheckMark("source", found, text, title, "#sources"),)


def verification(ledger: Ledger, view: ModelView, path: str, live: Model | None) -> Verification:
    """Everything about a node; of a component or a model ('') everything in it. `live` is the model whose values it
    shows, if it shows any.
    """
    model = view.model
    many = not path or isinstance(view.graph[path].node, Component)
    record = ledger.read(model.id)
    marks = list(source_marks(model))
    proofs: list[Proof] = []
    if record is not None:
        results = [one for one in record.report.results if not path or _about(one, path, many)]
        for kind in KINDS:
            found = [one for one in results if one.kind == kind]
            if found:
                proofs.append(_proof(view, kind, found, many))
                if kind in MARKED:
                    marks.append(_mark(kind, found, many))
    else:
        marks += [CheckMark(MARKED[kind], None, f"{MARKED[kind]} not checked yet") for kind in MARKED]
    if live is not None:
        title = "Each live tensor's shape, equation and source are checked as it is shown"
        marks.append(CheckMark("live", None, "live values", title, "#live"))
    return Verification(
        marks=tuple(marks),
        proofs=tuple(proofs),
        checked="" if record is None else f"{record.checked:%d %b %Y, %H:%M} UTC".lstrip("0"),
        command=f"atlas check {model.id}",
        unverified="" if live is not None and live.id == model.id else UNVERIFIED,
    )


def _about(result: Result, path: str, many: bool) -> bool:
    return result.node == path or (many and result.node.startswith(f"{path}/"))


def _mark(kind: Kind, results: Sequence[Result], many: bool) -> CheckMark:
    failed = [one for one in results if one.status == "failed"]
    passed = [one for one in results if one.status == "passed"]
    subjects = list(dict.fromkeys(one.subject for one in results))
    name, ok = MARKED[kind], False if failed else True if passed else None
    if ok is None:
        text = f"{name} not checked"
    elif not many:
        text = f"{name} fails" if failed else name
    elif failed:
        text = f"{len(failed)} of {len(failed) + len(passed)} {kind} fail"
    else:
        text = f"{len(passed)} {kind}"
    stands_in = [subject for subject in subjects if "stand in" in subject]
    if stands_in and ok is not None:
        text += f" on {stands_in[0].split(',')[0].removeprefix('the ')}"
    return CheckMark(name, ok, text, "; ".join(subjects), f"#proof-{kind}")


def _proof(view: ModelView, kind: Kind, results: Sequence[Result], many: bool) -> Proof:
    counts = {status: sum(one.status == status for one in results) for status in ORDER}
    ordered = sorted(results, key=lambda one: ORDER.index(one.status))
    shown = ordered[: max(SHOWN, counts["failed"])] if many else ordered
    said = ", ".join(_counted(status, counts[status]) for status in ORDER if counts[status])
    ok = False if counts["failed"] else True if counts["passed"] else None
    title = TITLES[kind] if not many or TITLES[kind].endswith("s") else f"{TITLES[kind]}s"
    if kind in ("consistency", "checkpoint"):
        title = TITLES[kind]
    return Proof(
        id=kind,
        ok=ok,
        title=title,
        text=said,
        lines=tuple(_line(view, one, many) for one in shown),
        more=len(results) - len(shown),
    )


def _counted(status: Status, count: int) -> str:
    words = {"passed": "holds" if count == 1 else "hold", "failed": "fails" if count == 1 else "fail"}
    return f"{count:,} {words.get(status, 'could not be checked' if status == 'pending' else 'noted')}"


def _line(view: ModelView, result: Result, many: bool) -> ProofLine:
    ref: NodeRef | None = None
    if many and result.node in view.graph.nodes:
        ref = view.ref(result.node, "full")
    return ProofLine(
        status=result.status,
        node=ref,
        what=result.what,
        subject=result.subject,
        detail=f"{result.detail} {result.hint}".strip(),
        numbers=tuple((name.replace("_", " "), _number(value)) for name, value in result.numbers.items()),
    )


def _number(value: float | str) -> str:
    if isinstance(value, float):
        return f"{value:.2g}"
    return f"{value:,}" if isinstance(value, int) else value
