"""Models of the hub: brought from a local server that answers as the hub does, then found in the library's cache."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from atlas.catalog import Catalog
from atlas.errors import AtlasError
from atlas.runtime import placement
from atlas.runtime.checkpoints import open_checkpoint
from atlas.runtime.hub import is_hub_id
from atlas.runtime.references.hugging_face import Runner
from atlas.runtime.untrained import untrained
from tests.runtime.test_hugging_face_directory import write_tokenizer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NOWHERE = "http://127.0.0.1:9"


class Hub(ThreadingHTTPServer):
    """Answers for repositories that are directories. `asked` are the files that were sent."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.root = root
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/"):
            self._describe(path.removeprefix("/api/models/"), body=body)
            return
        repository, _, rest = path.removeprefix("/").partition("/resolve/")
        file = self.server.root / repository / rest.partition("/")[2]
        if not file.is_file():
            code = "EntryNotFound" if (self.server.root / repository).is_dir() else "RepoNotFound"
            self._send(404, b"", {"X-Error-Code": code}, body=body)
            return
        content = file.read_bytes()
        if body:
            self.server.asked.append(file.name)
        digest = hashlib.sha256(content).hexdigest()
        self._send(200, content, {"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT}, body=body)

    def _describe(self, asked: str, *, body: bool) -> None:
        repository, _, rest = asked.partition("/revision/")
        repository, _, tree = repository.partition("/tree/")
        directory = self.server.root / repository
        if not directory.is_dir():
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, body=body)
            return
        if rest not in ("", "main", COMMIT):
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"}, body=body)
            return
        files = sorted(file for file in directory.rglob("*") if file.is_file())
        names = [(file.relative_to(directory).as_posix(), file.stat().st_size) for file in files]
        said: Any = {
            "id": repository,
            "sha": COMMIT,
            "siblings": [{"rfilename": name, "size": size} for name, size in names],
        }
        if tree:
            said = [{"type": "file", "path": name, "size": size, "oid": "0" * 40} for name, size in names]
        self._send(200, json.dumps(said).encode(), {"Content-Type": "application/json"}, body=body)

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)


@pytest.fixture(scope="module")
def repositories(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`maker/tiny-Qwen3.1`, with what nobody should bring; and `maker/own-code`, which asks for its code to be run."""
    root = tmp_path_factory.mktemp("hub")
    model = catalog.small("qwen3")
    for name in ("tiny-Qwen3.1", "own-code"):
        directory = root / "maker" / name
        Runner(model, untrained(model))._transformer.save_pretrained(directory)
        write_tokenizer(directory, 272)
        (directory / "modeling_own.py").write_text("raise SystemExit('never')")
        (directory / "pytorch_model.bin").write_bytes(b"never")
        (directory / "onnx").mkdir()
        (directory / "onnx" / "model.safetensors").write_bytes(b"never")
    config = json.loads((root / "maker" / "own-code" / "config.json").read_text())
    asking = config | {"auto_map": {"AutoModelForCausalLM": "modeling_own.OwnModel"}}
    (root / "maker" / "own-code" / "config.json").write_text(json.dumps(asking))
    return root


@pytest.fixture
def hub(repositories: Path) -> Iterator[Hub]:
    server = Hub(repositories)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


Ask = Callable[[str, str], str]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Opens a model from the hub that is there, into a cache of its own: what it is, or what was said."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def asked(name: str, endpoint: str) -> str:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        try:
            opened = open_checkpoint(Path(name), tmp_path / "data")
        except AtlasError as error:
            return f"{type(error).__name__}: {error}"
        return f"{opened.name} {opened.architecture} {opened.parameter_count} {opened.tokenizer.encode('a')}"

    return asked


def test_a_model_is_brought_without_its_code_and_found_again_without_a_network(
    hub: Hub, ask: Ask, tmp_path: Path, catalog: Catalog
) -> None:
    count = untrained(catalog.small("qwen3")).parameter_count
    expected = f"tiny-Qwen3.1 qwen3 {count} [256, 97]"
    assert ask("maker/tiny-Qwen3.1", hub.url) == expected
    brought = sorted(hub.asked)
    assert brought == [
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    ]
    cached = {path.name for path in (tmp_path / "hf").rglob("*") if path.is_file() or path.is_symlink()}
    assert not cached & {"modeling_own.py", "pytorch_model.bin"}
    assert ask("maker/tiny-Qwen3.1", NOWHERE) == expected
    assert sorted(hub.asked) == brought


def test_code_of_its_own_is_refused_before_weights_are_brought(hub: Hub, ask: Ask) -> None:
    said = ask("maker/own-code", hub.url)
    assert said.startswith("CheckpointError: ")
    assert "asks for code of its own to be run (modeling_own.OwnModel). That is never done." in said
    assert "model.safetensors" not in hub.asked


def test_what_does_not_fit_is_refused_before_it_is_brought(hub: Hub, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "free_memory", lambda _: 200_000)
    said = ask("maker/tiny-Qwen3.1", hub.url)
    assert said.startswith("CheckpointError: maker/tiny-Qwen3.1 needs 0.3 MB in float32 on cpu, 0.2 MB free. Try")
    assert "model.safetensors" not in hub.asked


@pytest.mark.parametrize(
    ("name", "reachable", "says"),
    [
        ("maker/nothing", True, "CheckpointError: maker/nothing is no file or directory here, and the hub has no such"),
        ("maker/tiny-Qwen3.1@v9", True, "CheckpointError: maker/tiny-Qwen3.1 has no revision 'v9'"),
        (
            "maker/tiny-Qwen3.1",
            False,
            "FetchError: maker/tiny-Qwen3.1 is no file or directory here, and the hub cannot",
        ),
    ],
)
def test_what_cannot_be_brought_is_said_in_one_line(hub: Hub, ask: Ask, name: str, reachable: bool, says: str) -> None:
    said = ask(name, hub.url if reachable else NOWHERE)
    assert said.startswith(says)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "hub_id"),
    [
        ("meta-llama/Llama-3.2-1B", True),
        ("a/b@refs/pr/1", True),
        ("weights.gguf", False),
        ("/absolute/path", False),
        ("../up", False),
        ("a/b/c", False),
        ("a b/c", False),
    ],
)
def test_what_may_be_a_name_on_the_hub(text: str, hub_id: bool) -> None:
    assert is_hub_id(Path(text)) is hub_id
