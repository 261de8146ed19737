"""The ledger: what the last check of each model found, kept in the data directory, for pages to show.

One file a model, written whole. A record says when it was made and of what: if the code, the locks, the libraries or
the weights have changed since, it speaks of something else and is not shown. Nothing here computes or loads torch.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Hashable
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path

from pydantic import ValidationError

import atlas
from atlas.catalog import Catalog
from atlas.graph.axes import Frozen
from atlas.inspection.checks.result import ModelReport
from atlas.provenance.locks import Lock
from atlas.runtime.files import file_aside, storage_errors
from atlas.settings import Settings

log = logging.getLogger(__name__)
ROOMS = ("architectures", "models", "graph", "provenance", "runtime", "inspection")
LIBRARIES = ("torch", "transformers", "numpy")


class Record(Frozen):
    """A report, when it was made, and a hash of all that its results depend on."""

    checked: datetime
    basis: str
    report: ModelReport


class Ledger:
    """The records of one data directory."""

    def __init__(self, settings: Settings, catalog: Catalog) -> None:
        self.directory = settings.data_dir / "checks"
        self.catalog = catalog
        self._numbers = (settings.dtype, settings.device)
        self._weights = {choice.model: choice.path for choice in settings.checkpoint}
        self._read: dict[str, tuple[Hashable, Record | None]] = {}

    def write(self, report: ModelReport, checked: datetime) -> None:
        """Keep a report. Raises `StorageError`."""
        record = Record(checked=checked, basis=self.basis(report.model), report=report)
        with storage_errors("keep what was checked", self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            with file_aside(self._path(report.model)) as part:
                part.write_text(record.model_dump_json(), "utf-8")

    def read(self, model: str) -> Record | None:
        """The record of a model, if there is one that speaks of what is here now."""
        path = self._path(model)
        stamp = _stamp(path)
        known = self._read.get(model)
        if known is None or known[0] != stamp:
            known = self._read[model] = (stamp, _parsed(path) if stamp is not None else None)
        record = known[1]
        return record if record is not None and record.basis == self.basis(model) else None

    def missing(self) -> list[str]:
        """The models of the catalogue that have no record."""
        return [entry.id for entry in self.catalog if self.read(entry.id) is None]

    def basis(self, model: str) -> str:
        """A hash of what the results for a model depend on: code, locks, carriers, libraries and weights."""
        digest = hashlib.sha256(_code().encode())
        for lock in self.catalog.store.locks:
            digest.update(f"{lock!r}{_carried(lock)}".encode())
        digest.update(repr((self.catalog.entry(model), self._numbers)).encode())
        for path in {self._weights.get(model), self._weights.get(self.catalog.default.id)}:
            digest.update(repr((str(path), None if path is None else _stamp(path))).encode())
        return digest.hexdigest()[:32]

    def _path(self, model: str) -> Path:
        return self.directory / f"{hashlib.sha256(model.encode()).hexdigest()[:16]}.json"


@cache
def _code() -> str:
    """A hash of everything that declares and checks, and of the libraries that run it."""
    digest = hashlib.sha256()
    root = Path(atlas.__file__).parent
    for path in sorted(path for room in ROOMS for path in (root / room).rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    digest.update((root / "catalog.py").read_bytes())
    for library in LIBRARIES:
        digest.update(_version(library).encode())
    return digest.hexdigest()


def _carried(lock: Lock) -> str:
    return "" if lock.carrier is None else _version(lock.carrier.distribution)


@cache
def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _parsed(path: Path) -> Record | None:
    try:
        return Record.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        log.warning("%s is no record of a check, and is left aside: %s", path, error)
        return None
