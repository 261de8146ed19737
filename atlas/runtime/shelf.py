"""All runs that can be asked for: those in memory, and those that the journal can bring back.

Owns which runs exist, their identity, and the memory that they may hold together. Belongs to the engine, which
holds its lock around every call.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator

from atlas.errors import AtlasError, Conflict
from atlas.runtime.journal import Entry, Journal
from atlas.runtime.machine import fingerprint
from atlas.runtime.references.base import ReferenceRunner
from atlas.runtime.runs import FINISHED, Run, RunRequest, run_id

REMEMBERED = 2000  # finished runs kept as objects; the journal has the others


class Shelf:
    """Runs by id. `runner_of` gives the runner of a model, or None where its weights are not here."""

    def __init__(self, journal: Journal, runner_of: Callable[[str], ReferenceRunner | None]) -> None:
        self.journal = journal
        self._runner_of = runner_of
        self._runs: OrderedDict[str, Run] = OrderedDict()

    def __iter__(self) -> Iterator[Run]:
        return iter(tuple(self._runs.values()))

    def find(self, identity: str) -> Run | None:
        """A run, from memory or from the journal. Raises `Conflict` for one of weights that are not here."""
        run = self._runs.get(identity)
        if run is None:
            entry = self.journal.find(identity)
            if entry is None:
                return None
            run = self._runs[identity] = self._revived(entry)
        self._runs.move_to_end(identity)
        run.used = time.monotonic()
        return run

    def new(self, identity: str, request: RunRequest, runner: ReferenceRunner) -> Run:
        """A new run in place of any of that id, written down before it is told of."""
        run = Run(identity, request, runner)
        self.journal.begin(
            Entry(
                id=identity,
                request=request.model_dump_json(),
                checkpoint=runner.checkpoint.identity,
                reference=reference_hash(runner),
                machine=fingerprint(),
                status=run.status,
                error="",
                prefill_seconds=0.0,
                decode_seconds=0.0,
            )
        )
        self._runs[identity] = run
        self._forget_the_oldest()
        return run

    def unfinished(self) -> list[Run]:
        """Runs that the last process left waiting or under way, and that can go on here; not those that do already."""
        revived = []
        for entry in self.journal.unfinished():
            if entry.id in self._runs:
                continue
            try:
                run = self._revived(entry)
            except Conflict:
                continue
            self._runs[entry.id] = run
            revived.append(run)
        return revived

    def forget(self, identity: str) -> None:
        """Remove a run for good."""
        self._runs.pop(identity, None)
        self.journal.forget(identity)

    def write_status(self, run: Run) -> None:
        """Write down what a run has come to."""
        error = "" if run.error is None else str(run.error)
        self.journal.status(run.id, run.status, error, run.prefill_seconds, run.decode_seconds)

    def keep_within(self, budget: int, spare: Container[Run]) -> None:
        """Let the runs that were used least recently give their memory up; `spare` are being worked on."""
        runs = sorted(self._runs.values(), key=lambda run: run.used)
        total = sum(run.nbytes for run in runs)
        for run in runs:
            if total <= budget:
                return
            if run in spare:
                continue
            total -= run.nbytes
            run.memory = run.full = None

    @property
    def nbytes(self) -> int:
        """What all runs hold together."""
        return sum(run.nbytes for run in self._runs.values())

    def _revived(self, entry: Entry) -> Run:
        request = RunRequest.model_validate_json(entry.request)
        runner = self._runner_of(request.model)
        if runner is None or (runner.checkpoint.identity, reference_hash(runner)) != (
            entry.checkpoint,
            entry.reference,
        ):
            raise Conflict(
                f"The run {entry.id} was made with other weights or other reference code of {request.model} "
                f"(sha256 {entry.checkpoint[:12]}, {entry.reference[:12]}), which are not here.",
                "Open those with --checkpoint, or start the run again.",
            )
        run = Run(entry.id, request, runner)
        run.ids.extend(entry.generated)
        run.prefill_seconds, run.decode_seconds = entry.prefill_seconds, entry.decode_seconds
        if entry.status == "done":
            run.status = "done"
        elif entry.status in FINISHED:
            run.status = "failed"
            run.error = AtlasError(entry.error or "The run failed.", "Start it again with POST /api/runs.")
        if entry.machine != fingerprint():
            run.note = f"First computed with {entry.machine}; its values are made again with {fingerprint()}."
        return run

    def _forget_the_oldest(self) -> None:
        for identity, run in tuple(self._runs.items()):
            if len(self._runs) <= REMEMBERED:
                return
            if run.status in FINISHED and not run.nbytes and not run.waiting and not run.listeners:
                del self._runs[identity]


def reference_hash(runner: ReferenceRunner) -> str:
    """The sha256 of the reference code that a runner runs."""
    return runner.model.store.locks.locked(runner.model.architecture.reference.file)[1].sha256


def identity_of(request: RunRequest, runner: ReferenceRunner) -> str:
    """The id of a run: a hash of all that determines it."""
    return run_id(request, runner.checkpoint.identity, reference_hash(runner))
