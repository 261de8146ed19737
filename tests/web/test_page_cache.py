"""Pages are made once, and made again when anything that they depend on has changed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

from atlas.catalog import Catalog
from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.page_cache import PageCache

PAGE = "/models/llama-3-8b/final-norm/normalized"


@pytest.fixture
def app(catalog: Catalog, tmp_path: Path) -> FastAPI:
    return create_app(Settings(data_dir=tmp_path, public=True, token="let-me-in-please"), catalog=catalog)


@pytest.fixture
def made(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The templates that are rendered, in order."""
    templates = app.state.site.templates
    render, names = templates.render, list[str]()

    def noted(name: str, context: object) -> str:
        names.append(name)
        return str(render(name, context))

    monkeypatch.setattr(templates, "render", noted)
    return names


def test_a_page_is_made_once_and_is_the_same(app: FastAPI, made: list[str]) -> None:
    with TestClient(app) as client:
        first, again = client.get(PAGE), client.get(PAGE)
    assert made == ["node.html"]
    assert again.content == first.content
    differ = {"x-request-id", "date"}
    assert {k: v for k, v in again.headers.items() if k not in differ} == {
        k: v for k, v in first.headers.items() if k not in differ
    }
    assert again.headers["x-request-id"] != first.headers["x-request-id"]


def test_whatever_it_depends_on_makes_another(app: FastAPI, made: list[str], tmp_path: Path) -> None:
    asked: list[tuple[str, dict[str, str]]] = [
        (PAGE, {}),
        (f"{PAGE}?view=decode", {}),
        (PAGE, {"Cookie": "theme=dark"}),
        (PAGE, {"Accept-Encoding": "identity"}),
        (PAGE, {"Authorization": "Bearer let-me-in-please"}),
        (PAGE, {"Host": "127.0.0.1:9000"}),
    ]
    with TestClient(app) as client:
        pages = [client.get(path, headers=headers).text for path, headers in asked]
        assert [client.get(path, headers=headers).text for path, headers in asked] == pages
        assert len(made) == len(asked)
        assert len(set(pages)) == len(asked) - 1  # all but the one that only leaves unpacked
        (tmp_path / "checks").mkdir()
        client.get(PAGE)
        assert len(made) == len(asked) + 1


def test_a_reader_that_has_it_is_told_so(app: FastAPI, made: list[str]) -> None:
    with TestClient(app) as client:
        tag = client.get(PAGE).headers["etag"]
        answer = client.get(PAGE, headers={"If-None-Match": tag})
        other = client.get(PAGE, headers={"If-None-Match": 'W/"0"'})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    assert "content-type" not in answer.headers
    assert other.status_code == 200
    assert made == ["node.html"]


def test_errors_redirects_and_answers_for_programs_are_not_kept(app: FastAPI, made: list[str]) -> None:
    with TestClient(app) as client:
        for path in ("/models/llama-3-8b/nothing", "/models/llama-3-8b/", "/api/models"):
            client.get(path)
            client.get(path)
    assert made == ["problem.html", "problem.html", "model.html"]


def test_memory_is_bounded() -> None:
    asked = []

    async def pages(scope: Scope, _: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": b"x" * 100})

    cache = PageCache(pages, lambda: None, kept_bytes=1000)

    def ask(path: str) -> None:
        async def nothing(_: object) -> None:
            """Takes what is sent."""

        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "scheme": "http"}
        asyncio.run(cache(scope, None, nothing))  # type: ignore[arg-type]  # nothing is received

    for number in range(20):
        ask(f"/{number}")
    assert cache._bytes == sum(len(page.body) for page in cache._pages.values()) == 1000
    ask("/19")
    ask("/0")
    assert asked[20:] == ["/0"]
