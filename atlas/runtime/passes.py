"""Taking a run one pass further: the prompt, one token, or all its tokens at once.

Owns what a pass does to a run. Whose turn it is, and what happens at safe points, is the engine's to say.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from atlas.runtime.journal import Journal
from atlas.runtime.references.base import Pass
from atlas.runtime.runs import Run
from atlas.runtime.sampling import next_token
from atlas.runtime.tallies import Tallies


class Passes:
    """Passes, counted, and what they generate, written down."""

    def __init__(self, journal: Journal, tallies: Tallies) -> None:
        self._journal = journal
        self._tallies = tallies

    def take(self, run: Run, safe_point: Callable[[int], None]) -> bool:
        """The next pass of a run: its full sequence if that is wanted and possible, else the next tokens.

        `safe_point` is called before each block, and may raise to give the pass up. Returns whether the run came to
        its end. Raises `NotReady` for weights that are damaged meanwhile.
        """
        started = time.perf_counter()
        run.runner.checkpoint.require_whole()
        if run.status == "done" and run.full_wanted:
            full = run.runner.memory(len(run.ids), cache=False)
            run.runner.forward(Pass(tuple(run.ids), 0), full, safe_point)
            run.full, run.full_wanted = full, False
            self._tallies.passes.labels("full").observe(time.perf_counter() - started)
            return False
        if run.status == "queued":
            run.status = "running"
            run.tell()
        if run.memory is None:
            run.memory = run.runner.memory(run.capacity)
        if run.status != "running" and run.whole:
            return False
        work = run.following()
        logits = run.runner.forward(work, run.memory, safe_point)
        spent = time.perf_counter() - started
        self._tallies.passes.labels("decode" if work.start else "prefill").observe(spent)
        self._tallies.prefilled.inc(0 if work.start else len(work.tokens))
        if work.start == 0:
            run.prefill_seconds = spent
        elif run.status == "running":
            run.decode_seconds += spent
        return run.status == "running" and run.computed == len(run.ids) and self._extend(run, logits[0, -1])

    def _extend(self, run: Run, logits: torch.Tensor) -> bool:
        """Choose the next token, if one more is wanted; whether that was the last."""
        request = run.request
        generated = len(run.ids) - run.prompt_length
        if generated < request.max_new_tokens:
            run.ids.append(next_token(logits, request.temperature, request.seed, generated))
            self._journal.token(run.id, generated, run.ids[-1])
            self._tallies.generated_one()
            generated += 1
        ended = generated > 0 and run.ids[-1] in run.runner.checkpoint.tokenizer.eos_ids
        return ended or generated >= request.max_new_tokens
