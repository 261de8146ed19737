"""The journal on real SQLite files: what is acknowledged is kept, and no trouble of the file stops the service."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from atlas.catalog import Catalog
from atlas.errors import Conflict
from atlas.runtime import shelf as shelf_module
from atlas.runtime.engine import Engine
from atlas.runtime.journal import VERSION, CommandJournal, Entry, Journal
from atlas.runtime.runs import RunRequest
from atlas.settings import Settings

ENTRY = Entry("a" * 20, '{"x": 1}', "c" * 64, "r" * 64, "this machine", "queued", "", 0.0, 0.0)


def test_what_was_written_is_there_after_opening_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "runs.sqlite3")
    journal.begin(ENTRY)
    for step, token in enumerate((5, 6, 7)):
        journal.token(ENTRY.id, step, token)
    journal.close()
    again = Journal(tmp_path / "deep" / "runs.sqlite3")
    assert again.find(ENTRY.id) == replace(ENTRY, generated=(5, 6, 7))
    assert [entry.id for entry in again.unfinished()] == [ENTRY.id]
    again.status(ENTRY.id, "done", "", 1.5, 2.5)
    assert again.unfinished() == []
    again.forget(ENTRY.id)
    assert again.find(ENTRY.id) is None
    again.close()


def test_starting_again_forgets_the_old_tokens(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.sqlite3")
    journal.begin(ENTRY)
    journal.token(ENTRY.id, 0, 5)
    journal.begin(ENTRY)
    found = journal.find(ENTRY.id)
    assert found is not None
    assert found.generated == ()
    journal.close()


def test_a_commands_run_is_in_the_file_when_it_is_done_and_not_before(tmp_path: Path) -> None:
    server, command = Journal(tmp_path / "runs.sqlite3"), CommandJournal(tmp_path / "runs.sqlite3")
    command.begin(ENTRY)
    command.token(ENTRY.id, 0, 5)
    command.token(ENTRY.id, 1, 6)
    assert server.find(ENTRY.id) is None
    assert server.unfinished() == []
    command.status(ENTRY.id, "done", "", 1.5, 2.5)
    done = replace(ENTRY, status="done", prefill_seconds=1.5, decode_seconds=2.5, generated=(5, 6))
    assert server.find(ENTRY.id) == command.find(ENTRY.id) == done
    command.forget(ENTRY.id)
    assert server.find(ENTRY.id) == done
    command.close()
    assert server.find(ENTRY.id) == done
    server.close()
    again = CommandJournal(tmp_path / "runs.sqlite3")
    assert again.find(ENTRY.id) == done
    again.close()


def test_a_command_leaves_a_servers_unfinished_runs_to_it(tmp_path: Path) -> None:
    server, command = Journal(tmp_path / "runs.sqlite3"), CommandJournal(tmp_path / "runs.sqlite3")
    other = replace(ENTRY, id="b" * 20)
    for entry in (ENTRY, other):
        server.begin(replace(entry, status="running"))
        server.token(entry.id, 0, 5)
    assert command.find(ENTRY.id) is None
    assert command.unfinished() == []
    command.begin(ENTRY)  # both compute it, and the command is the quicker
    for step, token in enumerate((5, 6)):
        command.token(ENTRY.id, step, token)
    command.status(ENTRY.id, "done", "", 1.0, 1.0)
    server.token(ENTRY.id, 1, 6)
    server.status(ENTRY.id, "done", "", 2.0, 2.0)
    found = server.find(ENTRY.id)
    assert found is not None
    assert (found.status, found.generated, found.prefill_seconds) == ("done", (5, 6), 2.0)
    assert [entry.id for entry in server.unfinished()] == [other.id]
    late = CommandJournal(tmp_path / "runs.sqlite3")
    late.begin(ENTRY)
    late.status(ENTRY.id, "done", "", 9.0, 9.0)
    assert server.find(ENTRY.id) == found, "a finished run stays what it is"
    for journal in (late, command, server):
        journal.close()


def test_a_file_that_a_command_cannot_write_is_said(tmp_path: Path) -> None:
    (tmp_path / "runs.sqlite3").mkdir()
    command = CommandJournal(tmp_path / "runs.sqlite3")
    command.begin(ENTRY)
    command.status(ENTRY.id, "done", "", 1.0, 1.0)
    assert command.trouble.startswith("Runs are not written down at the moment")
    found = command.find(ENTRY.id)
    assert found is not None
    assert found.status == "done"
    command.close()


def test_tokens_after_a_gap_do_not_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.sqlite3")
    journal.begin(ENTRY)
    journal.token(ENTRY.id, 0, 5)
    journal.token(ENTRY.id, 2, 7)
    found = journal.find(ENTRY.id)
    assert found is not None
    assert found.generated == (5,)
    journal.close()


def test_a_damaged_file_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite3"
    path.write_bytes(b"SQLite format 3\x00" + os.urandom(8192))
    journal = Journal(path)
    assert not journal.trouble
    journal.begin(ENTRY)
    assert journal.find(ENTRY.id) == ENTRY
    journal.close()
    assert list(tmp_path.glob("runs.sqlite3.damaged-*"))


def test_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    journal = Journal(path)
    assert "newer version" in journal.trouble
    journal.begin(ENTRY)
    assert journal.find(ENTRY.id) is None
    journal.close()
    assert path.read_bytes() == before


def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.sqlite3")
    assert journal._connection is not None
    journal._connection.execute("PRAGMA max_page_count = 8")
    for number in range(200):
        journal.begin(replace(ENTRY, id=f"{number:020}", request="x" * 500))
    assert "full" in journal.trouble
    assert journal.find(f"{0:020}") is not None
    journal._connection.execute("PRAGMA max_page_count = 100000")
    journal.begin(ENTRY)
    assert not journal.trouble
    journal.close()


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    journal = Journal(tmp_path / "file" / "runs.sqlite3")
    assert journal.trouble
    journal.begin(ENTRY)
    assert journal.find(ENTRY.id) is None


def test_killed_while_writing(tmp_path: Path) -> None:
    """What the process had said it wrote is there after kill -9."""
    path = tmp_path / "runs.sqlite3"
    program = (
        "import sys; from pathlib import Path; from atlas.runtime.journal import Journal, Entry\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "journal.begin(Entry('a' * 20, '{}', 'c' * 64, 'r' * 64, 'm', 'running', '', 0.0, 0.0))\n"
        "for step in range(10**9):\n"
        "    journal.token('a' * 20, step, step); print(step, flush=True)\n"
    )
    for delay in (0.0, 0.05, 0.2):
        child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        said = child.stdout.read().split("\n")
        child.wait()
        child.stdout.close()
        acknowledged = max([0, *(int(line) for line in said[:-1] if line)])
        journal = Journal(path)
        assert not journal.trouble
        found = journal.find("a" * 20)
        assert found is not None
        assert len(found.generated) >= acknowledged + 1
        journal.close()


def finished(engine: Engine, identity: str) -> None:
    deadline = time.monotonic() + 90
    while not engine.status.ready or engine.view(identity).status in ("queued", "running"):
        assert engine.status.error is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_goes_on_where_the_last_process_left_it(
    catalog: Catalog, own_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for entry in own_data_dir.iterdir():
        if not entry.name.startswith("runs."):
            (tmp_path / entry.name).symlink_to(entry)
    settings = Settings(data_dir=tmp_path)
    request = RunRequest(model="smollm2-135m", token_ids=(504, 3575, 282), max_new_tokens=40, temperature=1.0, seed=5)
    first = Engine(settings, catalog, demonstrate=False)
    first.start()
    while not first.status.ready:
        time.sleep(0.02)
    run = first.submit(request).id
    while len(first.view(run).tokens) < 10:
        time.sleep(0.01)
    first.close()
    told = [token.id for token in first.view(run).tokens]
    assert 10 <= len(told) < 43

    monkeypatch.setattr(shelf_module, "fingerprint", lambda: "another machine")
    second = Engine(settings, catalog, demonstrate=False)
    second.start()
    while not second.status.ready:
        time.sleep(0.02)
    finished(second, run)
    ids = [token.id for token in second.view(run).tokens]
    assert ids[: len(told)] == told
    assert "another machine" in second.view(run).note
    node = "blocks/attention/head-outputs"
    value = second.request(run, [node], "decode", 3, 2).result(60)[node].tensor
    second.delete(run)
    again = second.submit(request).id
    finished(second, again)
    assert [token.id for token in second.view(again).tokens] == ids
    assert bool((second.request(again, [node], "decode", 3, 2).result(60)[node].tensor == value).all())
    second.close()


def test_a_run_of_weights_that_are_not_here_says_so(engine: Engine) -> None:
    request = RunRequest(model="gone", token_ids=(1,), max_new_tokens=1, temperature=0, seed=0)
    engine.journal.begin(replace(ENTRY, request=request.model_dump_json(), status="done"))
    with pytest.raises(Conflict, match="other weights"):
        engine.view(ENTRY.id)
    engine.journal.forget(ENTRY.id)
