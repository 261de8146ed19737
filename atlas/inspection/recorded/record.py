"""Recording a run: its tokens and chosen tensors, with what the API says of each, within a number of bytes.

One replay makes all tensors of a block and pass. While workers look at them, the next ones are made; what is kept is
decided in order, so the same run, choice and budget give the same bytes. Knows the format's names, and nothing of
folders or zip files.
"""

from __future__ import annotations

import tempfile
import zlib
from asyncio import wrap_future
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import IO, Protocol

from pydantic import TypeAdapter

from atlas.errors import BadRequest, Conflict, NotComputed, StorageError
from atlas.graph.axes import View
from atlas.inspection import meanings
from atlas.inspection.lens import lens_parameters
from atlas.inspection.recorded.blocks import Packed, pack_text
from atlas.inspection.recorded.carried import carried
from atlas.inspection.recorded.coverage import Shelved, coverage
from atlas.inspection.recorded.explaining import explained, is_first
from atlas.inspection.recorded.glances import MOST, packed_glances, places_by_view, seen_in
from atlas.inspection.recorded.layout import (
    FORMAT,
    KIND,
    LABELS,
    MANIFEST,
    MODEL,
    PLAIN,
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
    glances_name,
    index_name,
    sheet_name,
)
from atlas.inspection.recorded.making import Made, Maker
from atlas.inspection.recorded.selection import Batch, batches, chosen_nodes
from atlas.inspection.verify import inputs_of
from atlas.inspection.viewing import facts_of
from atlas.runtime.captures import Captured
from atlas.runtime.engine import Engine
from atlas.runtime.machine import fingerprint
from atlas.runtime.runs import Run
from atlas.runtime.shelf import reference_hash

SHEET = 256 << 10
"""Bytes after which a new sheet is begun."""
WORKERS = 2
AHEAD = 8
HELD = 128 << 20
"""How many threads look at tensors, and how many batches, of how many bytes, may be waiting for them."""
ROW = 240
"""Bytes that a line of the manifest or of the coverage may take, beside the names in it."""


class Sink(Protocol):
    """Where members go. Each is added once, whole."""

    def add(self, name: str, content: bytes) -> None: ...


@dataclass(frozen=True)
class Choice:
    """What to record: these nodes (all, if none is named), in at most so many bytes, manifest and labels included;
    and, with `expressions`, what expressions of the reference code gave in the same passes and layers; with
    `explanations`, how one number of each node came to be.
    """

    nodes: tuple[str, ...] = ()
    budget: int = 500_000_000
    expressions: bool = True
    explanations: bool = True


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
    run's tokens, for a node without values, and for a model that cannot go along with its run.
    """
    run = engine.run(run_id)
    if run.status != "done":
        raise Conflict(
            f"The run {run_id} is {run.status}, and only a finished one can be recorded.", "Ask again later."
        )
    with _temporary() as spool:
        recording = _Recording(engine, run, choice, spool)
        try:
            return await recording.make(sink, tell)
        finally:
            recording.workers.shutdown(cancel_futures=True)


@contextmanager
def _temporary() -> Iterator[IO[bytes]]:
    """A file for what is made before it is known where it comes to lie."""
    with _room():
        spool = tempfile.TemporaryFile()  # noqa: SIM115 - only what it meets here is about its room
    try:
        yield spool
    finally:
        with suppress(OSError):  # what could not be written has been told
            spool.close()


@contextmanager
def _room() -> Iterator[None]:
    """Raises `StorageError` where the temporary file has no room."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"Could not keep what is recorded in a file in {tempfile.gettempdir()}: {error.strerror or error}.",
            "Free some space there, choose another place with TMPDIR, or lower --budget.",
        ) from error


@dataclass(frozen=True)
class _Begun:
    """A batch that is being looked at: which of its nodes this pass computes, and what is made of those wanted."""

    batch: Batch
    computed: frozenset[str]
    making: Sequence[Future[Made]] = ()
    glances: Future[Packed] | None = None
    nbytes: int = 0


