"""The table and the JSON of a benchmark, on small numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.bench_engine import written_out
from benchmarks.report import (
    BEGIN,
    END,
    Found,
    as_json,
    growth_table,
    machine,
    put_into,
    ratios,
    results_table,
    spread,
    written,
)

ROOT = Path(__file__).resolve().parents[2]


def test_a_number_is_the_median_with_quartiles() -> None:
    found = spread("decode", [1.0, 1.2, 1.1, 1.4, 1.3], "×", "a step", 1.2)
    assert (found.value, found.low, found.high, found.count) == (1.2, 1.1, 1.3, 5)
    assert found.met is True
    assert spread("decode", [2.0], "×", "a step", 1.2).met is False
    assert spread("decode", [2.0], "×", "a step").met is None
    with pytest.raises(ValueError, match="decode was not measured"):
        spread("decode", [], "×", "a step")


def test_each_measurement_is_compared_with_the_one_that_it_was_paired_with() -> None:
    assert ratios([2.0, 6.0], [1.0, 2.0]) == [2.0, 3.0]
    with pytest.raises(ValueError):
        ratios([1.0], [])


def test_the_table_says_what_met_its_goal_what_missed_it_and_what_failed() -> None:
    found = [
        spread("prefill", [1.1, 1.2, 1.3], "×", "128 tokens", 1.15),
        Found("page", 8.25, "ms", "a page", 20),
        Found("peer", None, "×", "another library", failed="it has | no such model"),
    ]
    assert results_table(found).splitlines()[2:] == [
        "| `prefill` | 1.200 × | 1.150 – 1.250 of 3 | 1.150 | **missed** | 128 tokens |",
        "| `page` | 8.250 ms |  | 20 | met | a page |",
        "| `peer` | failed |  |  |  | another library: it has / no such model |",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, ""), (2.0, "2"), (0.0172, "0.017"), (1.5, "1.500"), (12.34, "12.3"), (875.4, "875"), (12345.6, "12,346")],
)
def test_numbers_have_three_digits_or_so(number: float | None, text: str) -> None:
    assert written(number) == text


def test_the_whole_report_is_readable_as_markdown_and_as_json() -> None:
    way = {"way": "bare", "ms": 70.0, "ratio": 1.0, "over_ms": 0.0, "pages": 0}
    report = {
        "date": "2026-01-01 00:00 UTC",
        "machine": machine(),
        "quick": True,
        "model": "A model",
        "threads": 2,
        "versions": {"torch": "2"},
        "seconds": 5,
        "growth": [{"tokens": 32, "prefill, s": 0.25}, {"tokens": 128, "prefill, s": None}],
        "profile": {"ways": [way], "counts": {"torch calls": 2600}},
    }
    found = [Found("page", 8.25, "ms", "a page", 20, more={"pages": 40})]
    text = written_out(report, found)
    assert "A model in float32" in text
    assert "only show that it works" in text
    assert growth_table(report["growth"]) in text  # type: ignore[arg-type]
    assert "| 32 | 0.250 |\n| 128 |  |" in text
    assert "2,600 torch calls" in text
    read = json.loads(as_json(report, found))
    assert read["results"]["page"]["value"] == 8.25
    assert read["results"]["page"]["met"] is True
    assert read["results"]["page"]["more"] == {"pages": 40}
    assert read["machine"]["cores"] >= 1
    assert read["growth"][0]["tokens"] == 32


def test_a_document_says_what_was_measured_last(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter é\n", "utf-8")
    put_into(document, "\n| new |\n")
    assert document.read_text("utf-8") == f"before\n{BEGIN}\n| new |\n{END}\nafter é\n"
    document.write_text(f"before\n{END}\n")
    with pytest.raises(ValueError, match="no place for the report"):
        put_into(document, "new")
    assert document.read_text() == f"before\n{END}\n"


def test_the_readme_holds_what_the_results_say() -> None:
    """Nobody mends a number by hand, or measures without saying so."""
    results = json.loads((ROOT / "benchmarks/results.json").read_text("utf-8"))
    readme = (ROOT / "README.md").read_text("utf-8")
    report = readme.partition(BEGIN)[2].partition(END)[0]
    assert not results["quick"]
    assert results["date"] in report
    assert results["machine"]["processor"] in report
    for key, one in results["results"].items():
        said = "failed" if one["value"] is None else f"{written(one['value'])} {one['unit']}"
        assert f"| `{key}` | {said} |" in report
    assert growth_table(results["growth"]) in report
