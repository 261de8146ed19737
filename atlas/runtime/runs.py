"""A run: one prompt taken through prefill and decode. What determines it, what it has come to, and how far it is.

A run is a value: its id is a hash of all that determines it. It can give its memory up and be taken through the
same tokens again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field

from atlas.errors import AtlasError, NotFound
from atlas.graph.axes import View
from atlas.runtime.references.base import Memory, Pass, ReferenceRunner

Status = Literal["queued", "running", "done", "failed", "cancelled"]
FINISHED: tuple[Status, ...] = ("done", "failed", "cancelled")
_numbers = itertools.count()


class RunRequest(BaseModel):
    """What determines a run, its checkpoint and reference code aside.

    `template` are the positions of tokens that a chat template put into the prompt.
    """

    model: str
    token_ids: tuple[int, ...]
    max_new_tokens: int
    temperature: float
    seed: int
    template: tuple[int, ...] = ()


class Token(BaseModel):
    """One token of a run. `text` is what it adds to the text; `label` shows it alone. `template`: a chat template put
    it there.
    """

    position: int
    id: int
    text: str
    label: str
    origin: Literal["prompt", "generated"]
    template: bool = False


class RunError(BaseModel):
    """Why a run failed."""

    code: str
    detail: str
    hint: str


class RunView(BaseModel):
    """A run as it stands. `steps` are its decode steps; `waiting` is how many unfinished runs come before it.

    `chat`: a chat template made the prompt's tokens, and `prompt` is what it was given. `note` says so where values are
    made again with other software or hardware than at first, and where runs are not written down.
    """

    id: str
    model: str
    checkpoint: str
    status: Status
    prompt: str
    chat: bool = False
    prompt_length: int
    max_new_tokens: int
    temperature: float
    seed: int
    tokens: list[Token]
    steps: int
    waiting: int = 0
    seconds: dict[str, float] = Field(default_factory=dict)
    note: str = ""
    error: RunError | None = None


def run_id(request: RunRequest, checkpoint: str, reference: str) -> str:
    """20 hexadecimal digits of the hash of everything that determines the values of a run."""
    facts = {"checkpoint": checkpoint, "reference": reference, **request.model_dump()}
    if not request.template:  # a run without one is what it was before there were any
        del facts["template"]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Waiting:
    """A request for tensors that waits: how to serve it, and whether its asker has left."""

    serve: Callable[[], None]
    unwanted: Callable[[], bool]


class Run:
    """The engine's side of a run. Only the engine's thread changes it, but for `cancelled`.

    `ids` are all tokens known so far. `memory.position` says how many of them have been computed; it may lie behind
    where the memory was given up. `client` is who asked for it in this process, `number` its place among all runs.
    """

    def __init__(self, identity: str, request: RunRequest, runner: ReferenceRunner) -> None:
        self.id = identity
        self.request = request
        self.runner = runner
        self.ids: list[int] = list(request.token_ids)
        self.status: Status = "queued"
        self.error: AtlasError | None = None
        self.note = ""
        self.client = ""
        self.number = next(_numbers)
        self.memory: Memory | None = None
        self.full: Memory | None = None
        self.full_wanted = False
        self.cancelled = False
        self.used = time.monotonic()
        self.prefill_seconds = 0.0
        self.decode_seconds = 0.0
        self.waiting: deque[Waiting] = deque()
        self.listeners: list[Callable[[], None]] = []

    @property
    def prompt_length(self) -> int:
        return len(self.request.token_ids)

    @property
    def steps(self) -> int:
        """Decode steps: the last generated token is not fed back."""
        return max(0, len(self.ids) - self.prompt_length - 1)

    @property
    def capacity(self) -> int:
        """The most positions that are ever computed."""
        return self.prompt_length + max(0, self.request.max_new_tokens - 1)

    @property
    def computed(self) -> int:
        """How many positions the memory holds."""
        return 0 if self.memory is None else self.memory.position

    @property
    def whole(self) -> bool:
        """Whether the memory holds every pass of the run as far as it has come."""
        return self.status == "done" and self.computed >= max(self.prompt_length, len(self.ids) - 1)

    @property
    def nbytes(self) -> int:
        return sum(memory.nbytes for memory in (self.memory, self.full) if memory is not None)

    def work(self, view: View, step: int | None) -> Pass:
        """The pass that a view and step name. Raises `NotFound` for a step that the run does not have."""
        if view == "full":
            return Pass(tuple(self.ids), 0)
        if view == "prefill":
            return Pass(self.request.token_ids, 0)
        k = 1 if step is None else step
        if not 1 <= k <= self.steps:
            if self.steps == 0:
                raise NotFound(
                    f"The run {self.id} has no decode step: it generated {len(self.ids) - self.prompt_length} tokens, "
                    "and the last is not fed back.",
                    "Ask for view=prefill, or start a run with max_new_tokens of 2 or more.",
                )
            raise NotFound(f"The run {self.id} has no decode step {k}.", f"Its steps are 1 to {self.steps}.")
        position = self.prompt_length + k - 1
        return Pass((self.ids[position],), position)

    def following(self) -> Pass:
        """The next pass to compute: the prompt, or one token."""
        if self.computed == 0:
            return Pass(self.request.token_ids, 0)
        return Pass((self.ids[self.computed],), self.computed)

    def tell(self) -> None:
        """Tell everyone who listens that something has changed."""
        for listener in tuple(self.listeners):
            listener()


def tokens_of(run: Run, texts: Sequence[str], labels: Sequence[str]) -> list[Token]:
    """The tokens of a run, with their texts."""
    template = frozenset(run.request.template)
    return [
        Token(
            position=position,
            id=token,
            text=text,
            label=label,
            origin="prompt" if position < run.prompt_length else "generated",
            template=position in template,
        )
        for position, (token, text, label) in enumerate(zip(run.ids[: len(texts)], texts, labels, strict=True))
    ]


def view_of(run: Run, waiting: int, trouble: str = "") -> RunView:
    """A run as it stands; `waiting` is its place in line, `trouble` is put into its note."""
    tokenizer = run.runner.checkpoint.tokenizer
    ids = list(run.ids)
    texts, labels = tokenizer.pieces(ids), [tokenizer.label(token) for token in ids]
    error = run.error
    checkpoint = run.runner.checkpoint
    template = frozenset(run.request.template)
    own = [token for position, token in enumerate(run.request.token_ids) if position not in template]
    plain = checkpoint.placement.dtype_name == "float32"
    return RunView(
        id=run.id,
        model=run.request.model,
        checkpoint=f"{checkpoint.path.name} sha256:{checkpoint.sha256[:12]}"
        + ("" if plain else f" {checkpoint.placement.words}"),
        status=run.status,
        prompt=tokenizer.written(own),
        chat=bool(template),
        prompt_length=run.prompt_length,
        max_new_tokens=run.request.max_new_tokens,
        temperature=run.request.temperature,
        seed=run.request.seed,
        tokens=tokens_of(run, texts, labels),
        steps=run.steps,
        waiting=waiting,
        seconds={"prefill": round(run.prefill_seconds, 4), "decode": round(run.decode_seconds, 4)},
        note=" ".join(filter(None, (run.note, trouble))),
        error=None if error is None else RunError(code=error.code, detail=error.detail, hint=error.hint),
    )
