"""The application on the engine that all tests share, behind an in-process client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from atlas.catalog import Catalog
from atlas.runtime.engine import Engine
from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.backend import Backend


class SharedBackend(Backend):
    """A backend whose engine is somebody else's: it neither starts nor stops it."""

    def __init__(self, settings: Settings, catalog: Catalog, engine: Engine) -> None:
        super().__init__(settings, catalog)
        self._engine = engine

    def start(self) -> None:
        """The engine runs already."""

    def close(self) -> None:
        """Others go on using the engine."""


@pytest.fixture(scope="session")
def live_app(catalog: Catalog, engine: Engine, own_data_dir: Path) -> FastAPI:
    """The application with live values."""
    settings = Settings(data_dir=own_data_dir)
    return create_app(settings, catalog=catalog, backend=SharedBackend(settings, catalog, engine))


@pytest.fixture(scope="session")
def live_client(live_app: FastAPI) -> Iterator[TestClient]:
    """An in-process client. Errors of the server are answers, as over the network."""
    with TestClient(live_app, raise_server_exceptions=False) as client:
        yield client
