"""A recorded run as it is looked at: its facts, its tensors, and the answers that were kept, out of a checked bundle.

Opening proves that the run fits the catalogue: its id is the hash of what it says of itself, its nodes and axes are
the model's, and every piece has the size of its tile. Belongs to any thread; knows no engine.
"""

from __future__ import annotations

import math
import re
import threading
import zlib
from collections import OrderedDict
from collections.abc import Collection
from contextlib import ExitStack
from functools import cached_property
from itertools import islice
from pathlib import Path

from pydantic import TypeAdapter

from atlas.catalog import Catalog, Model
from atlas.errors import AtlasError, BundleError, NotRecorded, TooLarge
from atlas.graph.axes import View
from atlas.graph.nodes import Parameter, Quantity
from atlas.inspection.recorded.blocks import OVERVIEW_FROM, WIDTHS, assembled, inflate, tiling
from atlas.inspection.recorded.bundle import LARGEST_TEXT, Bundle
from atlas.inspection.recorded.carried import opened
from atlas.inspection.recorded.coverage import megabytes
from atlas.inspection.recorded.glances import Glances
from atlas.inspection.recorded.layout import (
    LABELS,
    MODEL,
    RUN,
    SHELVES,
    Answer,
    CarriedModel,
    Coverage,
    Held,
    Index,
    Piece,
    RecordedRun,
    Shelf,
    glances_name,
    index_name,
    sheet_name,
)
from atlas.runtime.captures import Captured
from atlas.runtime.runs import RunRequest, RunView, Token, run_id

KEPT_SHEETS = 64
LARGEST_RUN = 16 << 20
"""Bytes that the run's own facts may have: tens of thousands of tokens."""
TEXTS = TypeAdapter(list[str])


