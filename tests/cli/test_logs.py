"""Log lines: one a record, whatever is in it; text for people, JSON for programs, each with its request's id."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from atlas.cli import logs
from atlas.web.security import current_request

HOSTILE = "a\nb\r2026 INFO forged\x1b[2J\x00\u2028\u202e\x85</script>"


Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers = root.handlers[:]
    loggers = [root, *(logging.getLogger(name) for name in logs.TALKATIVE)]
    levels = [logger.level for logger in loggers]
    yield
    root.handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def test_a_hostile_message_stays_on_its_line(capsys: Captured) -> None:
    logs.set_up("info", "text")
    logging.getLogger("atlas.test").warning("asked for %s", HOSTILE)
    (line,) = capsys.readouterr().err.splitlines()
    assert r"a\nb\r2026 INFO forged\x1b[2J\x00\u2028\u202e\x85</script>" in line
    assert line.isprintable()


def test_a_traceback_is_indented_and_cannot_forge_a_line(capsys: Captured) -> None:
    logs.set_up("info", "text")
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("atlas.test").exception("failed")
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith("ERROR atlas.test: failed")
    assert rest
    assert all(line.startswith("  | ") and line.isprintable() for line in rest)


def test_json_is_one_object_a_line_with_the_request(capsys: Captured) -> None:
    logs.set_up("info", "json")
    token = current_request.set("abc123")
    logging.getLogger("atlas.test").info("asked for %s", HOSTILE, extra={"status": 404, "ms": 1.5})
    current_request.reset(token)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger("atlas.test").exception("failed")
    said = capsys.readouterr().err
    first, second = (json.loads(line) for line in said.splitlines())
    assert first["message"] == f"asked for {HOSTILE}"
    assert (first["level"], first["request_id"], first["status"], first["ms"]) == ("info", "abc123", 404, 1.5)
    assert first["time"].endswith("Z")
    assert second["request_id"] is None
    assert "ValueError" in second["traceback"]
    assert said.isascii()


def test_the_level_is_kept_and_libraries_do_not_tell_what_they_send(capsys: Captured) -> None:
    logs.set_up("warning", "text")
    logging.getLogger("atlas.requests").info("GET /")
    assert capsys.readouterr().err == ""
    logs.set_up("debug", "text")
    logging.getLogger("sse_starlette.sse").debug("chunk: a token")
    logging.getLogger("atlas.requests").debug("GET /healthz")
    said = capsys.readouterr().err
    assert "token" not in said
    assert "GET /healthz" in said
