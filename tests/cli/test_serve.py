"""Serving: the port is taken first, the pages are up before the model, and the end is in good order."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import pytest

from atlas.cli.serve import listen, url
from atlas.errors import EnvironmentUnfit

from .conftest import Atlas, Start, finish


def get(address: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_a_busy_port_is_found_before_anything_is_loaded(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        said = finish(start("serve", "--port", str(port), options=("-X", "importtime")))
    assert (said.code, said.out) == (2, "")
    lines = [line for line in said.err.splitlines() if not line.startswith("import time:")]
    assert lines == [
        f"Error: Cannot listen on 127.0.0.1 port {port}: Address already in use. "
        f"Stop what listens there, or take another port: atlas serve --port {port % 65535 + 1}"
    ]
    imported = {line.rpartition("|")[2].strip() for line in said.err.splitlines()}
    assert "click" in imported
    assert imported.isdisjoint({"torch", "fastapi", "uvicorn", "atlas.catalog", "atlas.web.app"})


@pytest.mark.parametrize(
    ("host", "says", "hint"),
    [
        ("nowhere.invalid", "is no address of this machine", "--host 127.0.0.1"),
        ("192.0.2.1", "Cannot assign requested address", "--host 127.0.0.1"),
    ],
)
def test_a_host_that_is_not_here_is_named(host: str, says: str, hint: str) -> None:
    with pytest.raises(EnvironmentUnfit) as caught:
        listen(host, 0)
    assert says in caught.value.detail
    assert hint in caught.value.hint


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")])
def test_the_address_is_one_that_a_browser_can_open(host: str, shown: str) -> None:
    with closing(listen(host, 0)) as listening:
        port = listening.getsockname()[1]
        assert url(*listening.getsockname()[:2]) == f"http://{shown}:{port}"
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


@pytest.mark.parametrize(
    ("host", "shown"),
    [("192.0.2.7", "192.0.2.7"), ("::1", "[::1]"), ("2001:db8::5", "[2001:db8::5]"), ("::", "127.0.0.1")],
)
def test_an_ipv6_address_is_in_brackets(host: str, shown: str) -> None:
    assert url(host, 8000) == f"http://{shown}:8000"


def test_ipv6_is_listened_on_or_it_is_said_that_it_cannot_be() -> None:
    with suppress(OSError):
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        with closing(listen("::1", 0)) as listening:
            host, port = listening.getsockname()[:2]
            assert url(host, port) == f"http://[::1]:{port}"
            socket.create_connection((host, port), timeout=5).close()
        return
    with pytest.raises(EnvironmentUnfit, match=r"::1.*--host 127\.0\.0\.1"):
        listen("::1", 0)


def test_it_serves_pages_at_once_then_numbers_and_stops_when_it_is_asked_to(start: Start) -> None:
    process = start("serve", "--port", "0")
    try:
        assert process.stdout is not None
        greeting = process.stdout.readline()
        address = re.fullmatch(r"OpenModelAtlas is at (http://127\.0\.0\.1:\d+) \(Ctrl\+C stops it\)\n", greeting)
        assert address is not None, greeting
        assert get(f"{address[1]}/healthz")[0] == 200
        status, page = get(f"{address[1]}/models/llama-3-8b/blocks/attention/attention-update")
        assert status == 200
        assert b"Attention update" in page
        deadline = time.monotonic() + 120
        while (ready := get(f"{address[1]}/readyz"))[0] != 200:
            assert json.loads(ready[1])["code"] == "not-ready"
            assert time.monotonic() < deadline, ready
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGINT)
        said = finish(process)
    assert said.code == 0
    told = said.err.splitlines()
    assert told[0] == "Importing torch"
    assert "Ready" in told
    assert told[-1] == "Stopped."
    assert "Traceback" not in said.err


def test_an_incomplete_installation_is_one_line(atlas: Atlas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("atlas.render.assets._PLACES", (tmp_path,))
    said = atlas("serve", "--port", "0")
    assert said.code == 2
    assert "is not installed" in said.err
    assert said.err.count("\n") == 1
