"""`atlas serve` over three processes: what readers see, what moves between ranks, and what happens when one ends."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from atlas.catalog import Catalog
from atlas.graph.nodes import Parameter
from atlas.runtime.adoption import adopt
from atlas.runtime.checkpoints import open_checkpoint
from atlas.runtime.journal import Entry, Journal
from atlas.runtime.references.base import Pass, ReferenceRunner
from atlas.runtime.references.hugging_face import Runner
from atlas.runtime.references.llama import Runner as Llama
from atlas.runtime.untrained import untrained
from tests.runtime import test_hugging_face_directory as hugging_face_directory
from tests.runtime import test_meta_directory as meta_directory
from tests.runtime.conftest import TinyGguf
from tests.runtime.distributed.conftest import Started, StartRanks, free_port

if TYPE_CHECKING:
    from atlas.runtime.engine import Engine

LONG = {"model": "smollm2-135m", "prompt": "Once upon a time", "max_new_tokens": 48}
GATE, D_MLP, WEIGHTS = "blocks/feed-forward/gate", 1536, "blocks/attention/attention-weights"
DEADLINE = 240


class Server:
    """Three ranks and their address."""

    def __init__(self, ranks: Started, port: int, data: Path) -> None:
        self.ranks = ranks
        self.data = data
        self.base = f"http://127.0.0.1:{port}"

    def get(self, path: str, body: Any = None) -> tuple[int, bytes]:
        request = urllib.request.Request(
            self.base + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except (urllib.error.URLError, ConnectionError):
            return 0, b"{}"

    def json(self, path: str, body: Any = None) -> tuple[int, Any]:
        status, content = self.get(path, body)
        return status, json.loads(content)

    def numbers(self, run: str, node: str, **query: object) -> np.ndarray[Any, Any]:
        text = "&".join(f"{name}={value}" for name, value in query.items())
        status, content = self.get(f"/api/runs/{run}/tensors/{node}/data?{text}")
        assert status == 200, content
        size = int.from_bytes(content[8:10], "little")
        shape = tuple(int(n) for n in re.findall(r"\d+", content[10 : 10 + size].decode().partition("'shape':")[2]))
        return np.frombuffer(content, np.float32, offset=10 + size).reshape(shape)

    def moved(self) -> int:
        """Bytes of tensors that have come to rank 0."""
        found = re.search(rb"^atlas_gathered_bytes (\S+)$", self.get("/metrics")[1], re.M)
        assert found is not None
        return int(float(found[1]))

    def demonstration(self) -> str:
        """The run that the server makes by itself, done."""
        self.until(lambda: self.json("/readyz")[1].get("demo_run") is not None, "It demonstrates nothing.")
        return self.done({}, str(self.json("/readyz")[1]["demo_run"]))

    def done(self, order: Any, known: str = "") -> str:
        """A run, done."""
        run = known or str(self.json("/api/runs", order)[1]["id"])
        self.until(lambda: self.json(f"/api/runs/{run}")[1].get("status") == "done", "The run does not end.")
        return run

    def written(self, *runs: str) -> list[Entry | None]:
        """What stands in the journal of these runs."""
        with closing(Journal(self.data / "runs.sqlite3")) as journal:
            return [journal.find(run) for run in runs]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, what
            assert self.ranks[0].poll() is None, self.ranks[0].communicate()[0]
            time.sleep(0.05)


Serve = Callable[[int], Server]


@pytest.fixture(scope="module")
def serve(start_ranks: StartRanks, own_data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Starts three ranks, on one data directory each time; they may be silent for so many seconds."""
    data = tmp_path_factory.mktemp("ranks")
    for entry in own_data_dir.iterdir():
        if not entry.name.startswith("runs."):
            (data / entry.name).symlink_to(entry.resolve())

    def start(silence: int) -> Server:
        port = free_port()
        command = ["-m", "atlas", "serve", "--port", str(port), "--data-dir", str(data)]
        command += ["--rank-seconds", str(silence)]
        server = Server(start_ranks(command), port, data)
        server.until(lambda: server.get("/readyz")[0] == 200, "It does not get ready.")
        return server

    return start


@pytest.fixture(scope="module")
def server(serve: Serve) -> Server:
    return serve(60)


