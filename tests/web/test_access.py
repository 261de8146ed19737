"""Who may come in and who may change anything: Host, token, public, Origin; on the application without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from atlas.catalog import Catalog
from atlas.settings import Settings
from atlas.web.app import create_app

TOKEN = "correct-horse-battery"
NODE = "/models/llama-3-8b/final-norm/normalized?view=decode"


def client(catalog: Catalog, tmp_path: Path, **settings: Any) -> TestClient:
    given: dict[str, Any] = {"data_dir": tmp_path, "allowed_host": (), **settings}
    app = create_app(Settings(**given), catalog=catalog)
    return TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False, follow_redirects=False)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "127.9.8.7", "localhost:8000", "LOCALHOST", "[::1]:8000", "atlas.example", "127.0.0.1"]
)
def test_hosts_that_are_this_server(catalog: Catalog, tmp_path: Path, host: str) -> None:
    ours = client(catalog, tmp_path, allowed_host=("atlas.example",))
    assert ours.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "192.168.1.5", ""),
        *("127.0.0.1:8000@evil.example", "[::1", "[::2]", "localhost/../", "<script>", "127.0.0.1:port", "a b"),
        "x" * 5000,
    ],
)
def test_other_hosts_are_refused_whatever_they_ask_for(catalog: Catalog, tmp_path: Path, host: str) -> None:
    answer = client(catalog, tmp_path).get("/", headers={"Host": host})
    assert (answer.status_code, answer.headers["content-type"]) == (421, "application/problem+json")
    assert answer.json()["code"] == "wrong-host"
    assert "evil" not in answer.text
    assert "default-src" in answer.headers["content-security-policy"]


def test_a_server_on_all_addresses_goes_by_any_address_and_by_no_name(catalog: Catalog, tmp_path: Path) -> None:
    wide = client(catalog, tmp_path, host="0.0.0.0", public=True)
    for host in ("192.168.1.5:8000", "[2001:db8::1]:8000", "0.0.0.0:8000", "localhost"):
        assert wide.get("/healthz", headers={"Host": host}).status_code == 200
    assert wide.get("/healthz", headers={"Host": "evil.example"}).status_code == 421


def test_without_a_token_nothing_but_health_and_styles(catalog: Catalog, tmp_path: Path) -> None:
    guarded = client(catalog, tmp_path, token=TOKEN)
    assert guarded.get("/healthz").status_code == 200
    assert guarded.get("/static/site.js").status_code == 200
    for path in ("/", NODE, "/api/models", "/openapi.json", "/readyz", "/metrics", "/nothing"):
        answer = guarded.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert guarded.get("/api/models").json()["code"] == "unauthorized"
    assert guarded.post("/api/runs", json={}).status_code == 401
    page = guarded.get(NODE)
    assert page.headers["content-type"].startswith("text/html")
    assert 'href="/models/llama-3-8b/final-norm/normalized"' in page.text


@pytest.mark.parametrize("given", ["Bearer wrong-horse-battery", "Bearer ", "bearer é", "Bearer " + TOKEN + "x"])
def test_a_wrong_token_is_said_to_be_wrong(catalog: Catalog, tmp_path: Path, given: str) -> None:
    for settings in ({"token": TOKEN}, {"token": TOKEN, "public": True}):
        guarded = client(catalog, tmp_path, **settings)
        answer = guarded.get("/api/models", headers=[(b"Authorization", given.encode("latin-1"))])
        assert answer.status_code == 401
        assert guarded.get("/api/models?token=wrong").status_code == 401


def test_a_bearer_token_lets_in(catalog: Catalog, tmp_path: Path) -> None:
    guarded = client(catalog, tmp_path, token=TOKEN)
    assert guarded.get("/api/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_token_in_the_address_becomes_a_cookie_once(catalog: Catalog, tmp_path: Path) -> None:
    guarded = client(catalog, tmp_path, token=TOKEN)
    answer = guarded.get(f"{NODE}&token={TOKEN}&layer=3")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{NODE}&layer=3"
    assert answer.headers["cache-control"] == "no-store"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert TOKEN not in cookie
    assert guarded.get(NODE).status_code == 200
    assert client(catalog, tmp_path, token=TOKEN + "2").get(NODE, headers={"Cookie": cookie}).status_code == 401


def test_behind_tls_the_cookie_stays_there(catalog: Catalog, tmp_path: Path) -> None:
    guarded = client(catalog, tmp_path, token=TOKEN)
    guarded.base_url = guarded.base_url.copy_with(scheme="https")
    assert "Secure" in guarded.get(f"/?token={TOKEN}").headers["set-cookie"]


@pytest.mark.parametrize(
    "path", ["//evil.example/", "///evil.example", "/\\evil.example/", "//evil.example/%0d%0aX: y"]
)
def test_the_way_on_never_leads_to_another_site(catalog: Catalog, tmp_path: Path, path: str) -> None:
    guarded = client(catalog, tmp_path, token=TOKEN)
    answer = guarded.get(f"http://127.0.0.1:8000{path}?token={TOKEN}")
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/")
    assert not answer.headers["location"].startswith(("//", "/\\"))
    assert "x" not in answer.headers
    refused = guarded.get(f"http://127.0.0.1:8000{path}", headers={"Cookie": ""})
    assert 'href="//' not in refused.text


def test_a_public_server_reads_and_changes_nothing(catalog: Catalog, tmp_path: Path) -> None:
    public = client(catalog, tmp_path, public=True)
    page = public.get(NODE)
    assert page.status_code == 200
    assert "This server is read-only" in page.text
    for method in ("POST", "DELETE", "PUT", "PATCH"):
        answer = public.request(method, "/api/runs/abc" if method == "DELETE" else "/api/runs")
        assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
        assert answer.json()["code"] == "read-only"
    assert public.get("/metrics").status_code == 403  # the in-process client is no loopback address


def test_a_public_server_lets_who_has_the_token_change_things(catalog: Catalog, tmp_path: Path) -> None:
    both = client(catalog, tmp_path, public=True, token=TOKEN)
    own = {"Authorization": f"Bearer {TOKEN}"}
    assert "read-only" in both.get(NODE).text
    assert "read-only" not in both.get(NODE, headers=own).text
    assert both.post("/api/runs", json={}).status_code == 403
    assert both.post("/api/runs", json={}, headers=own).status_code == 422
    assert both.get("/metrics", headers=own).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9000"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:8000"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_page_of_another_site_changes_nothing(
    catalog: Catalog, tmp_path: Path, headers: dict[str, str], method: str
) -> None:
    ours = client(catalog, tmp_path)
    answer = ours.request(method, "/api/runs" if method == "POST" else "/api/runs/x", json={}, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["code"] == "other-origin"
    assert ours.get("/", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://127.0.0.1:8000"},
        {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "https://atlas.example"},
    ],
)
def test_own_pages_and_programs_may(catalog: Catalog, tmp_path: Path, headers: dict[str, str]) -> None:
    ours = client(catalog, tmp_path, allowed_host=("atlas.example",))
    assert ours.post("/api/runs", json={}, headers=headers).status_code == 422  # what is wrong is the body