class _Recording:
    """One run on its way into a sink."""

    def __init__(self, engine: Engine, run: Run, choice: Choice, spool: IO[bytes]) -> None:
        self.engine = engine
        self.run = run
        self.choice = choice
        self.spool = spool
        self.model = run.runner.model
        self.nodes = chosen_nodes(self.model.graph, choice.nodes)
        self.workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="recording")
        self.shelves: dict[tuple[Shelf, str], _Shelved] = {}
        self.glances: dict[Batch, tuple[int, int, int]] = {}
        self.glancing = choice.expressions
        self.plain = True
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
        described = carried(self.model, self.run.runner.checkpoint)
        about = b"" if described is None else described.model_dump_json().encode()
        self.spent = len(labels) + len(about) + self._fixed(vocabulary)
        if self.spent > self.choice.budget:
            raise BadRequest(
                f"The budget of {self.choice.budget:,} bytes does not hold the run's tokens and labels, which take "
                f"{self.spent:,}.",
                "Raise --budget.",
            )
        has_lens = bool(lens_parameters(self.model.graph))
        lens = await meanings.lens_of(self.engine, self.run.id) if has_lens else None
        maker = Maker(self.run, facts_of(self.engine, self.run.id), lens)
        work: deque[_Begun] = deque()

        async def end() -> None:
            nonlocal done
            begun = work.popleft()
            await self._ended(begun)
            done += len(begun.batch.nodes)
            tell(done, whole)

        for batch in plan:
            work.append(await self._begun(batch, maker))
            while len(work) > AHEAD or (len(work) > 1 and sum(begun.nbytes for begun in work) > HELD):
                await end()
        while work:
            await end()
        members = _Members(sink)
        members.add(LABELS, labels)
        for shelf in SHELVES:
            for node in sorted(self.nodes):
                if self.shelves.get((shelf, node), _Shelved()).entries:
                    self._write(members, shelf, node)
        for batch, (at, size, _) in self.glances.items():
            self.spool.seek(at)
            members.add(glances_name(batch.view, batch.layer, batch.step), self.spool.read(size))
        recorded = self._recorded(vocabulary)
        unsaid = set() if recorded.expressions else {"expressions"}  # readers of the plain format do not know them
        members.add(RUN, recorded.model_dump_json(exclude=unsaid).encode())
        if about:
            members.add(MODEL, about)
        manifest = Manifest(
            format=PLAIN if self.plain and not about else FORMAT,
            kind=KIND,
            run=self.run.id,
            members=dict(sorted(members.known.items())),
        )
        sink.add(MANIFEST, manifest.model_dump_json().encode())
        return recorded

    def _fixed(self, vocabulary: int) -> int:
        """Bytes, at most, of what is written whatever is held: the run, and what is said of each node."""
        said = len(self._recorded(vocabulary).model_dump_json().encode())
        rows = sum(3 * ROW + 4 * len(node) for _, node in self.shelves)
        return said + rows + 2 * ROW * (1 + self.choice.budget // SHEET)

    async def _begun(self, batch: Batch, maker: Maker) -> _Begun:
        """Have one replay make the tensors of a batch and all that their equations take, and workers look at them."""
        wanted = [node for node in batch.nodes if not self.shelves[batch.shelf, node].full]
        if not wanted:
            return _Begun(batch, frozenset(batch.nodes))
        beside = [path for node in batch.nodes for path in inputs_of(self.model, node, batch.layer)]
        # Outside the blocks, what is read of them is of the last one.
        layer = self.run.runner.n_layers - 1 if batch.layer is None else batch.layer
        asked = tuple(dict.fromkeys((*batch.nodes, *beside)))
        try:
            found = await self.engine.tensors(self.run.id, asked, batch.view, layer, batch.step)
        except NotComputed:
            return _Begun(batch, frozenset())
        make = partial(maker.made, view=batch.view, beside=found)
        making = [self.workers.submit(make, found[node]) for node in wanted if node in found]
        held = sum(captured.tensor.nbytes for captured in found.values())
        seen = await seen_in(self.engine, self.run.id, batch) if self.glancing else None
        glances = None if seen is None else self.workers.submit(packed_glances, *seen)
        held += 0 if seen is None else sum(value.nbytes for values in seen[1].values() for value in values)
        return _Begun(batch, frozenset(batch.nodes) & found.keys(), making, glances, held)

    async def _ended(self, begun: _Begun) -> None:
        """Keep what has been made of a batch, as far as there is room."""
        for node in begun.computed:
            self.shelves[begun.batch.shelf, node].of += 1
        for making in begun.making:
            made = await wrap_future(making)
            shelved = self.shelves[begun.batch.shelf, made.captured.node]
            if not shelved.full:
                shelved.full = not self._taken(shelved, made)
                if not shelved.full and self.choice.explanations and is_first(self.model.graph, made.captured):
                    await self._explain(shelved.entries[-1], made.captured, begun.batch.view)
        if begun.glances is not None:
            packed = await wrap_future(begun.glances)
            cost = len(packed.content) + ROW
            room = self.spent + cost <= self.choice.budget and len(self.glances) < MOST
            self.glancing = self.glancing and room
            if self.glancing:
                self.spent += cost
                self.plain = False
                self.glances[begun.batch] = self._spooled(packed)

    def _taken(self, shelved: _Shelved, made: Made) -> bool:
        """Keep one tensor with what is said of it, if there is room."""
        pieces = made.pieces
        cost = sum(len(piece.content) for piece in pieces) + 80 * len(pieces) + ROW
        if self.spent + cost > self.choice.budget:
            return False
        self.spent += cost
        shelved.axes = made.captured.axes
        shelved.entries.append(
            _Entry(
                layer=made.captured.layer,
                step=made.captured.step,
                dtype=made.dtype,
                shape=tuple(made.captured.tensor.shape),
                tiles=[self._spooled(piece) for piece in made.tiles],
                overview=(made.overview[0], self._spooled(made.overview[1])) if made.overview else None,
                answers={name: self._spooled(piece) for name, piece in made.answers.items()},
            )
        )
        return True

    async def _explain(self, entry: _Entry, captured: Captured, view: View) -> None:
        """Keep how one number of a tensor came to be, if that can be told and there is room."""
        found = await explained(self.engine, self.run.id, captured, view)
        packed = None if found is None else pack_text(found.model_dump_json().encode())
        if packed is not None and self.spent + len(packed.content) + 80 <= self.choice.budget:
            self.spent += len(packed.content) + 80
            self.plain = False
            entry.answers["explanation"] = self._spooled(packed)

    def _spooled(self, piece: Packed) -> tuple[int, int, int]:
        with _room():
            at = self.spool.seek(0, 2)
            self.spool.write(piece.content)
            self.spool.flush()
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
            expressions=places_by_view(list(self.glances)),
        )


class _Members:
    """Hands members on to a sink, and keeps their sizes and hashes."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.known: dict[str, Member] = {}

    def add(self, name: str, content: bytes) -> None:
        self.sink.add(name, content)
        self.known[name] = Member(size=len(content), sha256=sha256(content).hexdigest())


def _json(value: list[str]) -> bytes:
    return TypeAdapter(list[str]).dump_json(value)
