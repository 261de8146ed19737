"""A model that cannot be shown takes down no page but its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from atlas.catalog import Catalog
from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.readable import readable


@pytest.fixture(scope="module")
def catalog_with_a_stray(catalog: Catalog) -> Catalog:
    """All models, and one of an architecture that nothing declares."""
    own = Catalog(catalog.store)
    own.add(own.entry("llama-3-8b").model_copy(update={"id": "stray", "name": "Stray", "architecture": "abacus"}))
    return own


@pytest.fixture(scope="module")
def client(catalog_with_a_stray: Catalog, data_dir: Path) -> Iterator[TestClient]:
    app = create_app(Settings(data_dir=data_dir), catalog=catalog_with_a_stray)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def test_the_others_are_readable(catalog: Catalog, catalog_with_a_stray: Catalog) -> None:
    assert [model.id for model in readable(catalog_with_a_stray)] == [entry.id for entry in catalog]


def test_the_front_page_says_what_is_in_the_way(client: TestClient) -> None:
    page = client.get("/").text
    assert "Stray" in page
    assert "the architecture &#39;abacus&#39;, which nothing declares" in page
    assert "/models/stray" not in page


@pytest.mark.parametrize(
    "address", ["/models/llama-3-8b", "/search?q=gate", "/sitemap.xml", "/api/models", "/how-to-read"]
)
def test_other_pages_go_on(client: TestClient, address: str) -> None:
    assert client.get(address).status_code == 200


def test_its_own_page_is_an_answer(client: TestClient) -> None:
    answer = client.get("/models/stray")
    assert answer.status_code == 500
    assert "abacus" in answer.text
