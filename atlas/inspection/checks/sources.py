"""Sources: every cited file is the pinned one, every anchor leads to one place, and what is cited there is there.

Looks at files only: nothing is run. What stands in a file that no package carries is pending until it is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator

from atlas.catalog import Model
from atlas.errors import AtlasError, SourceMismatch, SourceUnavailable
from atlas.graph.anchors import Anchor
from atlas.graph.evidence import Evidence, SourceRef
from atlas.graph.nodes import Operation, Parameter, Tensor
from atlas.graph.resolve import Resolved
from atlas.inspection.checks import Subject
from atlas.inspection.checks.result import Kind, Result, Status
from atlas.models.entry import CitedConfiguration
from atlas.provenance.citations import locate
from atlas.provenance.resolution import Module
from atlas.provenance.store import SourceStore
from atlas.provenance.verification import definitions, same_syntax, verify_file

KIND: Kind = "sources"
ORDER = 10


def check(subject: Subject) -> Iterator[Result]:
    """All results for one model."""
    model = subject.model
    yield from _files(model)
    yield from _configuration(model)
    for node in model.graph.nodes.values():
        yield from _places(model, node)
        for evidence in node.node.evidence:
            yield _evidence(model, evidence, node.path)
        yield from _computed_there(model, node)
    for evidence in model.entry.errata:
        yield _evidence(model, evidence, "")
    yield from _same_code(model)


def cited_files(model: Model) -> tuple[SourceRef, ...]:
    """Every file that a model cites, its reference code first."""
    found = {model.architecture.reference.file: None}
    stated = model.entry.configuration
    if isinstance(stated, CitedConfiguration):
        found[stated.file] = None
    pieces = [*model.entry.errata, *(e for node in model.graph.nodes.values() for e in node.node.evidence)]
    found.update(dict.fromkeys(piece.file for piece in pieces))
    return tuple(found)


def _files(model: Model) -> Iterator[Result]:
    for ref in cited_files(model):
        verdict = verify_file(model.store, *model.store.locks.locked(ref))
        status: Status = "passed" if verdict.status == "verified" else verdict.status
        yield Result(
            kind=KIND,
            status=status,
            what="it is the pinned file, and the lines that its lock keeps are there",
            subject=str(ref),
            detail=verdict.detail,
            hint=verdict.hint,
            numbers={"sha256": verdict.locked.sha256, "origin": verdict.origin, "kept_lines": verdict.anchors},
        )


def _configuration(model: Model) -> Iterator[Result]:
    """A cited configuration was read from its lines when the model was resolved; that its lines print is left."""
    stated = model.entry.configuration
    if not isinstance(stated, CitedConfiguration):
        return
    what, subject = "the configuration is read from the lines that are shown", str(stated.file)
    try:
        shown, values = model.configuration.lines, model.store.read(stated.file).module.resolve(stated.values).lines
    except SourceUnavailable as error:
        yield _missing(model, stated.file, what, error)
        return
    except AtlasError as error:
        yield _broken(what, subject, error)
        return
    # Of a class, the fields that have the numbers are shown, without what stands around them.
    inside = any(
        (first <= values[0] and values[1] <= last) or (values[0] <= first and last <= values[1])
        for first, last in shown
    )
    yield Result(
        kind=KIND,
        status="passed" if inside else "failed",
        what=what,
        subject=subject,
        detail="" if inside else f"The values stand at {_lines(values)}, which is not shown.",
        numbers={"lines": _lines(*shown), "values": len(model.config)},
    )


def _places(model: Model, node: Resolved) -> Iterator[Result]:
    """Each place of a node in the code that runs: a hook must be an expression that an instruction computes."""
    declared = node.node
    anchors: list[tuple[Anchor, bool]] = []
    if isinstance(declared, Tensor):
        anchors.append((declared.hook, True))
    elif isinstance(declared, Operation) and declared.place is not None:
        anchors.append((declared.place, False))
    elif isinstance(declared, Parameter) and declared.built is not None:
        anchors.append((declared.built, False))
    for anchor, hooked in anchors:
        what = f"{anchor} leads to one {'expression' if hooked else 'place'}"
        subject = str(model.architecture.reference.file)
        try:
            module = model.reference_module
            place = module.watchable(anchor) if hooked else module.resolve(anchor)
            if anchor.within is not None:
                module.watchable(anchor.within)
        except AtlasError as error:
            yield _broken(what, subject, error, node.path)
        else:
            numbers = {"lines": _lines(place.lines), "code": " ".join(place.text.split())}
            yield Result(kind=KIND, status="passed", what=what, subject=subject, node=node.path, numbers=numbers)


def _evidence(model: Model, evidence: Evidence, node: str) -> Result:
    """All anchors of a piece of evidence, one by one."""
    what, subject = f"{evidence.id}: {evidence.claim}", str(evidence.file)
    lock, locked = model.store.locks.locked(evidence.file)
    module, missing = _module(model.store, evidence.file)
    try:
        lines = [locate(anchor, module, lock, locked) for anchor in evidence.anchors]
    except AtlasError as error:
        return _broken(what, subject, error, node)
    numbers = {"anchors": len(lines), "lines": _lines(*lines), "kind": evidence.kind}
    status: Status = "passed" if missing is None else "pending" if lock.carrier is None else "failed"
    return Result(
        kind=KIND,
        status=status,
        what=what,
        subject=subject,
        node=node,
        detail="" if missing is None else missing.detail,
        hint="" if missing is None else missing.hint,
        numbers=numbers,
    )


def _computed_there(model: Model, node: Resolved) -> Iterator[Result]:
    """Direct evidence claims that its lines compute the node: then they hold the node's expression."""
    file = model.architecture.reference.file
    direct = [e for e in node.node.evidence if e.kind == "direct" and e.file == file]
    if not direct or not isinstance(node.node, Tensor | Operation):
        return
    what = "the lines of direct evidence hold the expression that computes the node"
    try:
        place = model.place(node.path)
        module = model.reference_module
        cited = [module.resolve(anchor).lines for evidence in direct for anchor in evidence.anchors]
    except AtlasError as error:
        yield _broken(what, str(file), error, node.path)
        return
    if place is None:
        return
    held = any(first <= place.lines[0] and place.lines[1] <= last for first, last in cited)
    yield Result(
        kind=KIND,
        status="passed" if held else "failed",
        what=what,
        subject=str(file),
        node=node.path,
        detail="" if held else f"It stands at {_lines(place.lines)}, the evidence cites {_lines(*cited)}.",
        hint="" if held else "Cite the expression itself, or call the evidence contextual.",
        numbers={"place": _lines(place.lines), "cited": _lines(*cited)},
    )


