"""Who may have files of the server's machine opened, and what is told of those that are open."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.backend import Backend

ORDER = {"path": "/nowhere/at/all"}


def test_the_default_is_listed_without_its_place(live_client: TestClient) -> None:
    (default,) = live_client.get("/api/checkpoints").json()
    assert default["model"] == "smollm2-135m"
    assert default["file"] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert (default["status"], default["dtype"], default["device"]) == ("ready", "float32", "cpu")
    assert default["held"] == "float32 on cpu, 0.5 GB in memory"


@pytest.mark.parametrize(
    ("client", "headers", "status"),
    [
        ("127.0.0.1", {}, 422),
        ("::1", {}, 422),
        ("192.0.2.7", {}, 403),
        ("127.0.0.1", {"X-Forwarded-For": "192.0.2.7"}, 403),
        ("127.0.0.1", {"Via": "1.1 proxy"}, 403),
    ],
)
def test_without_a_token_only_this_machine_may_name_a_file(
    live_app: FastAPI, client: str, headers: dict[str, str], status: int
) -> None:
    with TestClient(live_app, client=(client, 50000), raise_server_exceptions=False) as asking:
        answer = asking.post("/api/checkpoints", json=ORDER, headers=headers)
    assert answer.status_code == status
    assert answer.json()["code"] == {422: "bad-request", 403: "forbidden"}[status]


@pytest.mark.parametrize(("bearer", "status"), [("a-long-secret", 503), ("another-secret", 401), ("", 401)])
def test_with_a_token_whoever_has_it_may(tmp_path: Path, bearer: str, status: int) -> None:
    settings = Settings(data_dir=tmp_path, token="a-long-secret")
    app = create_app(settings)
    with TestClient(app, client=("192.0.2.7", 50000), raise_server_exceptions=False) as asking:
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        assert asking.post("/api/checkpoints", json=ORDER, headers=headers).status_code == status


def test_a_public_server_takes_none(tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path, public=True))
    with TestClient(app, client=("127.0.0.1", 50000), raise_server_exceptions=False) as asking:
        assert asking.post("/api/checkpoints", json=ORDER).json()["code"] == "read-only"


def test_before_the_engine_is_there_it_says_how_far_it_is(live_app: FastAPI, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    backend = Backend(settings, live_app.state.catalog)
    app = create_app(settings, catalog=live_app.state.catalog)
    app.state.backend = backend  # not started: torch is still being imported
    with TestClient(app, client=("127.0.0.1", 50000), raise_server_exceptions=False) as asking:
        answer = asking.post("/api/checkpoints", json=ORDER)
    assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
