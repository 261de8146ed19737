"""Kept answers: what is asked again is not made again, and a damaged, full or read-only file takes no page away."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from atlas.render.javascript import JavaScript
from atlas.render.kept import KeptAnswers

COUNTED = "(...given) => { globalThis.calls = (globalThis.calls ?? 0) + 1; return [globalThis.from, given]; }"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "library.js"
    path.write_text("globalThis.from = 'one';")
    return path


def test_a_question_is_asked_once_even_by_another_process_later(script: Path, tmp_path: Path) -> None:
    first, second = JavaScript(), JavaScript()
    first.kept = KeptAnswers(tmp_path / "kept.sqlite3")
    assert first.ask(script, COUNTED, 1, "é") == ["one", [1, "é"]]
    assert first.ask(script, COUNTED, 1, "é") == ["one", [1, "é"]]
    assert first.call("() => globalThis.calls") == 1
    second.kept = KeptAnswers(tmp_path / "kept.sqlite3")
    assert second.ask(script, COUNTED, 1, "é") == ["one", [1, "é"]]
    assert second.call("() => globalThis.calls ?? 0") == 0
    for engine in (first, second):
        engine.close()
        engine.kept.close()


def test_another_script_function_or_argument_is_another_question(script: Path, tmp_path: Path) -> None:
    engine = JavaScript()
    other = tmp_path / "other.js"
    other.write_text("globalThis.from = 'two';")
    assert engine.ask(script, COUNTED, 1) == ["one", [1]]
    assert engine.ask(script, COUNTED, True) == ["one", [True]]
    assert engine.ask(other, COUNTED, 1) == ["two", [1]]
    assert engine.ask(script, "() => 3") == 3
    engine.close()


def test_what_is_not_to_be_kept_is_not(script: Path) -> None:
    engine = JavaScript()
    for _ in range(2):
        engine.ask(script, COUNTED, keep=False)
    assert engine.call("() => globalThis.calls") == 2
    engine.close()


def test_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite3"
    path.write_bytes(b"no database at all" * 1000)
    kept = KeptAnswers(path)
    assert kept.find(b"q") is None
    kept.keep(b"q", "answer")
    kept.close()
    assert KeptAnswers(path).find(b"q") == "answer"


def test_a_damaged_answer_is_none(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite3"
    kept = KeptAnswers(path)
    kept.keep(b"q", "answer")
    with sqlite3.connect(path) as file:
        file.execute("UPDATE answers SET answer = ?", (b"x\x9cnonsense",))
    assert kept.find(b"q") is None
    kept.keep(b"q", "again")
    assert kept.find(b"q") == "again"
    kept.close()


def test_where_nothing_can_be_written_it_says_so_once_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    with caplog.at_level(logging.WARNING):
        kept = KeptAnswers(blocked / "kept.sqlite3")
        kept.keep(b"q", "answer")
        assert kept.find(b"q") == "answer"
    assert len(caplog.records) == 1
    assert "Pages are made all the same" in caplog.text


def test_a_full_disk_stops_the_keeping_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = KeptAnswers(tmp_path / "kept.sqlite3")
    kept.keep(b"small", "answer")
    (pages,) = kept._connection.execute("PRAGMA page_count").fetchone()
    kept._connection.execute(f"PRAGMA max_page_count = {pages}")
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            kept.keep(b"large", os.urandom(50_000).hex() + str(number))
    assert len(caplog.records) == 1
    assert kept.find(b"small") == "answer"
    assert kept.find(b"large") is None
    kept.close()


def test_the_oldest_go_when_there_are_many(tmp_path: Path) -> None:
    kept = KeptAnswers(tmp_path / "kept.sqlite3", most=100)
    for number in range(250):
        kept.keep(str(number).encode(), str(number))
    (count,) = kept._connection.execute("SELECT count(*) FROM answers").fetchone()
    assert 80 <= count <= 101
    assert kept.find(b"0") is None
    assert kept.find(b"249") == "249"
    kept.close()


def test_threads_and_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite3"
    program = (
        "import sys; from pathlib import Path; from atlas.render.kept import KeptAnswers\n"
        "kept = KeptAnswers(Path(sys.argv[1]))\n"
        "for n in range(200): kept.keep(f'theirs {n}'.encode(), 'x' * n)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program, str(path)])
    kept = KeptAnswers(path)

    def work(number: int) -> str | None:
        kept.keep(f"ours {number}".encode(), "y" * number)
        return kept.find(f"ours {number}".encode())

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(work, range(200)))
    assert found == ["y" * number for number in range(200)]
    assert other.wait(60) == 0
    assert all(kept.find(f"theirs {number}".encode()) == "x" * number for number in range(200))
    kept.close()
