"""Recording a run: its tokens and chosen tensors, with what the API says of each, within a number of bytes.

Asks the same questions as a reader of the API would, through the viewer, so that what is recorded is what is served.
The same run, choice and budget give the same bytes. Knows the format's names, and nothing of folders or zip files.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import IO, Protocol

from pydantic import BaseModel, TypeAdapter

from atlas.errors import BadRequest, Conflict, NotComputed
from atlas.inspection import meanings
from atlas.inspection.answers import HeadMeasures, Prediction, Predictions
from atlas.inspection.recorded.blocks import Packed, overview_of, tiles_of
from atlas.inspection.recorded.coverage import Shelved, coverage
from atlas.inspection.recorded.layout import (
    FORMAT,
    KIND,
    LABELS,
    MANIFEST,
    RUN,
    SHELVES,
    Answer,
    Held,
    Index,
    Manifest,
    Member,
    Overview,
    Piece,
    RecordedRun,
    RecordedToken,
    Shelf,
    index_name,
    sheet_name,
)
from atlas.inspection.recorded.selection import Batch, batches, chosen_nodes
from atlas.inspection.verify import inputs_of
from atlas.inspection.viewing import Place, Viewed, Viewer
from atlas.runtime.captures import Captured
from atlas.runtime.engine import Engine
from atlas.runtime.machine import fingerprint
from atlas.runtime.runs import Run
from atlas.runtime.shelf import reference_hash

SHEET = 256 << 10
"""Bytes after which a new sheet is begun."""
SPOKEN = 10
"""Likeliest tokens kept of each position; the API's own default."""
ROW = 240
"""Bytes that a line of the manifest or of the coverage may take, beside the names in it."""
HEADS = TypeAdapter(list[HeadMeasures])


class Sink(Protocol):
    """Where members go. Each is added once, whole."""

    def add(self, name: str, content: bytes) -> None: ...


@dataclass(frozen=True)
class Choice:
    """What to record: these nodes (all, if none is named), in at most so many bytes, manifest and labels included."""

    nodes: tuple[str, ...] = ()
    budget: int = 500_000_000


@dataclass
class _Entry:
    """A tensor whose pieces lie in the spool: (offset, packed size, full size) each."""

    layer: int | None
    step: int | None
    dtype: str
    shape: tuple[int, ...]
    tiles: list[tuple[int, int, int]]
    overview: tuple[tuple[int, int], tuple[int, int, int]] | None
    answers: dict[Answer, tuple[int, int, int]]


@dataclass
class _Shelved:
    """What is recorded of one node in one view."""

    axes: tuple[str, ...] = ()
    entries: list[_Entry] = field(default_factory=list)
    of: int = 0
    full: bool = False

    @property
    def places(self) -> tuple[tuple[int | None, int | None], ...]:
        return tuple((entry.layer, entry.step) for entry in self.entries)


async def record(
    engine: Engine, run_id: str, choice: Choice, sink: Sink, tell: Callable[[int, int], None] = lambda *_: None
) -> RecordedRun:
    """Record a finished run into a sink. `tell` hears how many tensors of how many have been looked at.

    Raises `NotFound`, `Conflict` for a run that has not finished, and `BadRequest` for a budget that does not hold the
    run's tokens, or for a node without values.
    """
    run = engine.run(run_id)
    if run.status != "done":
        raise Conflict(
            f"The run {run_id} is {run.status}, and only a finished one can be recorded.", "Ask again later."
        )
    with tempfile.TemporaryFile() as spool:
        recording = _Recording(engine, run, choice, spool)
        try:
            return await recording.make(sink, tell)
        finally:
            recording.viewer.close()


