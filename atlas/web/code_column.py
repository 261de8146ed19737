"""A node's evidence as a page shows it: excerpts of pinned files with their nodes marked, and one article a source.

Owns which lines are shown once under which heading. Knows nothing of templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Literal

from markupsafe import Markup

from atlas.catalog import Model
from atlas.errors import DeclarationError
from atlas.graph.evidence import Evidence
from atlas.provenance.citations import Citation, Lines, Piece
from atlas.provenance.locks import Lock
from atlas.provenance.resolution import Module, Span
from atlas.render.code import CodeSpan, excerpt_html
from atlas.web.pieces import CodeColumn, CodeFile, Excerpt, LineRange, Source
from atlas.web.prose import inline

Role = Literal["direct", "contextual"]


def code_column(model: Model, path: str) -> CodeColumn:
    """Excerpts and sources of a node ('' is the model: its forward pass and its configuration).

    Raises `AnchorError` for evidence that leads nowhere.
    """
    evidence = model.evidence(path) if path else _of_model(model)
    files = tuple(_files(model, path, evidence))
    heading = " · ".join(f"{file.name} {', '.join(part.text for part in file.ranges)}" for file in files)
    declared = {piece.id: piece for piece in (model.graph[path].node.evidence if path else ())}
    return CodeColumn(heading, files, tuple(source(model, piece, declared.get(piece.id)) for piece in evidence))


def _of_model(model: Model) -> tuple[Citation, ...]:
    """What stands for the whole: the evidence of the top components that cites the model's own structure."""
    found: dict[str, Citation] = {}
    for node in model.graph.children(""):
        if node.kind == "component":
            found.update((piece.id, piece) for piece in model.evidence(node.path) if piece.kind != "direct")
    return (*(piece for key, piece in found.items() if key in ("model", "model-llama3")), model.configuration)


def source(model: Model, piece: Citation, declared: Evidence | None = None) -> Source:
    """One piece of evidence, with its excerpt as it stands."""
    lock = _lock(model, piece)
    excerpts = tuple(_excerpts(piece.excerpt, lock, piece.path, ()))
    return Source(
        id=piece.id,
        kind=piece.kind,
        claim=inline(piece.claim),
        repository=piece.repository,
        path=piece.path,
        revision=piece.short_revision,
        href=piece.url,
        ranges=tuple(LineRange(range_text(lines), link) for lines, link in zip(piece.lines, piece.links, strict=True)),
        license=piece.license,
        license_href=piece.license_url,
        sha256=piece.sha256,
        missing=_missing(piece, lock),
        note=_same_syntax(model, declared) if declared is not None and piece.available else "",
        excerpts=excerpts,
    )


def _missing(piece: Citation, lock: Lock | None) -> str:
    if piece.available:
        return ""
    if "sha256" in piece.missing:
        return piece.missing
    return f"Its lines are known from the lock; the code is shown after: atlas sources sync {lock.id if lock else ''}"


def _same_syntax(model: Model, declared: Evidence) -> str:
    """Whether what is cited in another version of the code has the syntax of what ran here."""
    ran = model.architecture.reference.file
    if declared.file.source == ran.source or not model.store.available(ran):  # the same code, which ran with it
        return ""
    here, there = model.reference_module, model.store.read(declared.file).module
    same: dict[bool, list[str]] = {True: [], False: []}
    for place in dict.fromkeys(anchor.place for anchor in declared.anchors if anchor.place):
        same[here.same_syntax(there, place)].append(place)
    said = []
    if same[True]:
        said.append(f"{', '.join(same[True])}: the same syntax tree as what ran here")
    if same[False]:
        said.append(f"{', '.join(same[False])}: differs from what ran here")
    return "; ".join(said)


def range_text(lines: Lines) -> str:
    """`139–145`, or `202`."""
    return f"{lines[0]}" if lines[0] == lines[1] else f"{lines[0]}–{lines[1]}"


def _lock(model: Model, piece: Citation) -> Lock | None:
    """The lock that pins what is cited: that of the code that runs first, since several may pin one revision."""
    locks = model.store.locks
    ran = locks[model.architecture.reference.file.source]
    known = [ran, *locks] if any(file.path == piece.path for file in ran.files) else [*locks]
    return next(
        (lock for lock in known if (lock.repository, lock.revision) == (piece.repository, piece.revision)), None
    )


# --- excerpts


@dataclass(frozen=True)
class _Run:
    """Lines of a file that stand together, and the strongest evidence that cites some of them."""

    lines: Lines
    role: Role


