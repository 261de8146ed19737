"""Slices in a URL: `0,3,:,2:8`, one entry an axis, as numpy reads them, without steps.

A number takes one index and drops the axis; `a:b` keeps it; negative numbers count from the end. Entries that are
missing at the end mean all of an axis. What lies outside an axis is refused with the axis and its size named:
a range that numpy would cut short silently is more likely a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from atlas.errors import BadRequest

Index = int | slice
_NUMBER = re.compile(r"-?[0-9]{1,18}")


def parse_slice(text: str, axes: Sequence[str], shape: Sequence[int]) -> tuple[Index, ...]:
    """An index for each axis, non-negative and inside it; `slice` objects have no step.

    Raises `BadRequest` that names the entry, the axis and its size.
    """
    entries = [entry.strip() for entry in text.split(",")] if text.strip() else []
    if len(entries) > len(shape):
        raise BadRequest(
            f"The slice {text!r} has {len(entries)} entries, but the tensor has {len(shape)} axes: "
            f"{_described(axes, shape)}.",
            "Give at most one entry for each axis.",
        )
    parsed = [_entry(entry, axis, size) for entry, axis, size in zip(entries, axes, shape, strict=False)]
    return (*parsed, *(slice(0, size) for size in shape[len(parsed) :]))


def remaining(index: Sequence[Index], axes: Sequence[str]) -> tuple[str, ...]:
    """The axes that a slice keeps."""
    return tuple(axis for axis, entry in zip(axes, index, strict=True) if isinstance(entry, slice))


def _entry(entry: str, axis: str, size: int) -> Index:
    if _NUMBER.fullmatch(entry):
        at = int(entry)
        if not -size <= at < size:
            raise _refused(entry, axis, size, "is outside the axis")
        return at % size
    start, colon, stop = entry.partition(":")
    if not colon or not all(part == "" or _NUMBER.fullmatch(part) for part in (start, stop)):
        raise _refused(entry, axis, size, "is not a number, `a:b` or `:`")
    ends = [int(part) if part else default for part, default in ((start, 0), (stop, size))]
    if any(not -size <= end <= size for end in ends):
        raise _refused(entry, axis, size, "reaches outside the axis")
    first, last = (end + size if end < 0 else end for end in ends)
    if first >= last:
        raise _refused(entry, axis, size, "is empty")
    return slice(first, last)


def _refused(entry: str, axis: str, size: int, why: str) -> BadRequest:
    return BadRequest(
        f"The slice entry {entry!r} {why} {axis!r}, which has size {size:,}."
        if "axis" in why
        else f"The slice entry {entry!r} {why} (axis {axis!r}, size {size:,}).",
        f"Use an index from 0 to {size - 1}, a range such as 0:{size}, or `:` for all of it.",
        axis=axis,
        size=size,
    )


def _described(axes: Sequence[str], shape: Sequence[int]) -> str:
    return ", ".join(f"{axis} ({size:,})" for axis, size in zip(axes, shape, strict=True)) or "none"
