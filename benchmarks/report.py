"""What a benchmark has found: numbers with goals, as a table for people and as JSON. Measures nothing."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

KIBI = 1024
BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"
"""Between these a document holds the report, as `make bench ARGS=--readme` has written it."""


@dataclass(frozen=True)
class Found:
    """One number: the median of `count` repeats, half of which lie between `low` and `high`.

    `goal` is the most that is wanted (None: there is none). `how` says what was measured, and `more` has other numbers
    of the same measurement. Where a measurement failed, `value` is None and `failed` says why.
    """

    key: str
    value: float | None
    unit: str
    how: str
    goal: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 1
    failed: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is no goal, or no number."""
        return None if self.goal is None or self.value is None else self.value <= self.goal


def spread(key: str, values: Sequence[float], unit: str, how: str, goal: float | None = None, **more: Any) -> Found:
    """A number from repeats: their median and quartiles. Raises ValueError without repeats."""
    if not values:
        raise ValueError(f"{key} was not measured once")
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return Found(key, middle, unit, how, goal, low, high, len(values), more=more)


def ratios(mine: Sequence[float], others: Sequence[float]) -> list[float]:
    """Each measurement over the one it was paired with."""
    return [one / other for one, other in zip(mine, others, strict=True)]


def results_table(found: Sequence[Found]) -> str:
    """Markdown: one line a number."""
    lines = [
        "| key | result | half of the repeats | goal | | measured |",
        "| --- | ---: | ---: | ---: | --- | --- |",
    ]
    for one in found:
        between = "" if one.count < 2 else f"{written(one.low)} – {written(one.high)} of {one.count}"
        goal = "" if one.goal is None else f"{written(one.goal)}"
        verdict = {None: "", True: "met", False: "**missed**"}[one.met]
        result = "failed" if one.value is None else f"{written(one.value)} {one.unit}".strip()
        how = one.how if not one.failed else f"{one.how}: {one.failed.replace('|', '/')}"
        lines.append(f"| `{one.key}` | {result} | {between} | {goal} | {verdict} | {how} |")
    return "\n".join(lines)


def growth_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: one line a length of prompt."""
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + " ---: |" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join("" if row[c] is None else written(row[c]) for c in columns) + " |")
    return "\n".join(lines)


def profile_table(found: Mapping[str, Any]) -> str:
    """Markdown: one line a way to take the step."""
    lines = ["| decode step | CPU ms | × bare | over bare, ms | new pages |", "| --- | ---: | ---: | ---: | ---: |"]
    for way in found["ways"]:
        lines.append(
            f"| {way['way']} | {way['ms']:.1f} | {way['ratio']:.3f} | {way['over_ms']:.1f} | {way['pages']:,} |"
        )
    counts = ", ".join(f"{number:,} {what}" for what, number in found["counts"].items())
    return "\n".join([*lines, "", f"In one captured step: {counts}."])


def written(number: float | None) -> str:
    """A number in three digits or so, without an exponent."""
    if number is None:
        return ""
    if number == int(number) or abs(number) >= 1000:
        return f"{number:,.0f}"
    digits = 0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 3
    return f"{number:.{digits}f}"


def machine() -> dict[str, Any]:
    """What it was measured on. Load is the mean of a minute before, in processes that want a core."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / KIBI**3, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def as_json(report: Mapping[str, Any], found: Sequence[Found]) -> str:
    """The whole report, with the numbers by key."""
    results = {one.key: asdict(one) | {"met": one.met} for one in found}
    for one in results.values():
        del one["key"]
    return json.dumps({**report, "results": results}, indent=1, ensure_ascii=False) + "\n"


def put_into(document: Path, report: str) -> None:
    """Have a document say what was measured last, between its marks. Raises ValueError where it has none."""
    before, begin, rest = document.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{document} has no place for the report: it lies between {BEGIN} and {END}")
    document.write_text(f"{before}{BEGIN}\n{report.strip()}\n{END}{after}", "utf-8")


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.is_file() else []
