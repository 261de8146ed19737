"""A running server takes another checkpoint, and says what became of it: the command, the API, and the pages after."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from atlas.catalog import Catalog
from atlas.provenance.store import SourceStore
from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.backend import Backend
from tests.browser.conftest import Server
from tests.runtime.test_hugging_face_directory import write_tokenizer

from .conftest import Atlas


@pytest.fixture(scope="module")
def directory(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random Qwen3 in a Hugging Face directory."""
    from atlas.runtime.references.hugging_face import Runner
    from atlas.runtime.untrained import untrained

    model, where = catalog.small("qwen3"), tmp_path_factory.mktemp("models") / "tiny-qwen"
    Runner(model, untrained(model))._transformer.save_pretrained(where)
    write_tokenizer(where, 272)
    return where


@pytest.fixture(scope="module")
def server(store: SourceStore, own_data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of its own, ready: what is added to it is in no other test's catalogue."""
    data = tmp_path_factory.mktemp("adding")
    for entry in own_data_dir.iterdir():
        (data / entry.name).symlink_to(entry)
    settings, catalog = Settings(data_dir=data), Catalog(store)
    server = Server(create_app(settings, catalog=catalog, backend=Backend(settings, catalog)))
    deadline = time.monotonic() + 120
    while httpx.get(f"{server.address}/readyz").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield server
    server.close()


def listed(server: Server) -> dict[str, dict[str, Any]]:
    return {one["model"]: one for one in httpx.get(f"{server.address}/api/checkpoints").json()}


def test_a_checkpoint_joins_runs_and_has_pages(atlas: Atlas, server: Server, directory: Path) -> None:
    assert httpx.get(f"{server.address}/models/mine").status_code == 404
    said = atlas("add", f"mine={directory}", "--url", server.address)
    assert (said.code, said.out) == (
        0,
        f"mine (qwen3; float32 on cpu, 0.3 MB in memory) is at {server.address}/models/mine\n",
    )
    assert listed(server)["mine"] == {
        **{"model": "mine", "file": "tiny-qwen", "status": "ready", "stage": "ready", "progress": 1.0, "error": None},
        **{"architecture": "qwen3", "dtype": "float32", "device": "cpu", "notes": []},
        "held": "float32 on cpu, 0.3 MB in memory",
    }
    page = httpx.get(f"{server.address}/models/mine")
    assert page.status_code == 200
    assert "float32 on cpu, 0.3 MB in memory" in page.text
    assert "mine" in {one["id"] for one in httpx.get(f"{server.address}/api/models").json()}
    hits = httpx.get(f"{server.address}/api/search", params={"q": "tiny-qwen"}).json()["hits"]
    assert any(hit["href"].startswith("/models/mine") for hit in hits)
    order = {"model": "mine", "prompt": "hello", "max_new_tokens": 2}
    run = httpx.post(f"{server.address}/api/runs", json=order).json()
    deadline = time.monotonic() + 60
    while run["status"] in ("queued", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
        run = httpx.get(f"{server.address}/api/runs/{run['id']}").json()
    assert run["status"] == "done"
    tensor = f"{server.address}/api/runs/{run['id']}/tensors/blocks/attention/attention-update?view=prefill&layer=1"
    assert httpx.get(tensor).json()["shape"] == [1, 6, 48]


def test_it_comes_in_another_number_format(atlas: Atlas, server: Server, directory: Path) -> None:
    said = atlas("add", f"half={directory}", "--url", server.address, "--dtype", "bfloat16")
    assert said.code == 0
    assert "(qwen3; bfloat16 on cpu, 0.2 MB in memory)" in said.out
    assert listed(server)["half"]["dtype"] == "bfloat16"


def test_what_cannot_be_used_says_why_and_leaves_nothing(
    atlas: Atlas, server: Server, directory: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in directory.iterdir():
        (broken / file.name).symlink_to(file)
    (broken / "tokenizer.json").unlink()
    said = atlas("add", f"broken={broken}", "--url", server.address)
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[-1] == (
        f"Error: {broken} has no tokenizer.json, so no text can be turned into tokens. "
        "Put the tokenizer.json of the same model into it."
    )
    assert listed(server)["broken"]["status"] == "refused"
    assert httpx.get(f"{server.address}/models/broken").status_code == 404
    (broken / "tokenizer.json").symlink_to(directory / "tokenizer.json")
    assert atlas("add", f"broken={broken}", "--url", server.address).code == 0  # mended, it is taken


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("smollm2-135m={directory}", "smollm2-135m runs on weights of its own here already. Give it another id"),
        ("llama-3-8b={directory}", "is of the architecture 'qwen3'; Llama 3 8B is of 'llama'. Give it an id"),
        ("/nowhere/at/all", "there is no '/nowhere/at/all'"),
        ("My Model={directory}", "'My Model' is no model id"),
    ],
)
def test_what_cannot_be_added_is_said_in_one_line(
    atlas: Atlas, server: Server, directory: Path, given: str, says: str
) -> None:
    said = atlas("add", given.format(directory=directory), "--url", server.address)
    assert (said.code, said.out) == (2, "")
    assert says in said.err.splitlines()[-1]


def test_no_server_is_said_in_one_line(atlas: Atlas, directory: Path) -> None:
    said = atlas("add", f"mine={directory}", "--url", "http://127.0.0.1:9")
    assert said.code == 2
    assert said.err.startswith("Error: No server answers at http://127.0.0.1:9: ")
    assert "atlas serve" in said.err


def test_a_path_that_is_not_there_is_the_servers(server: Server) -> None:
    answer = httpx.post(f"{server.address}/api/checkpoints", json={"path": "/nowhere/at/all"})
    assert answer.status_code == 422
    assert json.loads(answer.text)["detail"] == "There is no '/nowhere/at/all' where the server runs."
