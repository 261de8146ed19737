"""Headers, request ids, and the limit of a body."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from atlas.catalog import Catalog
from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.security import content_security_policy


@pytest.fixture(scope="module")
def client(catalog: Catalog, data_dir: Path) -> Iterator[TestClient]:
    app = create_app(Settings(data_dir=data_dir, max_body_bytes=4096), catalog=catalog)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize("address", ["/", "/api/models", "/static/page.css", "/nowhere", "/api/nowhere"])
def test_every_answer_has_the_policy(client: TestClient, address: str) -> None:
    headers = client.get(address).headers
    rules = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert rules["script-src"] == "'self'"
    assert rules["default-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "strict-origin-when-cross-origin"


def test_only_what_is_made_for_it_stands_in_another_sites_frame() -> None:
    assert "frame-ancestors *" in content_security_policy("/embed/llama-3-8b/blocks/block-output")
    assert "frame-ancestors 'none'" in content_security_policy("/models/llama-3-8b/embed/")


def test_a_plain_request_id_is_kept_and_another_replaced(client: TestClient) -> None:
    assert client.get("/api/nowhere", headers={"x-request-id": "abc-1"}).json()["request_id"] == "abc-1"
    answer = client.get("/api/nowhere", headers={"x-request-id": "a b\tc<script>"})
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert len(answer.headers["x-request-id"]) == 16
    assert len({client.get("/").headers["x-request-id"] for _ in range(5)}) == 5


def test_a_body_over_the_limit_is_refused_by_its_declared_length(client: TestClient) -> None:
    answer = client.post("/api/runs", content=b"x" * 5000)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["limit"] == 4096


def test_a_body_over_the_limit_is_refused_as_it_comes(client: TestClient) -> None:
    def parts() -> Iterator[bytes]:
        yield b'{"model": "'
        for _ in range(10):
            yield b"x" * 1000
        yield b'"}'

    answer = client.post("/api/runs", content=parts(), headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert "4,096 bytes" in answer.json()["detail"]