def _files(model: Model, path: str, evidence: Sequence[Citation]) -> Iterable[CodeFile]:
    """Each cited file that is here: what computes the node first, then what surrounds it, the configuration last."""
    cited: dict[tuple[str, str], list[Citation]] = {}
    for piece in evidence:
        if piece.available and piece.lines:
            cited.setdefault((piece.revision, piece.path), []).append(piece)
    found: list[CodeFile] = []
    for pieces in cited.values():
        lock = _lock(model, pieces[0])
        if lock is None:
            raise DeclarationError(f"{pieces[0].repository} is cited without a lock.", "Add it to sources/.")
        runs = sorted(_runs(pieces), key=lambda run: (run.role != "direct", run.lines))
        texts = {line: text for piece in pieces for line, text in _lines(piece)}
        configuration = any(piece.id == "config" for piece in pieces)
        for role, group in groupby(runs, key=lambda run: run.role):
            shown = [
                Piece(start=a, end=b, code="\n".join(texts[line] for line in range(a, b + 1)))
                for a, b in (run.lines for run in group)
            ]
            spans = _spans(model, path) if _ran(model, lock, pieces[0].path) else ()
            ranges = tuple(
                LineRange(range_text((p.start, p.end)), lock.link(pieces[0].path, (p.start, p.end))) for p in shown
            )
            found.append(
                CodeFile(
                    name=pieces[0].path.rsplit("/", 1)[-1],
                    repository=lock.repository,
                    path=pieces[0].path,
                    revision=lock.short_revision,
                    href=ranges[0].href,
                    ranges=ranges,
                    excerpts=tuple(_excerpts(shown, lock, pieces[0].path, spans, path)),
                    role="configuration" if configuration else role,
                )
            )
    order = {"direct": 0, "contextual": 1, "configuration": 2}
    return sorted(found, key=lambda file: order[file.role])


def _ran(model: Model, lock: Lock, path: str) -> bool:
    ran = model.architecture.reference.file
    return (lock.id, path) == (ran.source, ran.path)


def _lines(piece: Citation) -> Iterable[tuple[int, str]]:
    for part in piece.excerpt:
        yield from zip(range(part.start, part.end + 1), part.code.split("\n"), strict=True)


def _runs(pieces: Iterable[Citation]) -> list[_Run]:
    """All cited ranges of one file, overlapping and touching ones joined; one direct line makes a run direct."""
    ranges = sorted((lines, piece.kind) for piece in pieces for lines in piece.lines)
    runs: list[_Run] = []
    for (first, last), kind in ranges:
        role: Role = "direct" if kind == "direct" else "contextual"
        if runs and first <= runs[-1].lines[1] + 1:
            before = runs[-1]
            runs[-1] = _Run(
                (before.lines[0], max(last, before.lines[1])), "direct" if "direct" in (role, before.role) else role
            )
        else:
            runs.append(_Run((first, last), role))
    return runs


def _excerpts(
    pieces: Sequence[Piece], lock: Lock | None, file: str, spans: Sequence[CodeSpan], current: str = ""
) -> Iterable[Excerpt]:
    before: int | None = None
    for piece in pieces:
        inside = [span for span in spans if span.first_line <= piece.end and span.last_line >= piece.start]
        link = None if lock is None else (lambda line: lock.link(file, (line, line)))
        html = excerpt_html(piece.code, piece.start, spans=inside, line_link=link)
        if current:
            html = html.replace(f'data-node="{current}"', f'data-node="{current}" data-this=""')
        omitted = ""
        if before is not None:
            omitted = (
                f"line{'s' if before + 2 < piece.start else ''} {range_text((before + 1, piece.start - 1))} omitted"
            )
        before = piece.end
        yield Excerpt(Markup(html), omitted)


@lru_cache(maxsize=256)
def _places(model: Model) -> tuple[tuple[str, Span], ...]:
    """Where the reference code computes each value and each step."""
    found: list[tuple[str, Span]] = []
    for node in model.graph.nodes.values():
        place = None if node.kind in ("component", "parameter") else model.place(node.path)
        if place is not None and place.span is not None:
            found.append((node.path, place.span))
    return tuple(found)


@lru_cache(maxsize=64)
def _expressions(module: Module) -> tuple[tuple[Span, str], ...]:
    """Every expression outside constructors that an instruction computes, with its name."""
    return tuple(
        (place.span, place.expression)
        for function in module.functions()
        if not function.endswith("__init__")
        for place in module.expressions(function)
        if place.span is not None
    )


def _spans(model: Model, path: str) -> tuple[CodeSpan, ...]:
    """The marks of the reference code: every expression, and the node that it computes. Of several nodes at one place,
    the nearest to the page's own."""
    nearest: dict[Span, str] = {}
    for node, span in _places(model):
        known = nearest.get(span)
        if known is None or _nearness(model, node, path) > _nearness(model, known, path):
            nearest[span] = node
    expressions = dict(_expressions(model.reference_module))
    return tuple(
        CodeSpan(a, c, b, d, node=nearest.get((a, b, c, d), ""), expression=expressions.get((a, b, c, d), ""))
        for a, b, c, d in {**expressions, **nearest}
    )


def _nearness(model: Model, candidate: str, path: str) -> tuple[bool, int, bool]:
    """The node itself; then how much of the path is shared; then a value rather than the step that makes it."""
    shared = 0
    for a, b in zip(candidate.split("/"), path.split("/"), strict=False):
        if a != b:
            break
        shared += 1
    return candidate == path, shared, model.graph[candidate].kind != "operation"