class _Recording:
    """One run on its way into a sink."""

    def __init__(self, engine: Engine, run: Run, choice: Choice, spool: IO[bytes]) -> None:
        self.engine = engine
        self.run = run
        self.choice = choice
        self.spool = spool
        self.model = run.runner.model
        self.nodes = chosen_nodes(self.model.graph, choice.nodes)
        self.viewer = Viewer()
        self.shelves: dict[tuple[Shelf, str], _Shelved] = {}
        self.spent = 0

    async def make(self, sink: Sink, tell: Callable[[int, int], None]) -> RecordedRun:
        plan = list(batches(self.model.graph, self.nodes, self.run.runner.n_layers, self.run.steps))
        whole, done = sum(len(batch.nodes) for batch in plan), 0
        for batch in plan:
            for node in batch.nodes:
                self.shelves.setdefault((batch.shelf, node), _Shelved())
        tokenizer = self.run.runner.checkpoint.tokenizer
        vocabulary = self.model.architecture.sizes.get("vocab", 0)
        labels = zlib.compress(_json([tokenizer.label(token) for token in range(vocabulary)]), 6)
        self.spent = len(labels) + self._fixed(vocabulary)
        if self.spent > self.choice.budget:
            raise BadRequest(
                f"The budget of {self.choice.budget:,} bytes does not hold the run's tokens and labels, which take "
                f"{self.spent:,}.",
                "Raise --budget.",
            )
        for batch in plan:
            await self._batch(batch)
            done += len(batch.nodes)
            tell(done, whole)
        members = _Members(sink)
        members.add(LABELS, labels)
        for shelf in SHELVES:
            for node in sorted(self.nodes):
                if self.shelves.get((shelf, node), _Shelved()).entries:
                    self._write(members, shelf, node)
        recorded = self._recorded(vocabulary)
        members.add(RUN, recorded.model_dump_json().encode())
        manifest = Manifest(format=FORMAT, kind=KIND, run=self.run.id, members=dict(sorted(members.known.items())))
        sink.add(MANIFEST, manifest.model_dump_json().encode())
        return recorded

    def _fixed(self, vocabulary: int) -> int:
        """Bytes, at most, of what is written whatever is held: the run, and what is said of each node."""
        said = len(self._recorded(vocabulary).model_dump_json().encode())
        rows = sum(3 * ROW + 4 * len(node) for _, node in self.shelves)
        return said + rows + 2 * ROW * (1 + self.choice.budget // SHEET)

    async def _batch(self, batch: Batch) -> None:
        wanted = [node for node in batch.nodes if not self.shelves[batch.shelf, node].full]
        if not wanted:
            for node in batch.nodes:
                self.shelves[batch.shelf, node].of += 1
            return
        run, layer, step = self.run.id, batch.layer, batch.step
        # What the checks will ask for comes along, so that one replay makes all of it.
        beside = [path for node in batch.nodes for path in inputs_of(self.model, node, layer)]
        asked = tuple(dict.fromkeys((*batch.nodes, *beside)))
        try:
            found = await self.engine.tensors(run, asked, batch.view, layer, step)
        except NotComputed:
            return
        for node in batch.nodes:
            if node not in found:
                continue
            shelved = self.shelves[batch.shelf, node]
            shelved.of += 1
            if not shelved.full:
                shelved.full = not await self._tensor(shelved, found[node], batch)

    async def _tensor(self, shelved: _Shelved, captured: Captured, batch: Batch) -> bool:
        """Record one tensor with what is said of it, if there is room."""
        place = Place(self.run.id, captured.node, batch.view, captured.layer, captured.step)
        tiles = await self.viewer.work(lambda: tiles_of(captured.tensor))
        overview = await self.viewer.work(lambda: overview_of(captured.tensor))
        if self.spent + sum(len(tile.content) for tile in tiles) > self.choice.budget:
            return False
        viewed = await self.viewer.look(self.engine, place)
        summary = await self.viewer.summary(self.engine, place, verified=True)
        answers: dict[Answer, bytes] = {"summary": _dumped(summary)}
        if summary.presentation.meaning == "attention" and viewed.array.ndim == 4:
            answers["heads"] = HEADS.dump_json(await meanings.heads(self.viewer, self.engine, place))
        if summary.presentation.meaning in ("logits", "stream"):
            answers["predictions"] = _dumped(await self._spoken(place, viewed))
        packed = {name: Packed(zlib.compress(content, 6), len(content)) for name, content in answers.items()}
        pieces = [*tiles, *packed.values(), *([overview[1]] if overview else [])]
        cost = sum(len(piece.content) for piece in pieces) + 80 * len(pieces) + ROW
        if self.spent + cost > self.choice.budget:
            return False
        self.spent += cost
        shelved.axes = captured.axes
        shelved.entries.append(
            _Entry(
                layer=captured.layer,
                step=captured.step,
                dtype=summary.dtype,
                shape=tuple(captured.tensor.shape),
                tiles=[self._spooled(piece) for piece in tiles],
                overview=(overview[0], self._spooled(overview[1])) if overview else None,
                answers={name: self._spooled(piece) for name, piece in packed.items()},
            )
        )
        return True

    async def _spoken(self, place: Place, viewed: Viewed) -> Predictions:
        """What all positions say, asked as many at a time as one may."""
        before, computed = viewed.made_in.before, viewed.made_in.computed
        said: list[Prediction] = []
        for start in range(before, before + computed, meanings.LENS_ROWS):
            stop = min(start + meanings.LENS_ROWS, before + computed)
            found = await meanings.spoken(self.viewer, self.engine, place, start, stop, SPOKEN)
            said += found.positions
        return Predictions(temperature=self.run.request.temperature, positions=said)

    def _spooled(self, piece: Packed) -> tuple[int, int, int]:
        at = self.spool.seek(0, 2)
        self.spool.write(piece.content)
        return at, len(piece.content), piece.full

    def _write(self, members: _Members, shelf: Shelf, node: str) -> None:
        """The sheets and the index of one node in one view."""
        shelved = self.shelves[shelf, node]
        sheets: list[bytearray] = [bytearray()]

        def laid(piece: tuple[int, int, int]) -> Piece:
            at, size, full = piece
            if sheets[-1] and len(sheets[-1]) + size > SHEET:
                sheets.append(bytearray())
            self.spool.seek(at)
            start = len(sheets[-1])
            sheets[-1] += self.spool.read(size)
            return Piece(sheet=len(sheets) - 1, at=start, size=size, full=full)

        entries = sorted(shelved.entries, key=lambda one: (one.layer or 0, one.step or 0))
        held = tuple(
            Held(
                layer=entry.layer,
                step=entry.step,
                dtype=entry.dtype,
                shape=entry.shape,
                answers={name: laid(piece) for name, piece in entry.answers.items()},
                overview=Overview(levels=entry.overview[0], piece=laid(entry.overview[1])) if entry.overview else None,
                tiles=tuple(laid(piece) for piece in entry.tiles),
            )
            for entry in entries
        )
        for number, content in enumerate(sheets):
            members.add(sheet_name(shelf, node, number), bytes(content))
        index = Index(node=node, view=shelf, axes=shelved.axes, tensors=held)
        members.add(index_name(shelf, node), index.model_dump_json().encode())

    def _recorded(self, vocabulary: int) -> RecordedRun:
        run = self.engine.view(self.run.id)
        return RecordedRun(
            id=run.id,
            model=run.model,
            architecture=self.model.entry.architecture,
            layers=self.run.runner.n_layers,
            checkpoint=self.run.runner.checkpoint.identity,
            checkpoint_words=run.checkpoint,
            quantization=self.run.runner.checkpoint.quantization,
            reference=reference_hash(self.run.runner),
            machine=fingerprint(),
            prompt=run.prompt,
            prompt_length=run.prompt_length,
            max_new_tokens=run.max_new_tokens,
            temperature=run.temperature,
            seed=run.seed,
            tokens=tuple(RecordedToken(**token.model_dump()) for token in run.tokens),
            steps=run.steps,
            vocabulary=vocabulary,
            budget=self.choice.budget,
            held=coverage(
                self.model.graph,
                {
                    key: Shelved(of=one.of, places=tuple((e.layer, e.step) for e in one.entries))
                    for key, one in self.shelves.items()
                },
                self.choice.budget,
            ),
        )


class _Members:
    """Hands members on to a sink, and keeps their sizes and hashes."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.known: dict[str, Member] = {}

    def add(self, name: str, content: bytes) -> None:
        self.sink.add(name, content)
        self.known[name] = Member(size=len(content), sha256=sha256(content).hexdigest())


def _dumped(answer: BaseModel) -> bytes:
    return answer.model_dump_json().encode()


def _json(value: list[str]) -> bytes:
    return TypeAdapter(list[str]).dump_json(value)