def _same_code(model: Model) -> Iterator[Result]:
    """Where another version of the code than the one that runs is cited: is the cited code the same?"""
    running = model.architecture.reference.file
    anchors: dict[SourceRef, list[Anchor]] = {}
    for node in model.graph.nodes.values():
        for evidence in node.node.evidence:
            if evidence.file.source != running.source:
                anchors.setdefault(evidence.file, []).extend(evidence.anchors)
    for ref, cited in anchors.items():
        what = f"what is cited in {ref} is the code that runs"
        try:
            earlier, ran = model.store.read(ref), model.store.read(running)
        except SourceUnavailable as error:
            yield _missing(model, ref, what, error)
            continue
        except SourceMismatch as error:
            yield _broken(what, str(ref), error)
            continue
        for name, same in same_syntax(earlier, ran, definitions(cited)).items():
            yield Result(
                kind=KIND,
                status="passed" if same else "noted",
                what=f"{name} has the same syntax tree in {ref} and in {running}",
                subject=str(ref),
                detail="" if same else f"{name} differs: its lines are cited as they stand, and other code was run.",
            )


def _module(store: SourceStore, ref: SourceRef) -> tuple[Module | None, AtlasError | None]:
    try:
        return store.read(ref).module, None
    except (SourceUnavailable, SourceMismatch) as error:
        return None, error


def _missing(model: Model, ref: SourceRef, what: str, error: SourceUnavailable) -> Result:
    """Pending where no package carries the file; where one does, it should be here."""
    status: Status = "pending" if model.store.locks[ref.source].carrier is None else "failed"
    return Result(kind=KIND, status=status, what=what, subject=str(ref), detail=error.detail, hint=error.hint)


def _broken(what: str, subject: str, error: AtlasError, node: str = "") -> Result:
    return Result(
        kind=KIND, status="failed", what=what, subject=subject, node=node, detail=error.detail, hint=error.hint
    )


def _lines(*ranges: tuple[int, int]) -> str:
    """`121–127, 189`"""
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in sorted(set(ranges)))
