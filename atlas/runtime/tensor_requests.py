"""Requests for tensors: taken from any thread, served by the engine's, each answered once.

Owns who waits for an answer and what is answered. When requests are served, and how a run comes by the memory that
a replay needs, is the engine's to say.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from atlas.errors import AtlasError, Conflict, NotFound
from atlas.runtime.captures import Captured, Captures, Wanted
from atlas.runtime.distributed.liveness import GroupLost
from atlas.runtime.references.base import Memory
from atlas.runtime.runs import Run, Waiting
from atlas.runtime.tallies import Tallies

log = logging.getLogger(__name__)
Made = TypeVar("Made")
Make = Callable[[dict[str, Captured], Memory | None], Made | None]
"""Makes an answer from the tensors that are known and the run's memory; None where it needs the memory and has none."""


class TensorRequests:
    """The line of requests that wait to be served.

    `wake` is the engine's condition. `memory_for` gives the memory that a replay needs, or None: then the engine puts
    the request back in line once it is there. `lose` is told of a rank that is gone.
    """

    def __init__(
        self,
        captures: Captures,
        tallies: Tallies,
        wake: threading.Condition,
        memory_for: Callable[[Run, Wanted, Waiting], Memory | None],
        lose: Callable[[GroupLost], None],
    ) -> None:
        self._captures = captures
        self._tallies = tallies
        self._wake = wake
        self._memory_for = memory_for
        self._lose = lose
        self._line: deque[Waiting] = deque()
        self._unanswered: set[Future[Any]] = set()

    def __len__(self) -> int:
        return len(self._line)

    # --- for everybody

    def ask(self, run: Run, wanted: Wanted, make: Make[Made], *, keep: bool = True) -> Future[Made]:
        """Have the engine's thread make something; without `keep` what is at hand already does not do."""
        future: Future[Made] = Future()

        def serve() -> None:
            if not future.cancelled():
                self._serve(run, wanted, make, keep, future, waiting)

        waiting = Waiting(serve, future.cancelled)
        with self._wake:
            self._unanswered.add(future)
            future.add_done_callback(self._unanswered.discard)
            self._line.append(waiting)
            self._wake.notify_all()
        return future

    def fail(self, error: AtlasError) -> None:
        """Tell everyone who waits, in line or elsewhere, that there will be no answer."""
        with self._wake:
            unanswered = list(self._unanswered)
        for future in unanswered:
            self._settle(future, failure=error)

    # --- for the engine

    def put_back(self, waiting: Iterable[Waiting]) -> None:
        """Have requests that waited elsewhere served next."""
        with self._wake:
            self._line.extend(waiting)
            self._wake.notify_all()

    def serve(self) -> None:
        """Serve those that wait now, in the engine's thread; one that comes meanwhile waits for the next time."""
        for _ in range(len(self._line)):
            try:
                waiting = self._line.popleft()
            except IndexError:
                return
            waiting.serve()

    def _serve(
        self, run: Run, wanted: Wanted, make: Make[Made], keep: bool, future: Future[Made], again: Waiting
    ) -> None:
        """Answer one request, or put it with the run until what it needs has been computed.

        Until it is answered, whoever asked may go: then the future is cancelled, and there is nobody to answer.
        """
        failure: AtlasError | None = None
        made: Made | None = None
        try:
            if run.cancelled and run.status != "done":
                raise NotFound(f"The run {run.id} was cancelled.", "Start it again with POST /api/runs.")
            if run.status == "failed":
                raise Conflict(f"The run {run.id} failed.", "Start it again with POST /api/runs.")
            run.runner.checkpoint.require_whole()
            known = self._captures.kept(run, wanted) if keep else {}
            if wanted.passless or (keep and len(known) == len(wanted.nodes)):
                made = make(known, None)
                self._tallies.kept.labels("kept").inc()
            if made is None:
                memory = self._memory_for(run, wanted, again)
                if memory is None:
                    return
                started = time.perf_counter()
                made = make(known, memory)
                self._tallies.replays.observe(time.perf_counter() - started)
                self._tallies.kept.labels("replayed").inc()
        except GroupLost as error:
            self._lose(error)
            failure = error
        except AtlasError as error:
            failure = error
        except Exception as error:  # the engine must go on
            log.exception("A tensor of the run %s could not be made", run.id)
            failure = AtlasError(f"The tensor could not be made: {error!r}.", "See the server's log.")
        self._settle(future, made, failure)

    def _settle(self, future: Future[Made], made: Made | None = None, failure: AtlasError | None = None) -> None:
        """Give whoever asked an answer, once. One who has left gets none."""
        with self._wake:
            if future not in self._unanswered:
                return
            self._unanswered.discard(future)
            if not future.set_running_or_notify_cancel():
                return
        if failure is not None:
            future.set_exception(failure)
        else:
            assert made is not None
            future.set_result(made)
