"""What is recorded of one tensor: its tiles, its overview, and what the API says about it, checks included.

The same functions answer a reader, so that what is recorded is what is served. Any number of tensors may be made at the
same time. Knows no budget, no files, and no engine.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from pydantic import TypeAdapter

from atlas.graph.axes import View
from atlas.inspection import meanings
from atlas.inspection.answers import Checks, HeadMeasures, Prediction, Predictions
from atlas.inspection.attention import measure_heads
from atlas.inspection.frames import ATTENDED, pass_of
from atlas.inspection.lens import LogitLens
from atlas.inspection.recorded.blocks import Packed, overview_of, pack_text, tiles_of
from atlas.inspection.recorded.layout import Answer
from atlas.inspection.verify import check_equation, check_shape, check_source, inputs_of
from atlas.inspection.viewing import Facts, Viewed
from atlas.runtime.captures import Captured
from atlas.runtime.runs import Run

SPOKEN = 10
"""Likeliest tokens kept of each position; the API's own default."""
REMEMBERED = 256
"""Predictions that are kept for a stream with the same numbers."""
HEADS = TypeAdapter(list[HeadMeasures])


@dataclass(frozen=True)
class Made:
    """One tensor, packed. `overview` has its levels with it."""

    captured: Captured
    dtype: str
    tiles: tuple[Packed, ...]
    overview: tuple[tuple[int, int], Packed] | None
    answers: Mapping[Answer, Packed]

    @property
    def pieces(self) -> tuple[Packed, ...]:
        """All that has bytes."""
        return (*self.tiles, *self.answers.values(), *([self.overview[1]] if self.overview else []))


class Maker:
    """Makes what is recorded of a run's tensors. `lens` is None where the model's graph has no path to logits."""

    def __init__(self, run: Run, facts: Facts, lens: LogitLens | None) -> None:
        self.run = run
        self.facts = facts
        self.lens = lens
        self._source = check_source(run.runner.model)  # of one file, whichever tensor is looked at
        self._said: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def made(self, captured: Captured, view: View, beside: Mapping[str, Captured]) -> Made:
        """Everything about a tensor of a pass. `beside` has all tensors that its equation takes, by path."""
        run, layer = self.run, captured.layer
        model = run.runner.model
        wanted = inputs_of(model, captured.node, layer)
        inputs = {path: beside[path] for path in (captured.node, *wanted) if path in beside} if wanted else {}
        window = model.graph.window(layer)
        made_in = pass_of(view, captured.step, run.prompt_length, len(run.ids), layer, window)
        viewed = Viewed(captured, model, made_in)
        summary = viewed.summary(
            Checks(
                shape=check_shape(model, made_in, captured.node, captured.tensor.shape),
                equation=check_equation(model, made_in, captured.node, captured, inputs),
                source=self._source,
            )
        )
        meaning, answers = summary.presentation.meaning, {"summary": summary.model_dump_json().encode()}
        if meaning == "attention" and viewed.array.ndim == 4 and captured.axes[-2:] == ("queries", ATTENDED):
            measures = measure_heads(viewed.array[0], self.facts.tokens, made_in.before)
            answers["heads"] = HEADS.dump_json(measures)
        if meaning == "logits" or (meaning == "stream" and self.lens is not None):
            answers["predictions"] = self._spoken(viewed, None if meaning == "logits" else self.lens)
        return Made(
            captured=captured,
            dtype=summary.dtype,
            tiles=tuple(tiles_of(captured.tensor)),
            overview=overview_of(captured.tensor),
            answers={name: pack_text(answers[name]) for name in ANSWERS if name in answers},
        )

    def _spoken(self, viewed: Viewed, lens: LogitLens | None) -> bytes:
        """What all positions say, as many at a time as a reader may ask for.

        What one block hands on is what the next one gets, so it is asked once.
        """
        begin, end = viewed.made_in.before, viewed.made_in.before + viewed.made_in.computed
        key = (lens is None, begin, end, sha256(np.ascontiguousarray(viewed.array).tobytes()).digest())
        if (known := self._said.get(key)) is not None:
            return known
        said: list[Prediction] = []
        for start in range(begin, end, meanings.LENS_ROWS):
            rows = range(start, min(start + meanings.LENS_ROWS, end))
            said += meanings.said(viewed, self.facts, lens, rows, SPOKEN).positions
        spoken = Predictions(temperature=self.facts.temperature, positions=said)
        found = self._said[key] = spoken.model_dump_json().encode()
        while len(self._said) > REMEMBERED:
            self._said.popitem(last=False)
        return found


ANSWERS: tuple[Answer, ...] = ("summary", "heads", "predictions")
