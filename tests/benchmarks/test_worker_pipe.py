"""Workers: answers, what libraries print, failures and delays, with real processes."""

from __future__ import annotations

import sys

import pytest

from benchmarks.worker_pipe import Worker, WorkerFailed, timed

WORKER = """
import time
from benchmarks.worker_pipe import serve

def add(a, b):
    print("what a library prints")
    return {"sum": a + b}

def fail():
    raise ValueError("no such model")

def sleep(seconds):
    time.sleep(seconds)
    return {}

serve({"add": add, "fail": fail, "sleep": sleep})
"""


def worker() -> Worker:
    return Worker("adder", [sys.executable, "-c", WORKER])


def test_a_worker_answers_one_question_after_the_other() -> None:
    with worker() as adder:
        assert adder.ask("add", a=1, b=2) == {"sum": 3}
        assert adder.ask("add", a=3, b=4) == {"sum": 7}


def test_a_failure_is_told_in_the_words_of_its_error() -> None:
    with worker() as adder:
        with pytest.raises(WorkerFailed, match="adder failed at 'fail': ValueError: no such model"):
            adder.ask("fail")
        with pytest.raises(WorkerFailed):
            adder.ask("add", a=1, b=2)


def test_who_takes_too_long_is_ended() -> None:
    with worker() as adder:
        adder.ask("add", a=1, b=2)
        with pytest.raises(WorkerFailed, match="no answer to 'sleep' within 0 s"):
            adder.ask("sleep", timeout=0.2, seconds=30)


def test_a_command_that_is_not_there_answers_nothing() -> None:
    with Worker("nobody", [sys.executable, "-c", ""]) as nobody, pytest.raises(WorkerFailed, match="code 0"):
        nobody.ask("add", a=1, b=2)


def test_time_is_measured_and_the_result_handed_over() -> None:
    result, taken = timed(lambda: sum(range(100_000)))
    assert result == 4_999_950_000
    assert taken["seconds"] > 0
    assert taken["cpu"] > 0
