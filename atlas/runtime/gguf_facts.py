"""The metadata of a GGUF file, each value checked for type and range when it is asked for. Knows no architecture."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from atlas.errors import CheckpointError
from atlas.runtime.gguf_file import GgufFile, Value


class Facts:
    """The metadata, each value checked for type and range when it is asked for."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.path = file.path

    def refuse(self, reason: str, hint: str = "") -> NoReturn:
        raise CheckpointError(
            f"{self.path} cannot be used: {reason}.", hint or "Choose another file of the same model."
        )

    def integer(self, key: str, default: int | None = None, *, low: int = 1, high: int = 1 << 24) -> int:
        value = self.file.metadata.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.refuse(f"{key} is {shown(value)}, not a whole number from {low:,} to {high:,}")
        return value

    def positive(self, key: str, default: float | None = None) -> float:
        """A float32 as the shortest decimal that reads back to it: 1e-05, not 9.999999747378752e-06.

        That is the number that the authors wrote, and what the reference's own configurations hold.
        """
        value = self.file.metadata.get(key, default)
        if not isinstance(value, float) or not math.isfinite(value) or value <= 0:
            self.refuse(f"{key} is {shown(value)}, not a positive number")
        return float(str(np.float32(value)))

    def strings(self, key: str) -> list[str]:
        value = self.file.metadata.get(key)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self.refuse(f"{key} is not a list of strings")
        return [str(one) for one in value]

    def token(self, key: str, size: int) -> int | None:
        return self.integer(key, low=0, high=size - 1) if key in self.file.metadata else None

    def flag(self, key: str, default: bool | None = None) -> bool:
        """A truth value."""
        value = self.file.metadata.get(key, default)
        if not isinstance(value, bool):
            self.refuse(f"{key} is {shown(value)}, not true or false")
        return value


def quantization(file: GgufFile) -> str | None:
    """The type of most of the weights; None for float32."""
    counts: dict[str, int] = {}
    for entry in file.tensors.values():
        counts[entry.type.name] = counts.get(entry.type.name, 0) + entry.count
    most = max(counts, key=lambda name: counts[name])
    return None if most == "F32" else most


def shown(value: Value | None) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
