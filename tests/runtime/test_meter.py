from __future__ import annotations

import time

import pytest

from atlas.runtime.meter import Meter


def test_tells_the_fraction_at_most_a_hundred_times() -> None:
    told: list[tuple[str, float | None]] = []
    with Meter("Working", 1000, lambda *said: told.append(said)) as meter:
        for _ in range(1000):
            meter.advance(1)
        meter.advance(5)
    assert told == [("Working", percent / 100) for percent in range(101)]


def test_tells_no_fraction_of_an_unknown_total() -> None:
    told: list[tuple[str, float | None]] = []
    with Meter("Working", 0, lambda *said: told.append(said)) as meter:
        meter.advance(5)
    assert told == [("Working", None)]


def test_says_one_line_in_a_log_once_it_lasts(capsys: pytest.CaptureFixture[str]) -> None:
    with Meter("Working", 4_000_000) as meter:
        meter.advance(1)
        assert capsys.readouterr().err == ""
        time.sleep(1.01)
        meter.advance(1)
        meter.advance(1)
    assert capsys.readouterr().err == "Working (4 MB) ...\n"
