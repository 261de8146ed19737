"""Where weights are put: their number format, the device that computes, and whether there is room for them.

Room is compared before anything is allocated. Knows no file format and no model: only names, shapes and sizes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from atlas.errors import CheckpointError, EnvironmentUnfit
from atlas.settings import Settings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""Number formats that weights may be run in, by the names that settings use."""


CPU = torch.device("cpu")


class Share(Protocol):
    """Which part of each weight a process has, where a model is split over `parts` of them."""

    @property
    def parts(self) -> int: ...
    @property
    def architecture(self) -> str:
        """Whose weights `index` knows. Of other models their own plan says what a share is, where they are built."""

    def index(self, name: str, shape: Sequence[int]) -> tuple[slice, ...]:
        """That part of a weight of this shape, by its name in the reference code."""

    def reader(self, model_class: Any, device: torch.device) -> Callable[..., Any]:
        """`from_pretrained` of a class of transformers, which reads this part of each weight. Raises
        `CheckpointError` for a class that has no plan of its parts.
        """


@dataclass(frozen=True)
class Placement:
    """The number format of weights and activations, and the device that they are on; of a model that is split over
    several processes, this one's `share` alone.
    """

    dtype: torch.dtype = torch.float32
    device: torch.device = CPU
    share: Share | None = None
    room: int | None = None
    """Bytes that this process may take, where others of its machine take of the same memory."""

    def put(self, name: str, weight: torch.Tensor) -> torch.Tensor:
        """A weight, placed. A share is in memory of its own, and of a mapped weight no more than that is read."""
        if self.share is None:
            return weight.to(self.device, self.dtype)
        part = weight[self.share.index(name, weight.shape)]
        return part.to(self.device, self.dtype, copy=True, memory_format=torch.contiguous_format)

    @property
    def dtype_name(self) -> str:
        """`float32`, `bfloat16`."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def words(self) -> str:
        """`bfloat16 on cpu`."""
        return f"{self.dtype_name} on {self.device.type}"


IN_FULL = Placement()
"""float32 on the processor."""


def chosen_placement(settings: Settings) -> Placement:
    """What the settings ask for; `auto` is the first device that is there. Raises `EnvironmentUnfit`."""
    return Placement(DTYPES[settings.dtype], found_device(settings.device))


def found_device(wanted: str = "auto") -> torch.device:
    """The device of that name; for `auto` CUDA, else MPS, else the processor. Raises `EnvironmentUnfit`."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return torch.device(next(name for name, answers in there.items() if answers))
    if not there[wanted]:
        raise EnvironmentUnfit(
            f"torch finds no {wanted.upper()} device on this machine.",
            f"Leave --device out: {found_device().type} is found by itself.",
        )
    return torch.device(wanted)


def free_memory(device: torch.device) -> int:
    """Bytes that weights may take on a device now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass  # no Linux: what is free without dropping anything, of one memory for processor and MPS
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def numbers_in(shapes: Iterable[Sequence[int]]) -> int:
    """How many numbers tensors of these shapes hold together."""
    return sum(math.prod(shape) for shape in shapes)


def require_room(path: Path, numbers: int, placement: Placement) -> str:
    """What weights of so many numbers need, in words: `0.5 GB in float32 on cpu, 11.0 GB free`. Refuses more than that.

    Raises `CheckpointError` that says what would fit.
    """
    numbers //= 1 if placement.share is None else placement.share.parts
    needed, free = numbers * placement.dtype.itemsize, free_memory(placement.device)
    free = free if placement.room is None else min(free, placement.room)
    words = f"{amount(needed)} in {placement.words}, {amount(free)} free"
    if needed <= free:
        return words
    smaller = [
        name
        for name, dtype in DTYPES.items()
        if dtype.itemsize < placement.dtype.itemsize and numbers * dtype.itemsize <= free
    ]
    hint = f"Try --dtype {smaller[0]}." if smaller else "Use a machine with more memory, or a smaller model."
    if (
        placement.device.type != "cpu"
        and not smaller
        and numbers * placement.dtype.itemsize <= free_memory(torch.device("cpu"))
    ):
        hint = "Try --device cpu."
    raise CheckpointError(
        f"{path} needs {words}.",
        hint,
        needed=needed,
        free=free,
    )


def amount(size: int) -> str:
    """`16.1 GB`, of bytes; small ones in MB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
