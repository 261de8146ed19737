"""What tests of several rooms share: the real default checkpoint, opened once for the whole run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.backend import Backend

if TYPE_CHECKING:
    from atlas.catalog import Catalog
    from atlas.models.entry import ModelEntry
    from atlas.provenance.store import SourceStore
    from atlas.runtime.checkpoints import Checkpoint
    from atlas.runtime.engine import Engine
    from atlas.runtime.references.base import ReferenceRunner
    from tests.derived import Opened

# How long an example takes says more of the machine's load than of the code.
hypothesis.settings.register_profile(
    "atlas", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("atlas")


# A shell without job control lets what it starts in the background ignore interruptions, which processes hand on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The in-process client calls itself this, and asks faster than any reader.
os.environ.setdefault("ATLAS_ALLOWED_HOST", "testserver")
os.environ.setdefault("ATLAS_REQUESTS_PER_MINUTE", "0")


LONG = ("runtime/distributed/", "tests/browser/", "web/published/", "web/test_pages_in_browser.py")
"""Files that take minutes: they come first, so that no process is left alone with one of them in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, each in its own order."""
    items.sort(key=lambda item: not any(part in item.nodeid for part in LONG))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The user's own data directory (ATLAS_DATA_DIR, or the default): weights are fetched into it once."""
    return Settings().data_dir


@pytest.fixture(scope="session")
def checkpoint(data_dir: Path) -> Checkpoint:
    """SmolLM2-135M-Instruct, fetched and converted if it is not there yet."""
    from atlas.runtime.checkpoints import open_checkpoint
    from atlas.runtime.weights import fetch_default

    return open_checkpoint(fetch_default(data_dir), data_dir)


@pytest.fixture(scope="session")
def store(data_dir: Path) -> SourceStore:
    """The pinned sources, as installed here."""
    from atlas.provenance.locks import Locks
    from atlas.provenance.store import SourceStore
    from atlas.render.assets import sources_dir

    return SourceStore(Locks.read(sources_dir()), data_dir / "sources")


@pytest.fixture(scope="session")
def catalog(store: SourceStore) -> Catalog:
    """The whole catalogue, which all tests share: who adds a model takes a `Catalog(catalog.store)` of their own."""
    from atlas.catalog import Catalog

    class Shared(Catalog):
        def add(self, entry: ModelEntry) -> None:
            raise AssertionError(f"A test adds {entry.id} to the catalogue of all tests. Take Catalog(catalog.store).")

    return Shared(store)


@pytest.fixture(scope="session")
def runner(catalog: Catalog, checkpoint: Checkpoint) -> ReferenceRunner:
    """The reference code with the default weights in it, built once for the whole run."""
    from atlas.runtime.references.llama import Runner

    return Runner(catalog["smollm2-135m"], checkpoint)


@pytest.fixture(scope="session")
def own_data_dir(checkpoint: Checkpoint, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with the default weights and no runs: nothing of a test outlives it."""
    assert checkpoint.path.is_file()
    own = tmp_path_factory.mktemp("data")
    for entry in data_dir.iterdir():
        if not entry.name.startswith("runs."):
            (own / entry.name).symlink_to(entry)
    return own


@pytest.fixture(scope="session")
def engine(catalog: Catalog, own_data_dir: Path) -> Iterator[Engine]:
    """A running engine with the default model, its demonstration run included."""
    from atlas.inspection.recorded.engine import OpenEngine

    engine = OpenEngine(Settings(data_dir=own_data_dir), catalog)
    engine.start()
    deadline = time.monotonic() + 120
    while engine.demonstration is None or engine.run(engine.demonstration).status != "done":
        assert engine.status.error is None, engine.status.error
        assert time.monotonic() < deadline, engine.status.stage
        time.sleep(0.02)
    yield engine
    engine.close()


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


@pytest.fixture(scope="session")
def bundle(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demonstration run recorded into a bundle: its attention weights, its last tensors, a gain."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from atlas.inspection.recorded.bundle import written
    from atlas.inspection.recorded.record import Choice, record

    path = tmp_path_factory.mktemp("bundles") / "demonstration.atlas"
    chosen = ("blocks/attention/attention-weights", "final-norm", "rotary/rotations", "token-ids", "unembedding/logits")
    run = engine.demonstration
    assert run is not None
    choice = Choice(chosen, expressions=False, explanations=False)
    # In a thread of its own: a browser's event loop may run in this one.
    with written(path) as sink, ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(record(engine, run, choice, sink))).result()
    return path


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Callable[[str], Opened]:
    """Opens the small model of a class that nothing describes, in a catalogue of its own, once for all tests."""
    from atlas.catalog import Catalog, open_store
    from tests.derived import open_saved

    known: dict[str, Opened] = {}

    def open_one(name: str) -> Opened:
        if name not in known:
            known[name] = open_saved(name, tmp_path_factory.mktemp(name), Catalog(open_store(data_dir)))
        return known[name]

    return open_one