class Recorded:
    """One recorded run. Close it when nobody looks at it any more.

    Its `model` is the catalogue's, or one that was carried along and that the catalogue does not have (`carried`).
    """

    def __init__(self, path: Path, catalog: Catalog, limit: int, reserved: Collection[str] = ()) -> None:
        """Opens and checks. A model that was carried along gets none of the `reserved` ids.

        Raises `BundleError`, `TooLarge`, and `StorageError`.
        """
        self.bundle = Bundle(path, limit)
        self._limit = limit
        self._lock = threading.Lock()
        self._sheets: OrderedDict[str, bytes] = OrderedDict()
        with ExitStack() as refused:
            refused.callback(self.bundle.close)
            self.facts = self.bundle.model(RecordedRun, self.bundle.text(RUN, LARGEST_RUN), RUN)
            self.carried = MODEL in self.bundle.manifest.members
            self.model = self._model(catalog, reserved)
            self._check_facts()
            self.indexes = self._checked_indexes()
            self.glanced = self._checked_glances()
            refused.pop_all()

    @property
    def id(self) -> str:
        return self.facts.id

    @property
    def request(self) -> RunRequest:
        """What determined the run."""
        facts = self.facts
        return RunRequest(
            model=self.model.id,
            token_ids=tuple(token.id for token in facts.tokens[: facts.prompt_length]),
            max_new_tokens=facts.max_new_tokens,
            temperature=facts.temperature,
            seed=facts.seed,
            template=tuple(token.position for token in facts.tokens if token.template),
        )

    @property
    def view(self) -> RunView:
        """The run as the API gives it."""
        facts = self.facts
        return RunView(
            id=facts.id,
            model=self.model.id,
            checkpoint=facts.checkpoint_words,
            status="done",
            prompt=facts.prompt,
            chat=any(token.template for token in facts.tokens),
            prompt_length=facts.prompt_length,
            max_new_tokens=facts.max_new_tokens,
            temperature=facts.temperature,
            seed=facts.seed,
            tokens=[Token(**token.model_dump()) for token in facts.tokens],
            steps=facts.steps,
            note=f"A recorded run: computed with {facts.machine}, and opened here without its weights.",
        )

    @cached_property
    def labels(self) -> list[str]:
        """The label of each token of the vocabulary."""
        content = self.bundle.text(LABELS)
        try:
            found = TEXTS.validate_json(_inflated_text(content))
        except ValueError as error:
            raise self.bundle.refused(f"{LABELS} is no list of labels") from error
        if len(found) != self.facts.vocabulary:
            raise self.bundle.refused(f"{LABELS} has another number of labels than the vocabulary")
        return found

    def label(self, token: int) -> str:
        """A token of the vocabulary as it is shown alone."""
        known = next((one.label for one in self.facts.tokens if one.id == token), None)
        if known is not None:
            return known
        return self.labels[token] if 0 <= token < len(self.labels) else f"<{token}>"

    def covered(self, node: str, shelf: Shelf) -> Coverage | None:
        """What is held of a node in a view, in words."""
        return next((one for one in self.facts.held if (one.node, one.view) == (node, shelf)), None)

    def captured(self, node: str, shelf: Shelf, layer: int | None, step: int | None) -> Captured:
        """A tensor. Raises `NotRecorded` for one that is not held, and `BundleError` where it cannot be read."""
        index, held = self._held(node, shelf, layer, step)
        unpacked = sum(piece.full for piece in held.tiles)
        if unpacked > self._limit:
            raise TooLarge(
                f"This tensor of {node} has {unpacked:,} bytes unpacked; at most {self._limit:,} are opened.",
                "Raise --max-bundle-bytes.",
                limit=self._limit,
            )
        try:
            tiles = (inflate(self._piece(shelf, node, piece), piece.full) for piece in held.tiles)
            tensor = assembled(held.dtype, held.shape, tiles)
        except ValueError as error:
            raise self.bundle.refused(f"a tensor of {node} cannot be read: {error}") from error
        return Captured(node, None if shelf == "parameter" else shelf, layer, step, tensor, index.axes)

    def answer(self, name: Answer, node: str, shelf: Shelf, layer: int | None, step: int | None) -> bytes | None:
        """JSON that the API gave when the run was recorded; None where it gave none of that name."""
        _, held = self._held(node, shelf, layer, step)
        piece = held.answers.get(name)
        if piece is None:
            return None
        try:
            return inflate(self._piece(shelf, node, piece), piece.full)
        except ValueError as error:
            raise self.bundle.refused(f"an answer about {node} cannot be read: {error}") from error

    def glances(self, view: View, layer: int | None, step: int | None) -> Glances:
        """What expressions gave in a part of a pass. Raises `NotRecorded`, and `BundleError` if it cannot be read."""
        name = glances_name(view, layer, step)
        if name not in self.glanced:
            where = "outside the blocks" if layer is None else f"layer {layer}"
            where += "" if step is None else f", step {step}"
            raise NotRecorded(
                f"The recorded run does not hold what expressions gave in {view}, {where}.",
                "Run it where the weights are.",
            )
        try:
            content = _inflated_text(self.bundle.text(name))
        except (ValueError, zlib.error) as error:
            raise self.bundle.refused(f"{name} cannot be inflated ({error})") from error
        return self.bundle.model(Glances, content, name)

    def close(self) -> None:
        """Let the file go."""
        self.bundle.close()

    def _held(self, node: str, shelf: Shelf, layer: int | None, step: int | None) -> tuple[Index, Held]:
        index = self.indexes.get((shelf, node))
        for held in index.tensors if index is not None else ():
            if (held.layer, held.step) == (layer, step):
                assert index is not None
                return index, held
        raise NotRecorded(*not_held(self.covered(node, shelf), node, shelf, layer, step))

    def _piece(self, shelf: Shelf, node: str, piece: Piece) -> bytes:
        name = sheet_name(shelf, node, piece.sheet)
        with self._lock:
            content = self._sheets.get(name)
            if content is None:
                content = self._sheets[name] = self.bundle.read(name)
                while len(self._sheets) > KEPT_SHEETS:
                    self._sheets.popitem(last=False)
            self._sheets.move_to_end(name)
        return content[piece.at : piece.at + piece.size]

    # --- opening

    def _model(self, catalog: Catalog, reserved: Collection[str]) -> Model:
        if self.carried:
            carried = self.bundle.model(CarriedModel, self.bundle.text(MODEL, LARGEST_RUN), MODEL)
            if carried.id != self.facts.model:
                raise self.bundle.refused(f"its {MODEL} is of another model than its run")
            return self._fitting(opened(carried, self.facts, catalog, reserved))
        name = self.facts.model
        try:
            found = catalog[name]
        except AtlasError as error:
            shown = re.sub(r"[^a-z0-9.-]", "?", name)[:100]
            raise BundleError(
                f"The run is one of the model {shown!r}, which this catalogue cannot show: {error.detail}",
                "Open it where that model is in the catalogue.",
            ) from error
        return self._fitting(found)

    def _fitting(self, found: Model) -> Model:
        if (found.entry.architecture, found.architecture.sizes["layers"]) != (
            self.facts.architecture,
            self.facts.layers,
        ):
            raise self.bundle.refused(f"its {found.name} is of another architecture or depth than the one known here")
        return found

    def _check_facts(self) -> None:
        facts = self.facts
        request = self.request.model_copy(update={"model": facts.model})
        if run_id(request, facts.checkpoint, facts.reference) != facts.id or self.bundle.manifest.run != facts.id:
            raise self.bundle.refused("the run's id is not the hash of what it says of itself")
        whole = len(facts.tokens)
        told = [token.position for token in facts.tokens] == list(range(whole))
        steps = max(0, whole - facts.prompt_length - 1)
        if not told or not 1 <= facts.prompt_length <= whole or steps != facts.steps:
            raise self.bundle.refused("its tokens, its prompt's length and its steps contradict each other")
        if facts.vocabulary != self.model.architecture.sizes.get("vocab", 0):
            raise self.bundle.refused("its vocabulary is not the model's")

    def _checked_indexes(self) -> dict[tuple[Shelf, str], Index]:
        found: dict[tuple[Shelf, str], Index] = {}
        members = self.bundle.manifest.members
        if sum(member.size for name, member in members.items() if name.startswith("index/")) > LARGEST_TEXT:
            raise self.bundle.refused(f"its indexes are larger than {megabytes(LARGEST_TEXT)}")
        for shelf in SHELVES:
            for node in self.model.graph.nodes:
                name = index_name(shelf, node)
                if name in members:
                    index = self.bundle.model(Index, self.bundle.text(name), name)
                    self._check_index(name, index, shelf, node)
                    found[shelf, node] = index
        listed = sum(name.startswith("index/") for name in members)
        if listed != len(found):
            raise self.bundle.refused("it has an index of a node that the model does not have")
        return found

    def _checked_glances(self) -> frozenset[str]:
        """The members that say what expressions gave."""
        facts = self.facts
        told = [(one.view, layer, step) for one in facts.expressions for layer, step in one.places]
        for view, layer, step in told:
            fits = (layer or 0) < facts.layers and (view == "decode") == (step is not None)
            if not fits or not 1 <= (step or 1) <= max(1, facts.steps):
                raise self.bundle.refused("it has expressions of a layer or step that the run does not have")
        found = frozenset(name for name in self.bundle.manifest.members if name.startswith("expressions/"))
        if found != {glances_name(*place) for place in told}:
            raise self.bundle.refused("the run says of other expressions that they are held than those that are here")
        return found

    def _check_index(self, name: str, index: Index, shelf: Shelf, node: str) -> None:
        declared = self.model.graph[node].node
        axes = declared.shape if isinstance(declared, Quantity) else None
        fits = axes is not None and (shelf == "parameter") == isinstance(declared, Parameter)
        if not fits or (index.node, index.view) != (node, shelf) or index.axes != axes:
            raise self.bundle.refused(f"{name} is of another node than its name says, or has other axes")
        pieces: list[Piece] = []
        for held in index.tensors:
            try:
                pieces += self._check_held(held, index, shelf)
            except ValueError as error:
                raise self.bundle.refused(f"{name} contradicts itself: {error}") from error
        sheets = {sheet_name(shelf, node, piece.sheet) for piece in pieces}
        if sum(piece.size for piece in pieces) > sum(self.bundle.manifest.members[sheet].size for sheet in sheets):
            raise self.bundle.refused(f"{name} uses the same bytes more than once")

    def _check_held(self, held: Held, index: Index, shelf: Shelf) -> tuple[Piece, ...]:
        """All its pieces. Raises ValueError with what is wrong."""
        if held.dtype not in WIDTHS or len(held.shape) != len(index.axes):
            raise ValueError(f"numbers of {held.dtype[:20]!r} with {len(held.shape)} axes")
        inside = self.model.graph[index.node].in_blocks
        if inside != (held.layer is not None) or not 0 <= (held.layer or 0) < self.facts.layers:
            raise ValueError("a layer that the model does not have")
        if (shelf == "decode") != (held.step is not None) or not 1 <= (held.step or 1) <= max(1, self.facts.steps):
            raise ValueError("a decode step that the run does not have")
        cut, width = tiling(held.shape), WIDTHS[held.dtype]
        cells = [math.prod(part.stop - part.start for part in box) for box in islice(cut.boxes(), len(held.tiles) + 1)]
        if [piece.full for piece in held.tiles] != [one * width for one in cells]:
            raise ValueError("tiles of other sizes than the shape says")
        if held.overview is not None and cut.rows * cut.columns <= OVERVIEW_FROM:
            raise ValueError("an overview of a small tensor")
        if "summary" not in held.answers:
            raise ValueError("a tensor without its summary")
        extra = [held.overview.piece] if held.overview is not None else []
        pieces = (*held.tiles, *extra, *held.answers.values())
        for piece in pieces:
            sheet = self.bundle.manifest.members.get(sheet_name(shelf, index.node, piece.sheet))
            if sheet is None or piece.at + piece.size > sheet.size or piece.full > LARGEST_TEXT:
                raise ValueError("a piece outside its sheet, or too large")
        return pieces


def not_held(covered: Coverage | None, node: str, shelf: Shelf, layer: int | None, step: int | None) -> tuple[str, str]:
    """What to say of a tensor that a recorded run does not hold, and what to do."""
    where = "" if shelf == "parameter" else f" in {shelf}"
    where += f", layer {layer}" if layer is not None else ""
    where += f", step {step}" if step is not None else ""
    said = f"The recorded run does not hold {node}{where}"
    if covered is None:
        return f"{said}: this pass does not compute it.", "Choose another view."
    why = f": {covered.why}" if covered.why else ""
    return f"{said}{why}.", f"Of it are held: {covered.words}." if covered.held else "Run it where the weights are."


def _inflated_text(content: bytes) -> bytes:
    """JSON of a size that nobody said, but no larger than text may be."""
    reader = zlib.decompressobj()
    found = reader.decompress(content, LARGEST_TEXT)
    if not reader.eof:
        raise ValueError("too large")
    return found
