"""The other ranks: they load the same models, their share of them, and do what rank 0 says until it says `close`.

Owns the loop, and the memory of runs by model and the number that rank 0 gave it. Nothing of the web, and no journal.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from atlas.errors import BadRequest
from atlas.runtime.distributed.group import Group
from atlas.runtime.recorder import Recording
from atlas.runtime.references.base import GivenUp, Memory, Pass, ReferenceRunner

log = logging.getLogger(__name__)


class Follower:
    """One rank at work."""

    def __init__(self, group: Group, runners: Mapping[str, ReferenceRunner]) -> None:
        self._group = group
        self._runners = runners
        self._memories: dict[tuple[str, int], Memory] = {}
        self._recording = Recording()

    def follow(self) -> None:
        """Do as told until told to close. Raises `GroupLost`."""
        while True:
            command = self._group.hear()
            if command["do"] == "close":
                return
            self._do(command)

    def _do(self, command: Mapping[str, Any]) -> None:
        what = command["do"]
        if what in ("give", "give weight"):
            self._give(command)
            return
        if what == "weigh":
            runner = self._runners[command["model"]]
            with self._group.together():
                runner.whole(command["name"])  # type: ignore[attr-defined]  # those that rank 0 asks this of have it
            return
        if what == "drop":
            self._recording = Recording()
            return
        if what not in ("pass", "capture", "replay"):
            raise BadRequest(f"Rank {self._group.rank} was told to {what!r}, which it does not know.", "")
        for number in command["freed"]:
            self._memories.pop((command["model"], number), None)
        runner = self._runners[command["model"]]
        memory = self._memory(runner, *command["memory"])
        work = Pass(tuple(command["tokens"]), command["start"])
        with self._group.together():
            if what == "pass":
                try:
                    runner.forward(work, memory, self._stop if command["stops"] else None)
                except GivenUp:
                    return
            elif what == "capture":
                _, self._recording = runner.capture(work, memory, runner.sites(command["sites"]))
            else:
                sites = runner.sites(command["sites"])
                self._recording = runner.replay(work, memory, command["part"], command["layer"], sites)

    def _stop(self, _: int) -> None:
        """Before a block: what rank 0 answers meanwhile is answered here too."""
        while True:
            command = self._group.hear()
            if command["do"] == "go on":
                return
            if command["do"] == "abandon":
                raise GivenUp
            self._do(command)

    def _give(self, command: Mapping[str, Any]) -> None:
        for one in command["wanted"]:
            entries = one["of"].get(str(self._group.rank))
            if entries is not None:
                if command["do"] == "give weight":
                    value = self._runners[command["model"]].weight(one["key"])
                else:
                    value = self._recording.values[one["key"], one["layer"]][one["turn"]]
                self._group.send(value[tuple(entry if isinstance(entry, int) else slice(*entry) for entry in entries)])

    def _memory(self, runner: ReferenceRunner, number: int, capacity: int, cached: bool) -> Memory:
        key = (runner.model.id, number)
        if key not in self._memories:
            self._memories[key] = runner.memory(capacity, cache=cached)
        return self._memories[key]