@pytest.fixture(scope="module")
def run(server: Server) -> str:
    """The demonstration run, done."""
    return server.demonstration()


def test_the_page_says_how_the_model_is_split(server: Server, run: str) -> None:
    page = server.get(f"/models/smollm2-135m/{WEIGHTS}?run={run}&rank=1")[1].decode()
    assert "SmolLM2 135M is split over 3 ranks. Here each has 3 of 9 q heads, in order." in page
    assert 'data-rank="1"' in page
    assert re.search(r'<a href="\?run=\w+&amp;rank=1" aria-current="page">rank 1</a>', page)
    whole = server.get("/models/smollm2-135m/blocks/block-output")[1].decode()
    assert "All ranks have the same numbers here" in whole
    assert 'aria-current="page">all ranks</a>' in whole
    assert server.get(f"/models/smollm2-135m/{WEIGHTS}?rank=3")[0] == 422


def test_numbers_and_checks_are_of_the_whole(server: Server, run: str, engine: Engine) -> None:
    assert run == engine.demonstration  # the id depends on weights, code and request alone
    for node, layer in ((WEIGHTS, 4), (GATE, 29)):
        theirs = server.numbers(run, node, view="prefill", layer=layer)
        ours = engine.request(run, [node], "prefill", layer, None).result()[node].tensor.numpy()
        assert np.abs(theirs - ours).max() <= 1e-4 * np.abs(ours).max()
    summary = server.json(f"/api/runs/{run}/tensors/{WEIGHTS}?view=decode&layer=4&step=3")[1]
    assert {name: check["ok"] for name, check in summary["checks"].items()} == dict.fromkeys(summary["checks"], True)
    assert summary["split"] == {"ranks": 3, "axis": "q_heads", "rank": None, "first": 0, "own": False}


