"""The engine: one thread that owns the models, shares it among runs, and answers requests for tensors.

Runs advance a pass at a time, in turn. Requests for tensors go first: they are served between passes and, within a
long pass, before each block, so nobody waits longer than about one block. A run beyond the memory budget gives its
memory up and is taken through the same tokens again when somebody asks.

Everything public may be called from any thread. It knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import torch

from atlas.catalog import Catalog, Model
from atlas.errors import AtlasError, Conflict, NotFound, NotReady
from atlas.runtime.admission import check_request, place_in_line, require_a_place
from atlas.runtime.arrivals import Arrival, Arrivals
from atlas.runtime.captures import Captured, Captures, Portion, Wanted, checked
from atlas.runtime.chat import Chat, apply_template
from atlas.runtime.distributed.group import Group
from atlas.runtime.distributed.liveness import GroupLost
from atlas.runtime.distributed.member import gather_together, load_together
from atlas.runtime.distributed.place import Place
from atlas.runtime.journal import RUNS, Journal
from atlas.runtime.passes import Passes
from atlas.runtime.placement import Placement
from atlas.runtime.references.base import GivenUp, Memory, ReferenceRunner
from atlas.runtime.roster import Roster, Status
from atlas.runtime.runs import FINISHED, Run, RunRequest, RunView, Waiting, view_of
from atlas.runtime.shelf import Shelf, identity_of
from atlas.runtime.tallies import Tallies
from atlas.runtime.tensor_requests import Made, Make, TensorRequests
from atlas.runtime.turns import Turns
from atlas.settings import CheckpointChoice, Settings

log = logging.getLogger(__name__)
DEMONSTRATION = "The capital of France is"
DEMONSTRATION_TOKENS = 8
NICE = 8
"""How much less than pages a pass wants a core, as Unix counts it."""
LAST_BLOCK = 3.0
"""Seconds that a long pass may take to its next safe point, where it is given up when the server stops."""


class Engine:
    """One thread, its models and its runs.

    With `demonstrate` it makes a run by itself as soon as it can. Runs are kept in the data directory's journal, and
    those that are unfinished there go on; a process that is not the server has a `journal` of its own, or the path of
    one. With a `place` among several processes the models are split over them, and this one leads. With
    `stand_back` its thread lets the process's others go first.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        status: Status | None = None,
        *,
        demonstrate: bool = True,
        journal: Journal | Path | None = None,
        place: Place | None = None,
        stand_back: bool = False,
    ) -> None:
        self.settings = settings
        self.catalog = catalog
        self.status = status or Status()
        self.demonstrations: dict[str, str] = {}
        self._demonstrate = demonstrate
        self._stands_back = stand_back
        self.place = place
        self.group: Group | None = None
        self.lost = threading.Event()
        """Set once the models cannot run any more, since a rank is gone."""
        self._roster = Roster(settings, catalog, self.status)
        path = settings.data_dir / RUNS if journal is None else journal
        self.journal = path if isinstance(path, Journal) else Journal(path)
        self._shelf = Shelf(self.journal, self._roster.runners.get)
        self._captures = Captures()
        self.tallies = Tallies()
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._turns = Turns()
        self._passes = Passes(self.journal, self.tallies)
        self._requests = TensorRequests(self._captures, self.tallies, self._wake, self._memory_for, self.lose)
        self._arrivals = Arrivals(self._roster, self._lock, self._joined)
        self._stopping = False
        self._stop_by = 0.0
        self._observe()
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    # --- for everybody

    def start(self) -> None:
        """Start loading; `status` tells how far it is."""
        self._thread.start()

    def drain(self) -> None:
        """Begin to stop: nothing new is taken, who follows a run is told, and the pass under way may end.

        It may for as long as `drain_seconds` says; then it is given up at the next safe point.
        """
        with self._wake:
            if self._stopping:
                return
            self._stopping = True
            self._stop_by = time.monotonic() + self.settings.drain_seconds
            for run in self._shelf:
                run.tell()
            self._wake.notify_all()

    def close(self, timeout: float | None = None) -> None:
        """Stop. What waits is told so; what is unfinished goes on at the next start.

        Waits for `timeout` seconds, by default as long as the pass under way may take.
        """
        self.drain()
        if self._thread.is_alive():
            self._thread.join(max(0.0, self._stop_by - time.monotonic()) + LAST_BLOCK if timeout is None else timeout)
        self.journal.close()

    @property
    def demonstration(self) -> str | None:
        """The run with which the default model shows what it does, once there is one."""
        return self.demonstrations.get(self._roster.live)

    def has_checkpoint(self, model: str) -> bool:
        """Whether the model runs on weights of its own here."""
        return model in self._roster.runners

    def add(self, choice: CheckpointChoice, placement: Placement | None = None) -> Arrival:
        """Take another checkpoint while serving. Raises `NotReady`, `BadRequest`, `Conflict`."""
        if self.place is not None:
            raise Conflict(
                f"Models are split over {self.place.world} ranks here, which open them together when they start.",
                f"Start all ranks again with --checkpoint {choice.model}=PATH.",
            )
        return self._arrivals.add(choice, placement)

    def checkpoints(self) -> list[Arrival]:
        """Every checkpoint that runs here, is being opened, or was refused."""
        return self._arrivals.all()

    def stand_in(self, model: str) -> str:
        """The model whose values are shown for a model: itself, or another. Raises `NotFound`."""
        return self._roster.stand_in(model)

    def runner(self, model: str) -> ReferenceRunner:
        """Raises `NotReady` while starting, `NotFound` for no model, `NoCheckpoint` for one without weights."""
        return self._roster.runner(model)

    def tokens(self, model: str, prompt: str, add_bos: bool | None = None) -> list[int]:
        """A prompt as token ids, BOS as the tokenizer's settings say unless told. Raises `BadRequest`."""
        return self.runner(model).checkpoint.tokenizer.encode(prompt, add_bos)

    def chat(self, model: str, text: str) -> Chat:
        """A text as a message by the model's chat template, as token ids. Raises `BadRequest`."""
        return apply_template(self.runner(model).checkpoint.tokenizer, text)

    def submit(self, request: RunRequest, client: str = "") -> RunView:
        """Start a run, or find it: the same request is the same run. A failed one starts again.

        `client` is who asks, by any name; one may have so many unfinished runs, nobody ("") any number.
        Raises `BadRequest`, `TooLarge`, `TooMany`, `NoCheckpoint`, `NotReady`.
        """
        runner = self.runner(request.model)
        check_request(request, runner, self.settings)
        identity = identity_of(request, runner)
        with self._wake:
            run = self._shelf.find(identity)
            if run is None or run.status in ("failed", "cancelled"):
                if self._stopping:
                    raise NotReady("The server is stopping.", "Ask again when it is back.")
                require_a_place(self._shelf, client, self.settings)
                run = self._shelf.new(identity, request, runner)
                run.client = client
                self._turns.add([run])
                self._wake.notify_all()
        return self.view(identity)

    def run(self, identity: str) -> Run:
        """Raises `NotFound`, and `Conflict` for a run of weights that are not here."""
        with self._lock:
            run = self._shelf.find(identity) if self.status.ready else None
        if run is None:
            self._roster.require_ready()
            raise NotFound(f"There is no run {identity!r}.", "Start it again with POST /api/runs.")
        return run

    def view(self, identity: str) -> RunView:
        """A run as it stands. Raises `NotFound`."""
        run = self.run(identity)
        with self._lock:
            waiting, trouble = place_in_line(run, self._shelf), self.journal.trouble
        return view_of(run, waiting, trouble)

    def delete(self, identity: str) -> None:
        """Cancel and forget. Raises `NotFound`."""
        run = self.run(identity)
        with self._wake:
            run.cancelled = True
            self._shelf.forget(identity)
            if run.status == "queued":
                self._finish(run, "cancelled")
            self._wake.notify_all()

    async def watch(self, identity: str) -> AsyncIterator[RunView]:
        """The run as it stands now, and again whenever it has changed, until it is finished."""
        run = self.run(identity)
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop may have been closed meanwhile
                loop.call_soon_threadsafe(changed.set)

        with self._lock:
            run.listeners.append(tell)
        try:
            while True:
                changed.clear()
                if self.lost.is_set():
                    return
                if run.cancelled and run.status != "done":
                    with contextlib.suppress(NotFound):
                        yield self.view(identity).model_copy(update={"status": "cancelled"})
                    return
                yield self.view(identity)
                if run.status in FINISHED or self._stopping:
                    return
                await changed.wait()
        finally:
            with self._lock:
                run.listeners.remove(tell)

    async def tensor(self, identity: str, node: str, view: str, layer: int | None, step: int | None) -> Captured:
        """One tensor of a run. Raises as `tensors`."""
        return (await self.tensors(identity, [node], view, layer, step))[node]

    async def tensors(
        self, identity: str, nodes: Sequence[str], view: str, layer: int | None, step: int | None
    ) -> dict[str, Captured]:
        """Several tensors of one pass and layer, made in one replay.

        Raises `NotFound` (run, node, layer, step), `NotComputed`, `BadRequest` (view, kind of node), `Conflict`
        (not finished). Tensors that this pass does not compute are left out if others were asked with them.
        """
        return await asyncio.wrap_future(self.request(identity, nodes, view, layer, step))

    def request(
        self, identity: str, nodes: Sequence[str], view: str, layer: int | None, step: int | None
    ) -> Future[dict[str, Captured]]:
        """As `tensors`, for a caller without an event loop. Raises what can be known at once."""
        run, wanted = self._checked(identity, nodes, view, layer, step)

        def make(known: dict[str, Captured], memory: Memory | None) -> dict[str, Captured]:
            return known if memory is None else self._captures.make(run, wanted, memory, known)

        return self._ask(run, wanted, make)

    async def portion(
        self, identity: str, node: str, view: str, layer: int | None, step: int | None, portion: Portion
    ) -> Captured:
        """Part of one tensor, its axes those of the whole. Raises as `tensors`, `BadRequest` for a rank that there is
        not, and what the portion raises.
        """
        run, wanted = self._checked(identity, [node], view, layer, step)

        def make(known: dict[str, Captured], memory: Memory | None) -> Captured | None:
            return self._captures.portion(run, wanted, memory, known, portion)

        return await asyncio.wrap_future(self._ask(run, wanted, make, keep=not wanted.passless))

    async def expressions(
        self, identity: str, view: str, layer: int | None, step: int | None, rank: int | None = None
    ) -> tuple[ReferenceRunner, dict[str, list[torch.Tensor]]]:
        """Every tensor that an expression of the reference code gives in one block, or, where `layer` is None, before
        and after the blocks; by the expression's name, in order of appearance. With `rank` that rank's shares. Raises
        as `tensors`, and `BadRequest` for a rank that there is not.
        """
        run, wanted = self._checked(identity, ["blocks/block-input"], view, layer, step)
        inner = layer is not None

        def make(_: dict[str, Captured], memory: Memory | None) -> dict[str, list[torch.Tensor]] | None:
            return None if memory is None else self._captures.expressions(run, wanted, memory, inner=inner, rank=rank)

        return run.runner, await asyncio.wrap_future(self._ask(run, wanted, make, keep=False))

    def _checked(
        self, identity: str, nodes: Sequence[str], view: str, layer: int | None, step: int | None
    ) -> tuple[Run, Wanted]:
        run = self.run(identity)
        unfinished = run.status not in FINISHED
        if unfinished and view == "full":
            raise Conflict(
                f"The run {identity} has not finished, and the full sequence is a pass over all its tokens.",
                "Ask again when its status is done.",
            )
        if unfinished and view == "decode" and run.steps < (1 if step is None else step):
            raise Conflict(f"That decode step of the run {identity} is not computed yet.", "Ask again in a moment.")
        return run, checked(run, nodes, view, layer, step)

    def _ask(self, run: Run, wanted: Wanted, make: Make[Made], *, keep: bool = True) -> Future[Made]:
        with self._lock:
            if self._stopping:
                raise NotReady("The server is stopping.", "Ask again when it is back.")
            if self.lost.is_set():
                self._roster.require_ready()
            return self._requests.ask(run, wanted, make, keep=keep)

    def lose(self, error: GroupLost) -> None:
        """The models cannot run any more: whoever waits is told why, and so is whoever asks from now on.

        Runs stay as they are in the journal, and go on at the next start. The engine's own thread may still be waiting
        for a rank that never answers, so nothing here waits for it.
        """
        with self._wake:
            self.status.ready, self.status.error, self.status.stage = False, error, "failed"
            self.lost.set()
            for run in self._shelf:
                run.tell()
            self._wake.notify_all()
        self._requests.fail(error)

    # --- the engine's thread

    def _main(self) -> None:
        if self._stands_back:
            _stand_back()
        try:
            self._load()
        except AtlasError as error:
            if self._stopping:  # before there was anything to stop
                self._stop()
                return
            log.error("The engine could not start: %s", error)
            self._fail(error)
            return
        except Exception as error:  # whatever went wrong, the pages go on and say so
            log.exception("The engine could not start")
            self._fail(NotReady(f"The engine could not start: {error!r}.", "See the server's log."))
            return
        while True:
            with self._wake:
                while not (self._requests or self._turns or self._stopping or self.lost.is_set()):
                    self._wake.wait()
                if self._stopping or self.lost.is_set():
                    break
            self._requests.serve()
            self._advance()
        self._stop()

    def _joined(self) -> None:
        """A model has joined: runs of it that were left unfinished go on."""
        with self._wake:
            self._turns.add(self._shelf.unfinished())
            self._wake.notify_all()

    def _fail(self, error: AtlasError) -> None:
        self._roster.failed(error)
        if self.place is not None:
            if self.group is not None:
                self.group.liveness.leave(str(error))
            self.lost.set()

    def _load(self) -> None:
        if self.settings.threads:
            torch.set_num_threads(self.settings.threads)
        if self.place is None:
            self._roster.load()
        else:
            self.group = self._roster.group = gather_together(
                self.place, self.settings, self.catalog, self._roster.progress
            )
            self.group.liveness.tell(self.lose)
            load_together(self.group, self._roster)
        # What has been loaded stays: the garbage collector need not look at it in every pass.
        gc.collect()
        gc.freeze()
        with self._lock:
            if self.lost.is_set():
                self._roster.require_ready()
            self.status.ready = True
            self._turns.add(self._shelf.unfinished())
        self._roster.progress("ready", 1.0)
        if self._demonstrate:
            untrained = [model for model in self._roster.runners if self.catalog.entry(model).untrained]
            for model in (self._roster.live, *untrained):
                ids = tuple(self.tokens(model, DEMONSTRATION))
                request = RunRequest(
                    model=model, token_ids=ids, max_new_tokens=DEMONSTRATION_TOKENS, temperature=0.0, seed=0
                )
                self.demonstrations[model] = self.submit(request).id

    def _advance(self) -> None:
        """Take the run whose turn it is one pass further."""
        with self._lock:
            run = self._turns.next(self.settings.memory_budget)
        if run is None:
            return
        if run.cancelled:
            self._finish(run, "cancelled")
            return
        try:
            if self._passes.take(run, lambda _: self._safe_point(run)):
                run.status = "done"
                self._shelf.write_status(run)
                self._ended(run)
            run.tell()
        except GivenUp:
            if run.cancelled:
                self._finish(run, "cancelled")
            return
        except GroupLost as error:  # the run is none the worse for it
            self.lose(error)
            return
        except AtlasError as error:
            run.error = error
            self._finish(run, "failed")
            return
        except Exception as error:  # one run's failure is not the others'
            log.exception("The run %s failed", run.id)
            run.error = AtlasError(f"The run failed: {error!r}.", "Start it again; the server's log says more.")
            self._finish(run, "failed")
            return
        self._release(run)
        with self._lock:
            self._shelf.keep_within(self.settings.memory_budget, {run, *self._turns})
            self._turns.put_back(run)

    def _safe_point(self, run: Run) -> None:
        """Between two blocks of a run's pass: give it up if nobody wants it, and serve who waits for tensors."""
        if run.cancelled or (self._stopping and time.monotonic() > self._stop_by):
            raise GivenUp
        self._requests.serve()
        if run.status == "done" and run.waiting and all(request.unwanted() for request in run.waiting):
            run.waiting.clear()  # a pass that is made again, and whoever asked for it has left
            run.full_wanted = False
            raise GivenUp

    def _memory_for(self, run: Run, wanted: Wanted, again: Waiting) -> Memory | None:
        """The memory that a replay needs, or None: then `again` is served once it is there."""
        if wanted.view == "full":
            if run.full is not None:
                return run.full
            run.full_wanted = True
        elif run.memory is not None and run.memory.position >= wanted.work.stop:
            return run.memory
        if self._stopping:
            raise NotReady("The server is stopping.", "Ask again when it is back.")
        run.waiting.append(again)
        with self._wake:
            self._turns.put_first(run)
            self._wake.notify_all()
        return None

    def _release(self, run: Run) -> None:
        """Put the requests that waited for this run back in line."""
        waiting = list(run.waiting)
        run.waiting.clear()
        self._requests.put_back(waiting)

    def _finish(self, run: Run, status: str) -> None:
        run.status = "failed" if status == "failed" else "cancelled"
        run.memory = run.full = None
        self._shelf.write_status(run)
        with self._lock:
            self._turns.leave(run)
        self._release(run)
        self._ended(run)
        run.tell()

    def _ended(self, run: Run) -> None:
        """Count a run that has ended, and tell those that wait that there is one less before them."""
        self.tallies.runs.labels(run.status).inc()
        log.info("The run %s is %s: %d tokens", run.id, run.status, len(run.ids))
        for other in self._shelf:
            if other.status == "queued":
                other.tell()

    def _observe(self) -> None:
        """Numbers that are read off the engine when somebody asks for them."""

        def count(status: str) -> float:
            with self._lock:
                return sum(run.status == status for run in self._shelf)

        def held() -> float:
            with self._lock:
                return self._shelf.nbytes

        show = self.tallies.show
        show("atlas_runs_queued", "Runs that wait.", lambda: count("queued"))
        show("atlas_runs_running", "Runs under way.", lambda: count("running"))
        show("atlas_run_bytes", "Memory that runs hold: block inputs and caches.", held)
        show("atlas_run_bytes_budget", "Memory that they may hold.", lambda: self.settings.memory_budget)
        show("atlas_kept_tensor_bytes", "Memory of tensors that are kept for the next reader.", self._captures.held)
        show("atlas_tensor_requests_waiting", "Requests for tensors that wait.", lambda: len(self._requests))
        show("atlas_journal_ok", "1 where runs are written down, 0 where they cannot be.", self._journal_ok)
        if self.place is not None:
            show("atlas_gathered_bytes", "Bytes of tensors that came from other ranks.", self._gathered)
        show("atlas_ready", "1 where the default model is ready.", lambda: float(self.status.ready))

    def _gathered(self) -> float:
        return 0.0 if self.group is None else float(self.group.received)

    def _journal_ok(self) -> float:
        return 0.0 if self.journal.trouble else 1.0

    def _stop(self) -> None:
        """Tell all that wait. What is unfinished stays so in the journal, and goes on at the next start."""
        with self._lock:
            for run in self._shelf:
                self._release(run)
                run.tell()
        self._requests.serve()
        if self.group is not None:
            self.group.close()

    def model_of(self, identity: str) -> Model:
        """The model that a run ran."""
        return self.run(identity).runner.model


def _stand_back() -> None:
    """Let the other threads of this process go first, where the system has priorities of threads (Linux).

    The threads that torch starts for this one inherit it. So a page does not wait for a core that a pass is using.
    """
    if sys.platform == "linux":  # elsewhere the number of a thread may be that of a process
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
