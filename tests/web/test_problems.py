"""From an error to an answer: as a document, as a page, and never with a traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.responses import StreamingResponse

from atlas.catalog import Catalog
from atlas.errors import NotComputed, StorageError, TooMany
from atlas.settings import Settings
from atlas.web.app import create_app


@pytest.fixture(scope="module")
def client(catalog: Catalog, data_dir: Path) -> Iterator[TestClient]:
    app = create_app(Settings(data_dir=data_dir), catalog=catalog)
    app.router.routes[:0] = _broken().router.routes
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def _broken() -> FastAPI:
    """Addresses that fail in every way."""
    broken = FastAPI()

    @broken.get("/api/broken/fault")
    @broken.get("/broken/fault")
    def fault() -> None:
        raise ZeroDivisionError("secret number 42")

    @broken.get("/api/broken/disk")
    @broken.get("/broken/disk")
    def disk() -> None:
        raise StorageError("The disk is full.", "Free some space.", path="weights")

    @broken.get("/api/broken/many")
    def many() -> None:
        raise TooMany("The queue is full.", "Wait.", waiting=32)

    @broken.get("/api/broken/absent")
    def absent() -> None:
        raise NotComputed("There is no mask here.", "Take another view.", status=200)

    @broken.get("/api/broken/stream")
    def stream() -> StreamingResponse:
        def parts() -> Iterator[bytes]:
            yield b"some"
            raise ZeroDivisionError

        return StreamingResponse(parts())

    @broken.get("/api/broken/typed")
    def typed(count: int) -> int:
        return count

    return broken


def test_a_fault_is_logged_under_the_requests_id_and_says_nothing_of_itself(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = client.get("/api/broken/fault", headers={"x-request-id": "fault-1"})
    said = answer.json()
    assert (answer.status_code, said["code"], said["request_id"]) == (500, "internal", "fault-1")
    assert "secret" not in answer.text
    assert "fault-1" in caplog.text
    assert "secret number 42" in caplog.text


def test_a_fault_of_a_page_is_a_page(client: TestClient) -> None:
    answer = client.get("/broken/fault", headers={"x-request-id": "fault-2"})
    assert answer.status_code == 500
    assert answer.headers["content-type"].startswith("text/html")
    assert "log under fault-2" in answer.text
    assert "Traceback" not in answer.text


def test_known_errors_keep_code_hint_and_facts(client: TestClient) -> None:
    said = client.get("/api/broken/disk").json()
    assert said["status"] == 507
    assert said["title"] == "Insufficient Storage"
    assert (said["code"], said["detail"], said["hint"]) == ("storage", "The disk is full.", "Free some space.")
    assert said["path"] == "weights"
    assert "Free some space." in client.get("/broken/disk").text
    many = client.get("/api/broken/many")
    assert (many.status_code, many.headers["retry-after"], many.json()["waiting"]) == (429, "5", 32)


def test_facts_do_not_replace_what_a_problem_always_says(client: TestClient) -> None:
    said = client.get("/api/broken/absent").json()
    assert (said["status"], said["code"]) == (404, "not-computed")


def test_bad_input_names_the_field_and_does_not_send_it_back(client: TestClient) -> None:
    answer = client.get("/api/broken/typed?count=elephant")
    assert answer.status_code == 422
    said = answer.json()
    assert said["code"] == "bad-request"
    assert said["detail"].startswith("count: ")
    assert "elephant" not in answer.text


def test_a_wrong_method_is_a_problem_that_names_the_right_one(client: TestClient) -> None:
    answer = client.delete("/api/models")
    assert (answer.status_code, answer.json()["code"]) == (405, "method-not-allowed")
    assert "GET" in answer.headers["allow"]
    assert "GET" in answer.json()["hint"]


def test_a_stream_that_breaks_is_cut(client: TestClient) -> None:
    with pytest.raises(ZeroDivisionError), TestClient(client.app) as strict:
        strict.get("/api/broken/stream")


def test_an_unknown_call_is_a_problem(client: TestClient) -> None:
    for address in ("/api", "/api/nowhere"):
        answer = client.get(address)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
