"""The application put together: health, static files, packing, the backend's life, and what it imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from atlas.catalog import Catalog
from atlas.errors import AtlasError, CheckpointError
from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.backend import Backend, Progress

ROOT = Path(__file__).resolve().parents[2]


class WaitingBackend(Backend):
    """A backend that is as far as it is told, and notes its start and its end. It never loads an engine."""

    def __init__(self, settings: Settings, catalog: Catalog, stage: str, error: AtlasError | None = None) -> None:
        super().__init__(settings, catalog)
        self.progress = Progress(False, stage, 0.25, error)
        self.said: list[str] = []

    def start(self) -> None:
        self.said.append("start")

    def close(self) -> None:
        self.said.append("close")

    @property
    def status(self) -> Progress:
        return self.progress


@pytest.fixture
def settings(data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir)


def test_the_backend_lives_as_long_as_the_app(catalog: Catalog, settings: Settings) -> None:
    backend = WaitingBackend(settings, catalog, "loading weights")
    with TestClient(create_app(settings, catalog=catalog, backend=backend)) as client:
        assert backend.said == ["start"]
        assert client.get("/healthz").json() == {"status": "up"}
    assert backend.said == ["start", "close"]


def test_not_ready_says_how_far_it_is(catalog: Catalog, settings: Settings) -> None:
    backend = WaitingBackend(settings, catalog, "loading weights")
    with TestClient(create_app(settings, catalog=catalog, backend=backend)) as client:
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"] == "5"
        said = answer.json()
        assert said["code"] == "not-ready"
        assert (said["stage"], said["progress"]) == ("loading weights", 0.25)
        page = client.get("/models/llama-3-8b/blocks/block-output").text
        assert "Loading weights" in page
        assert "SmolLM2 135M stands in" in page


def test_a_start_that_failed_says_why(catalog: Catalog, settings: Settings) -> None:
    broken = CheckpointError("The weights are cut short.", "Fetch them again.")
    backend = WaitingBackend(settings, catalog, "failed", broken)
    with TestClient(create_app(settings, catalog=catalog, backend=backend)) as client:
        said = client.get("/readyz").json()
        assert (said["detail"], said["hint"], said["failed"]) == (broken.detail, broken.hint, True)
        assert "The weights are cut short. Fetch them again." in client.get("/models/llama-3-8b").text


def test_a_server_that_runs_no_model_is_never_ready(catalog: Catalog, settings: Settings) -> None:
    with TestClient(create_app(settings, catalog=catalog)) as client:
        assert client.get("/readyz").json()["code"] == "not-ready"


def test_static_files_are_kept_for_ever_under_their_version(catalog: Catalog, settings: Settings) -> None:
    with TestClient(create_app(settings, catalog=catalog)) as client:
        address = client.get("/").text.split('rel="stylesheet" href="')[1].split('"')[0]
        versioned = client.get(address)
        assert versioned.headers["cache-control"] == "public, max-age=31536000, immutable"
        fonts = address.rsplit("/vendor/", 1)[0] + "/vendor/katex/fonts/KaTeX_Main-Regular.woff2"
        assert client.get(fonts).headers["cache-control"] == "public, max-age=31536000, immutable"
        plain = client.get("/static/page.css")
        assert plain.headers["cache-control"] == "no-cache"
        assert client.get("/static/page.css", headers={"if-none-match": plain.headers["etag"]}).status_code == 304
        assert client.get("/static/../pyproject.toml").status_code == 404


def test_pages_are_packed(catalog: Catalog, settings: Settings) -> None:
    with TestClient(create_app(settings, catalog=catalog)) as client:
        answer = client.get("/models/llama-3-8b/blocks/attention/attention-update", headers={"accept-encoding": "gzip"})
        assert answer.headers["content-encoding"] == "gzip"
        assert int(answer.headers["content-length"]) < 25_000


def test_pages_are_served_before_anything_that_computes_is_loaded() -> None:
    code = """
import sys
from pathlib import Path
from fastapi.testclient import TestClient
from atlas.settings import Settings
from atlas.web.app import create_app
with TestClient(create_app(Settings(data_dir=Path(sys.argv[1])))) as client:
    for path in ("/", "/models/llama-3-8b", "/models/llama-3-8b/blocks/attention/softmax", "/search?q=gate"):
        assert client.get(path).status_code == 200
loaded = {"torch", "transformers", "llama_models", "fairscale"} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "/nonexistent/atlas"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
