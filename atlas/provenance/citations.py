"""From evidence to what a page prints: pinned lines, excerpt pieces, links and licence."""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping

from atlas.errors import AnchorError, SourceMismatch, SourceUnavailable
from atlas.graph.anchors import Anchor
from atlas.graph.axes import Frozen
from atlas.graph.evidence import Evidence, EvidenceKind, SourceRef
from atlas.provenance.locks import Lock, LockedFile
from atlas.provenance.resolution import Module
from atlas.provenance.store import SourceStore

Lines = tuple[int, int]
Number = int | float | bool | None
_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}


class Piece(Frozen):
    """A run of lines of an excerpt; `start` and `end` are both shown."""

    start: int
    end: int
    code: str


class Citation(Frozen):
    """A piece of evidence, resolved. `excerpt` is empty where no verified copy is here (`missing` says why)."""

    id: str
    kind: EvidenceKind
    claim: str
    repository: str
    revision: str
    path: str
    url: str
    sha256: str
    license: str
    license_url: str
    lines: tuple[Lines, ...]
    links: tuple[str, ...]
    available: bool
    missing: str = ""
    excerpt: tuple[Piece, ...] = ()

    @property
    def short_revision(self) -> str:
        return self.revision[:12]


def cite(evidence: Evidence, store: SourceStore) -> Citation:
    """Resolve one piece of evidence.

    Where the file is not here, the lines come from the lock. A lock keeps none of a file that a package carries: if
    that is gone or was edited, the citation has no lines and says so (`missing`). Raises `AnchorError` where neither
    knows lines that they should.
    """
    lock, locked = store.locks.locked(evidence.file)
    module, missing = _module(store, evidence.file)
    gone = module is None and lock.carrier is not None
    known = [anchor for anchor in evidence.anchors if not gone or str(anchor) in locked.lines]
    lines = _merged(locate(anchor, module, lock, locked) for anchor in known)
    excerpt = tuple(Piece(start=a, end=b, code=module.excerpt(a, b)) for a, b in lines) if module else ()
    return Citation(
        id=evidence.id,
        kind=evidence.kind,
        claim=evidence.claim,
        repository=lock.repository,
        revision=lock.revision,
        path=locked.path,
        url=lock.link(locked.path, lines[0] if lines else None),
        sha256=locked.sha256,
        license=lock.license,
        license_url=lock.license_url,
        lines=lines,
        links=tuple(lock.link(locked.path, pair) for pair in lines),
        available=module is not None,
        missing=missing,
        excerpt=excerpt,
    )


def locate(anchor: Anchor, module: Module | None, lock: Lock, locked: LockedFile) -> Lines:
    """The lines of an anchor: from the file where it is here, else from the lock.

    Raises `AnchorError` where the file and the lock disagree, or where neither has the anchor.
    """
    kept = locked.lines.get(str(anchor))
    if module is not None:
        found = module.resolve(anchor).lines
        if kept is not None and kept != found:
            raise AnchorError(
                f"{lock.id}:{locked.path}: {anchor} is at lines {found[0]}-{found[1]}, the lock says "
                f"{kept[0]}-{kept[1]}.",
                f"Compare the lock sources/{lock.id}.toml with the pinned file.",
            )
        return found
    if kept is None:
        raise AnchorError(
            f"{lock.id}:{locked.path} is not here, and its lock does not keep the lines of {anchor}.",
            f"Run: atlas sources sync {lock.id}",
        )
    return kept


def constants(ref: SourceRef, entry: Anchor, store: SourceStore) -> Mapping[str, int | float | bool | None]:
    """A dictionary of plain numbers as the source states it, names of module constants included.

    `entry` leads to a dict display. Raises `AnchorError` for a value that is no constant.
    """
    module = store.read(ref).module
    node = module.resolve(entry).node
    if not isinstance(node, ast.Dict):
        raise AnchorError(f"{entry} in {ref} is no dictionary.", "Anchor the dictionary of values.")
    named = {
        target.id: statement.value
        for statement in module.tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    values: dict[str, int | float | bool | None] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(value, ast.Name) and value.id in named:
            value = named[value.id]
        if not isinstance(key, ast.Constant) or not isinstance(value, ast.Constant):
            raise AnchorError(f"{ref}: {ast.unparse(value)} is no plain value.", "Anchor another dictionary.")
        literal = value.value
        if literal is not None and not isinstance(literal, bool | int | float):
            raise AnchorError(f"{ref}: {literal!r} is no number.", "Anchor another dictionary.")
        values[str(key.value)] = literal
    return values


def numbers(ref: SourceRef, entry: Anchor, store: SourceStore) -> Mapping[str, Number]:
    """The numbers that a class gives its fields, a call its keywords, or a dictionary its entries; others are left out.

    Sums and products of numbers are numbers. An entry of a dictionary in a class is named `field.entry`. Raises
    `AnchorError` where there are none.
    """
    node = store.read(ref).module.resolve(entry).node
    found: dict[str, Number] = {}
    for name, value in _named_values(node):
        for key, part in _named_values(value) if isinstance(value, ast.Dict) else (("", value),):
            with contextlib.suppress(ValueError):
                found[f"{name}.{key}" if key else name] = _number(part)
    if not found:
        raise AnchorError(f"{entry} in {ref} has no numbers.", "Anchor a class, a call or a dictionary that has.")
    return found


def _named_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.ClassDef):
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and statement.value is not None:
                yield ast.unparse(statement.target), statement.value
            elif isinstance(statement, ast.Assign):
                yield from ((ast.unparse(target), statement.value) for target in statement.targets)
    elif isinstance(node, ast.Call):
        yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield str(key.value), value


def _number(node: ast.expr) -> Number:
    """What a literal, or arithmetic of literals, is worth. Raises `ValueError` for anything else."""
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool | int | float)):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_operand(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_operand(node.left), _operand(node.right))
    raise ValueError(ast.unparse(node))


def _operand(node: ast.expr) -> int | float:
    value = _number(node)
    if value is None:
        raise ValueError("None takes no part in arithmetic")
    return value


def _module(store: SourceStore, ref: SourceRef) -> tuple[Module | None, str]:
    try:
        return store.read(ref).module, ""
    except (SourceUnavailable, SourceMismatch) as error:
        return None, str(error)


def _merged(ranges: Iterable[Lines]) -> tuple[Lines, ...]:
    """Sorted, with overlapping and touching ranges joined."""
    merged: list[Lines] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
