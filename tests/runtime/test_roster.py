"""What is wrong with weights or with the code that runs them is named, with what to do; the rest goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from atlas.catalog import Catalog
from atlas.inspection.checks import run_checks
from atlas.provenance.store import SourceStore
from atlas.runtime.checkpoints import Checkpoint
from atlas.settings import CheckpointChoice, Settings
from atlas.web.app import create_app
from atlas.web.backend import Backend

from .conftest import DIM, LAYERS, TinyGguf

GAIN = f"blk.{LAYERS - 1}.attn_norm.weight"
DOWN = "blk.0.ffn_down.weight"


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def served(settings: Settings, catalog: Catalog) -> Iterator[tuple[TestClient, Backend]]:
    """A site with an engine of its own, once that has been opened or given up."""
    backend = Backend(settings, catalog)
    with TestClient(create_app(settings, catalog=catalog, backend=backend), raise_server_exceptions=False) as client:
        until(lambda: backend.status.ready or backend.status.error)
        yield client, backend


def ask(client: TestClient, model: str) -> dict[str, Any]:
    answer = client.post("/api/runs", json={"model": model, "prompt": "He said", "max_new_tokens": 1})
    told: dict[str, Any] = answer.json()
    return {**told, "status": answer.status_code}


@pytest.fixture
def default_only(checkpoint: Checkpoint, own_data_dir: Path, tmp_path: Path) -> Settings:
    """Settings with a data directory that has the default weights and takes what a test converts."""
    data_dir, copy = tmp_path / "data", checkpoint.sha256[:16]
    (data_dir / "checkpoints").mkdir(parents=True)
    for name in ("weights", "hashes", f"checkpoints/{copy}"):
        (data_dir / name).symlink_to(own_data_dir / name)
    return Settings(data_dir=data_dir)


def test_weights_that_do_not_fit_are_named_and_the_others_run(
    catalog: Catalog, default_only: Settings, tiny_gguf: TinyGguf
) -> None:
    random = np.random.default_rng(1)
    spoilt = random.standard_normal((DIM,), np.float32)
    spoilt[3] = np.nan
    paths = {
        "other-architecture": tiny_gguf("a.gguf", architecture="rwkv6"),
        "missing": tiny_gguf("b.gguf", tensors={GAIN: None}),
        "extra": tiny_gguf("c.gguf", tensors={f"blk.{LAYERS}.attn_norm.weight": spoilt}),
        "misshapen": tiny_gguf("d.gguf", tensors={DOWN: random.standard_normal((DIM, 32), np.float32)}),
        "spoilt": tiny_gguf("e.gguf", tensors={GAIN: spoilt}),
        "llama-3-8b": tiny_gguf("f.gguf"),
    }
    says = {
        "other-architecture": ("a.gguf", "rwkv6"),
        "missing": ("b.gguf", "layers.1.attention_norm.weight"),
        "extra": ("c.gguf", f"blk.{LAYERS}.attn_norm.weight"),
        "misshapen": ("d.gguf", "feed_forward.w2.weight"),
        "llama-3-8b": ("f.gguf", f"layers is {LAYERS} and should be 32"),
    }
    choices = tuple(CheckpointChoice(model=name, path=path) for name, path in paths.items())
    settings = default_only.model_copy(update={"checkpoint": choices})
    with served(settings, Catalog(catalog.store)) as (client, backend):
        for model, words in says.items():
            told = ask(client, model)
            assert told["status"] in (404, 409), told
            assert told["code"] == "no-checkpoint", told
            assert all(word in told["detail"] for word in words), told
            assert told["hint"]
        assert ask(client, "smollm2-135m")["status"] == 202
        assert ask(client, "spoilt")["status"] == 202
        (warning,) = backend.engine().runner("spoilt").checkpoint.warnings
        assert "layers.1.attention_norm.weight" in warning
        assert client.get("/models/llama-3-8b/blocks/attention/queries").status_code == 200
        assert client.get("/models/spoilt/final-norm/normalized").status_code == 200


@pytest.fixture
def another_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Installs `llama-models` 0.2.9 before the one that is pinned, with a file of other text."""

    def install(*changed: str) -> None:
        site = tmp_path / "site"
        about = site / "llama_models-0.2.9.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: llama-models\nVersion: 0.2.9\n")
        pinned = metadata.distribution("llama-models")
        for name in ("llama3/model.py", "sku_list.py"):
            copy = site / "llama_models" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = Path(str(pinned.locate_file(f"llama_models/{name}"))).read_text()
            copy.write_text(f"{text}\n# of another version\n" if name in changed else text)
        monkeypatch.syspath_prepend(str(site))
        assert metadata.version("llama-models") == "0.2.9"

    return install


def test_another_version_of_the_reference_code_is_named_and_the_pages_go_on(
    store: SourceStore, default_only: Settings, tmp_path: Path, another_version: Callable[..., None]
) -> None:
    another_version("llama3/model.py")
    catalog = Catalog(SourceStore(store.locks, tmp_path / "sources"))
    named = ("llama-models 0.2.9 is installed, and 0.3.0 is pinned", "Install llama-models==0.3.0")
    (report,) = run_checks(catalog, default_only, ["llama-3-8b"], kinds=["sources", "shapes"])
    said = " ".join(f"{result.detail} {result.hint}" for result in report.of("failed"))
    assert all(words in said for words in named)
    assert {result.kind for result in report.of("failed")} == {"sources", "shapes"}
    with served(default_only, catalog) as (client, backend):
        assert backend.status.error is not None
        told = ask(client, "smollm2-135m")
        assert told["status"] == 503
        assert all(words in f"{told['detail']} {told['hint']}" for words in named)
        page = client.get("/models/llama-3-8b/blocks/attention/queries")
        assert page.status_code == 200
        assert 'data-check="source" data-ok="false"' in page.text
        other = client.get("/models/gpt2-124m/blocks/attention/queries")
        assert other.status_code == 200
        assert 'data-check="source" data-ok="true"' in other.text


def test_a_model_whose_configuration_cannot_be_read_does_not_take_others_with_it(
    store: SourceStore, default_only: Settings, tmp_path: Path, another_version: Callable[..., None]
) -> None:
    another_version("llama3/model.py", "sku_list.py")
    catalog = Catalog(SourceStore(store.locks, tmp_path / "sources"))
    with TestClient(create_app(default_only, catalog=catalog), raise_server_exceptions=False) as client:
        broken = client.get("/models/llama-3-8b")
        assert broken.status_code in (500, 503)
        assert "llama-models 0.2.9 is installed" in broken.text
        assert "Install llama-models==0.3.0" in broken.text
        for address in ("/", "/models/gpt2-124m", "/models/smollm2-135m", "/api/models"):
            assert client.get(address).status_code == 200, address