def test_one_ranks_share(server: Server, run: str) -> None:
    whole = server.numbers(run, WEIGHTS, view="prefill", layer=2)
    parts = [server.numbers(run, WEIGHTS, view="prefill", layer=2, rank=rank) for rank in range(3)]
    assert np.array_equal(np.concatenate(parts, axis=1), whole)
    summary = server.json(f"/api/runs/{run}/tensors/{WEIGHTS}?view=prefill&layer=2&rank=2")[1]
    assert summary["split"] == {"ranks": 3, "axis": "q_heads", "rank": 2, "first": 6, "own": False}
    assert summary["checks"]["shape"]["ok"]
    assert summary["stats"]["count"] == whole.size // 3
    down = "blocks/feed-forward/down-weight"
    matrix = server.numbers(run, down, layer=1)
    assert np.array_equal(server.numbers(run, down, layer=1, rank=1), matrix[:, D_MLP // 3 : 2 * D_MLP // 3])
    assert server.get(f"/api/runs/{run}/tensors/{WEIGHTS}?rank=3")[0] == 422


def test_whose_numbers_an_expression_has(server: Server, run: str, engine: Engine) -> None:
    """Whole where nodes say how it is split; else one rank's own, and it says whose."""
    query = "view=prefill&layer=3"
    ranks = [server.json(f"/api/runs/{run}/expressions?{query}&rank={rank}")[1]["expressions"] for rank in range(3)]
    unasked = server.json(f"/api/runs/{run}/expressions?{query}")[1]["expressions"]
    whole = asyncio.run(engine.expressions(run, "prefill", 3, None))[1]
    cut = 0
    for item, *own in zip(unasked, *ranks, strict=True):
        whose = {"ranks": 3, "axis": item["split"]["axis"], "rank": None, "first": 0, "own": False}
        if item["nodes"]:
            assert item["split"] == whose
            assert [value["shape"] for value in item["values"]] == [list(value.shape) for value in whole[item["name"]]]
            continue
        assert item["split"] == whose | {"axis": None, "rank": 0, "own": True}
        assert item["values"] == own[0]["values"]
        assert [one["split"]["rank"] for one in own] == [0, 1, 2]
        for turn, value in enumerate(whole[item["name"]]):
            shape = own[2]["values"][turn]["shape"]
            if len(axes := [at for at, size in enumerate(shape) if size != value.shape[at]]) != 1:
                continue
            name = f"{item['name']}/{turn + 1}"
            if value.is_floating_point() and cut < 8:
                parts = [server.numbers(run, name, view="prefill", layer=3, rank=rank) for rank in range(3)]
                together = np.concatenate(parts, axis=axes[0])
                assert np.abs(together - value.numpy()).max() <= 1e-4 * float(value.abs().max())
                assert np.array_equal(parts[0], server.numbers(run, name, view="prefill", layer=3))
                corner = server.get(f"/api/runs/{run}/tensors/{name}/data?{query}&rank=1&format=csv&slice=0,1:2")
                assert (corner[0], len(corner[1].splitlines())) == (200, 1 + parts[1][0, 1:2].size)
                cut += 1
    assert cut == 8
    heads = next(item for item in ranks[2] if item["nodes"] == ["blocks/attention/similarities"])
    assert heads["split"] == {"ranks": 3, "axis": "q_heads", "rank": 2, "first": 6, "own": False}
    assert heads["values"][0]["shape"] == [1, 3, 5, 5]
    page = server.get(f"/models/smollm2-135m/{GATE}?rank=2")[1].decode()
    assert "Where no node is declared, the code column has rank 2&#39;s own numbers." in page
    assert server.get(f"/api/runs/{run}/expressions?{query}&rank=3")[0] == 422


def test_what_moves_is_what_was_asked(server: Server, run: str) -> None:
    def moved(text: str, **query: object) -> int:
        before = server.moved()
        found = server.numbers(run, GATE, view="prefill", layer=7, slice=text, **query)
        assert found.size == expected(text, **query)
        return server.moved() - before

    def expected(text: str, **_: object) -> int:
        sizes = [1, 5, D_MLP]
        for at, entry in enumerate(text.split(",")):
            first, colon, last = entry.partition(":")
            sizes[at] = (int(last or sizes[at]) - int(first or 0)) if colon else 1
        return int(np.prod(sizes))

    others = 2 * D_MLP // 3 * 4
    assert moved(":,2:3") == others  # one position: two ranks' parts of it, four bytes a number
    assert moved(":,0:3") == 3 * others
    assert moved(":,:,0:512") == 0  # rank 0 has these itself
    assert moved(":,:,500:530") == 5 * 18 * 4
    assert moved("0,1,1535") == 4
    before = server.moved()
    server.numbers(run, "blocks/mid-residual", view="prefill", layer=7, slice=":,1:2")
    assert server.moved() == before  # all ranks have it


def test_a_rank_that_is_killed_is_named_and_the_run_goes_on_after_a_restart(
    server: Server, serve: Serve, engine: Engine
) -> None:
    started = server.json("/api/runs", LONG)[1]
    identity = started["id"]
    server.until(lambda: server.json(f"/api/runs/{identity}")[1]["steps"] >= 2, "It does not decode.")
    victim = server.ranks[2]
    os.kill(victim.pid, signal.SIGKILL)

    server.until(lambda: server.get(f"/api/runs/{identity}")[0] == 503, "Nobody notices.")
    problem = server.json(f"/api/runs/{identity}/tensors/{GATE}?view=prefill&layer=3")
    assert problem[0] == 503
    assert problem[1]["code"] == "rank-lost"
    assert f"Rank 2 (process {victim.pid} on " in problem[1]["detail"]
    assert "links to runs stay good" in problem[1]["hint"]
    assert server.get("/api/runs", LONG)[0] == 503
    assert server.get("/readyz")[0] == 503
    status, page = server.get(f"/models/smollm2-135m/{GATE}?run={identity}")
    assert status == 200
    assert f"Rank 2 (process {victim.pid} on " in page.decode()
    assert server.ranks[1].wait(timeout=DEADLINE) == 2  # the others do not wait for ever
    server.ranks[0].send_signal(signal.SIGTERM)
    said = server.ranks[0].communicate(timeout=DEADLINE)[0]
    assert server.ranks[0].returncode == 2, said
    assert "Error: Rank 2" in said

    again = serve(10)
    again.until(lambda: again.json(f"/api/runs/{identity}")[1].get("status") == "done", "It does not go on.")
    whole = engine.submit(_request(engine)).id
    again.until(lambda: engine.view(whole).status == "done", "One process does not end.")
    assert whole == identity
    assert [token["id"] for token in again.json(f"/api/runs/{identity}")[1]["tokens"]] == engine.run(whole).ids
    engine.delete(whole)
    _a_rank_that_hangs_is_named(again, identity)


def _a_rank_that_hangs_is_named(server: Server, identity: str) -> None:
    """And where it goes on, it ends, since the others have given it up."""
    tokens = server.json(f"/api/runs/{identity}")[1]["tokens"]
    going = server.json("/api/runs", LONG | {"seed": 1, "temperature": 1.0})[1]["id"]
    server.until(lambda: server.json(f"/api/runs/{going}")[1]["steps"] >= 2, "It does not decode.")
    stopped = server.ranks[1]
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        server.until(lambda: server.get(f"/api/runs/{identity}")[0] == 503, "Nobody notices.")
        detail = server.json(f"/api/runs/{identity}")[1]["detail"]
        assert f"Rank 1 (process {stopped.pid} on " in detail
        assert "has said nothing for 10 s" in detail
        assert server.ranks[2].wait(timeout=DEADLINE) == 2
        kept = server.written(identity, going)
        os.kill(stopped.pid, signal.SIGCONT)
        assert stopped.wait(timeout=DEADLINE) == 2
        assert server.json(f"/api/runs/{identity}")[1]["detail"] == detail
        server.ranks[0].send_signal(signal.SIGTERM)
        assert server.ranks[0].wait(timeout=DEADLINE) == 2
        assert server.written(identity, going) == kept
        done = kept[0]
        assert done is not None
        assert list(done.generated) == [token["id"] for token in tokens[-len(done.generated) :]]
    finally:
        stopped.kill()


def _request(engine: Engine) -> Any:
    from atlas.runtime.runs import RunRequest

    ids = tuple(engine.tokens("smollm2-135m", str(LONG["prompt"])))
    return RunRequest(model="smollm2-135m", token_ids=ids, max_new_tokens=48, temperature=0.0, seed=0)


def test_ranks_that_end_in_good_order(
    start_ranks: StartRanks, tiny_gguf: TinyGguf, own_data_dir: Path, tmp_path: Path
) -> None:
    """What is wrong at the start is said by every rank in one line, and all of them end."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "sources").symlink_to((own_data_dir / "sources").resolve())
    command = ["-m", "atlas", "serve", "--port", "0", "--data-dir", str(data)]
    world_of_two = start_ranks(command, world=2)
    another = tmp_path / "numpy-9.9.9.dist-info"
    another.mkdir()
    (another / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 9.9.9\n")
    different = start_ranks(
        command,
        world=2,
        own=lambda rank: {"PYTHONPATH": str(tmp_path)} if rank else {},
        arguments=lambda rank: ["--max-new-tokens", str(100 + rank)],
    )
    paths = [tiny_gguf(), tiny_gguf("other.gguf", metadata={"llama.rope.freq_base": 20000.0})]
    weights = start_ranks(command, world=2, arguments=lambda rank: ["--checkpoint", f"mine={paths[rank]}"])
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in paths]
    for ranks, sentence in (
        (world_of_two, "SmolLM2 135M cannot be split over 2 ranks: 9 q heads, 3 kv heads cannot be divided by 2."),
        (
            different,
            f"differs from rank 0: numpy is 9.9.9 there and {np.__version__} on rank 0; "
            "--max-new-tokens is 101 there and 100 on rank 0.",
        ),
        (
            weights,
            f"differs from rank 0: the weights of mine is sha256 {hashes[1]} there and sha256 {hashes[0]} on rank 0.",
        ),
    ):
        for process in ranks:
            said = process.communicate(timeout=DEADLINE)[0]
            assert process.returncode == 2, said
            assert sentence in said
            assert "Traceback" not in said


def test_a_meeting_point_that_is_in_use(start_ranks: StartRanks) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (rank,) = start_ranks(
            ["-m", "atlas", "serve", "--port", "0"],
            world=1,
            own=lambda _: {"WORLD_SIZE": "3", "MASTER_PORT": str(port)},
        )
        said = rank.communicate(timeout=DEADLINE)[0]
    assert rank.returncode == 2, said
    assert f"The ranks cannot meet on port {port} of 127.0.0.1: it is in use." in said


def test_where_the_default_cannot_be_split_others_stand_in_its_place(
    start_ranks: StartRanks, tiny_gguf: TinyGguf, tmp_path: Path, own_data_dir: Path, catalog: Catalog
) -> None:
    """Two ranks: Llamas of one's own, and models of transformers by their plans, saved and untrained."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "sources").symlink_to((own_data_dir / "sources").resolve())
    port, path = free_port(), tiny_gguf()
    shards, saved = (
        meta_directory.write_small(tmp_path, 2),
        hugging_face_directory.save_small(catalog, tmp_path, "qwen3"),
    )
    command = ["-m", "atlas", "serve", "--port", str(port), "--data-dir", str(data), "--untrained"]
    for name, where in (("mine", path), ("sharded", shards), ("saved", saved)):
        command += ["--checkpoint", f"{name}={where}"]
    server = Server(start_ranks(command, world=2), port, data)
    server.until(lambda: server.get("/readyz")[0] == 200, "It does not get ready.")
    run = server.demonstration()
    assert server.json(f"/api/runs/{run}")[1]["model"] == "mine"
    assert server.numbers(run, WEIGHTS, view="prefill", layer=1, rank=1).shape[1] == 2
    status, problem = server.json("/api/runs", {"model": "smollm2-135m", "prompt": "Hello"})
    assert status == 409
    assert "SmolLM2 135M cannot be split over 2 ranks" in problem["detail"]
    status, problem = server.json("/api/checkpoints", {"path": str(path), "model": "another"})
    assert status == 409
    assert "open them together when they start" in problem["detail"]
    own = Catalog(catalog.store)
    whole = open_checkpoint(shards, tmp_path / "whole")
    _agrees(server, Llama(adopt(own, "sharded", whole), whole), (WEIGHTS, GATE, "blocks/attention/key-cache"))
    norm = "blocks/attention/query-norm/normalized"
    whole = open_checkpoint(saved, tmp_path / "whole")
    _agrees(server, Runner(adopt(own, "saved", whole), whole), (WEIGHTS, norm, GATE))
    mixtral = catalog.small("mixtral")
    _agrees(server, Runner(mixtral, untrained(mixtral)), ("blocks/feed-forward/experts/gate",))
    assert server.json("/api/runs", {"model": catalog.small("gpt2").id, "token_ids": [1]})[0] in (404, 409)  # no plan
    server.ranks[0].send_signal(signal.SIGTERM)
    for process in server.ranks:
        said = process.communicate(timeout=DEADLINE)[0]
        assert process.returncode in (0, 2), said
        assert "Traceback" not in said


def _agrees(server: Server, whole: ReferenceRunner, split: tuple[str, ...]) -> None:
    """A model on the ranks computes what it does in one process; these nodes are split."""
    ids = (5, 6, 7, 8, 9, 10, 11)
    run = server.done({"model": whole.model.id, "token_ids": list(ids), "max_new_tokens": 2})
    nodes = [*split, "unembedding/logits"]
    logits, recording = whole.capture(Pass(ids, 0), whole.memory(len(ids)), whole.sites(nodes))
    assert server.json(f"/api/runs/{run}")[1]["tokens"][len(ids)]["id"] == int(logits[0, -1].argmax())
    for node in nodes:
        ours = recording.last(node, 0 if node.startswith("blocks/") else None)
        assert ours is not None
        theirs = server.numbers(run, node, view="prefill", layer=0)
        assert theirs.shape == ours.shape
        assert np.abs(theirs - ours.numpy()).max() <= 1e-4 * float(ours.abs().max())
        summary = server.json(f"/api/runs/{run}/tensors/{node}?view=prefill&layer=0&checks=shape")[1]
        assert (summary["split"]["axis"] is not None) == (node in split)
        share = server.numbers(run, node, view="prefill", layer=0, rank=1)
        assert share.size == (ours.numel() // 2 if node in split else ours.numel())
    weight = whole.model.graph["unembedding/weight"].node
    assert isinstance(weight, Parameter)
    matrix = whole.weight(weight.weight).numpy()
    assert np.array_equal(server.numbers(run, "unembedding/weight"), matrix)
    assert np.array_equal(server.numbers(run, "unembedding/weight", rank=1), matrix[len(matrix) // 2 :])
