"""Which of several processes this one is, as a launcher (torchrun, or whoever sets its variables) says.

Reads the environment and nothing else: no torch, no network.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from atlas.errors import EnvironmentUnfit

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
HINT = "Start all processes with torchrun: torchrun --nproc-per-node N -m atlas serve"


@dataclass(frozen=True)
class Place:
    """This process among `world` of them, `local` among those of this machine. They meet at `address`:`port`, at their
    `attempt` from 0; the launcher starts them again `restarts` more times if one ends.
    """

    rank: int
    world: int
    address: str
    port: int
    local: int = 0
    attempt: int = 0
    restarts: int = 0

    @classmethod
    def here(cls, environment: Mapping[str, str] | None = None) -> Self | None:
        """None where this process is alone. Raises `EnvironmentUnfit` for variables that do not fit together."""
        given = os.environ if environment is None else environment
        if "WORLD_SIZE" not in given:
            return None
        missing = [name for name in NEEDED if not given.get(name)]
        if missing:
            raise EnvironmentUnfit(f"WORLD_SIZE is set, but not {' and '.join(missing)}.", HINT)
        numbers = {}
        for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
            if not given[name].isascii() or not given[name].isdecimal():
                raise EnvironmentUnfit(f"{name} is {given[name][:40]!r}, which is no number.", HINT)
            numbers[name] = int(given[name])
        rank, world = numbers["RANK"], numbers["WORLD_SIZE"]
        if not rank < world:
            raise EnvironmentUnfit(f"RANK is {rank}, but ranks run from 0 to {world - 1} (WORLD_SIZE).", HINT)
        if world == 1:
            return None
        attempt = _count(given, "TORCHELASTIC_RESTART_COUNT")
        most = _count(given, "TORCHELASTIC_MAX_RESTARTS")
        return cls(
            rank,
            world,
            given["MASTER_ADDR"],
            numbers["MASTER_PORT"],
            local=_count(given, "LOCAL_RANK"),
            attempt=attempt,
            restarts=max(0, most - attempt),
        )

    @property
    def serves(self) -> bool:
        """Whether this one serves the pages."""
        return self.rank == 0

    @property
    def on_loopback(self) -> bool:
        """Whether all processes meet on this machine alone."""
        if self.address == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False


def _count(given: Mapping[str, str], name: str) -> int:
    text = given.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else 0
