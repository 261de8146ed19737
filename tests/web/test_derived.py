"""Pages and API of a model whose graph was read off its code: the same as of others, and labelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from atlas.catalog import Catalog, open_store
from atlas.inspection.checks import run_checks
from atlas.settings import CheckpointChoice, Settings
from atlas.web.app import create_app
from atlas.web.backend import Backend
from tests.derived import Opened
from tests.web.html import Page

GATED = "blocks/mixer/norm/hidden-states-2"
STATE = "blocks/mixer/mamba2-selective-state-update-ssm-states"
Open = Callable[[str], Opened]


@pytest.fixture(scope="module")
def client(
    opened: Open, own_data_dir: Path, data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    """An application that was started with a checkpoint which nothing describes."""
    own = tmp_path_factory.mktemp("derived")
    for entry in own_data_dir.iterdir():
        if not entry.name.startswith("runs."):
            (own / entry.name).symlink_to(entry)
    choice = CheckpointChoice(model="mamba", path=opened("Mamba2ForCausalLM").directory)
    settings = Settings(data_dir=own, checkpoint=(choice,))
    catalog = Catalog(open_store(data_dir))
    with TestClient(create_app(settings, catalog=catalog, backend=Backend(settings, catalog))) as made:
        deadline = time.monotonic() + 120
        while (answer := made.get("/readyz")).status_code != 200:
            assert "failed" not in answer.text, answer.text
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.05)
        yield made


def words(client: TestClient, path: str) -> str:
    """All text of a page, with one space between words."""
    return " ".join(Page(client.get(path).text).one("main").text.split())


@pytest.fixture(scope="module")
def run(client: TestClient) -> str:
    """The id of a finished run."""
    asked = {"model": "mamba", "token_ids": [5, 100, 42, 7, 7, 200, 19], "max_new_tokens": 3, "temperature": 0}
    identity: str = client.post("/api/runs", json=asked).json()["id"]
    deadline = time.monotonic() + 60
    while (found := client.get(f"/api/runs/{identity}").json())["status"] != "done":
        assert found["status"] in ("queued", "running"), found
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return identity


def test_the_api_says_that_it_is_derived(client: TestClient) -> None:
    listed = {model["id"]: model["derived"] for model in client.get("/api/models").json()}
    assert [model for model, derived in listed.items() if derived] == ["mamba"]
    graph = client.get("/api/models/mamba").json()
    assert graph["live"]["available"]
    assert [(edge["from"], edge["to"]) for edge in graph["edges"] if edge["next_layer"]] == [
        ("blocks/block-output", "blocks/block-input")
    ]
    node = client.get(f"/api/models/mamba/nodes/{GATED}").json()
    assert node["derived"]
    assert [extent["words"] for extent in node["shape"]["decode"]] == ["batch", "position", "q width"]
    assert [piece["kind"] for piece in node["evidence"]] == ["direct", "contextual", "contextual"]
    assert "silu" in node["evidence"][0]["excerpt"][0]["code"]
    assert r"\text{(full sequence and prefill)}" in node["equation"]


def test_its_pages_say_so_and_show_the_code(client: TestClient) -> None:
    whole = words(client, "/models/mamba")
    assert "Derived from its code" in whole
    assert "What a pass costs" not in whole, "nobody has said what a step's factors are"
    node = words(client, f"/models/mamba/{GATED}")
    assert "Derived. Read off the code while it ran: nobody has described it." in node
    assert "class MambaRMSNormGated" not in node
    assert "def forward(self, hidden_states, gate=None):" in node
    lit = {one["data-node"] for one in Page(client.get(f"/models/mamba/{GATED}").text).all("span", data_node="*")}
    assert {GATED, "blocks/mixer/norm/variance", "blocks/mixer/gate"} <= lit
    assert "Read off the code while it ran" not in words(client, "/models/llama-3-8b/blocks/attention/queries")


def test_a_view_shows_what_flows_in_it(client: TestClient) -> None:
    full, decode = (words(client, f"/models/mamba/{GATED}?view={view}") for view in ("full", "decode"))
    assert "output of" not in decode
    assert "result of mamba2_chunk_scan" in full or "scan_output" in full
    assert full != decode


@pytest.mark.parametrize("node", [GATED, STATE, "blocks/mixer/conv-state"])
def test_values_are_live_in_a_decode_step_long_gone(client: TestClient, run: str, node: str) -> None:
    found = client.get(f"/api/runs/{run}/tensors/{node}", params={"view": "decode", "step": 1, "layer": 1}).json()
    assert found["checks"]["shape"]["ok"] is True
    assert found["checks"]["source"]["ok"] is True
    assert found["checks"]["equation"]["ok"] is None
    assert found["stats"]["nan"] == 0


def test_values_are_live_in_prefill(client: TestClient, run: str) -> None:
    found = client.get(f"/api/runs/{run}/tensors/{GATED}", params={"view": "prefill", "layer": 0}).json()
    assert (found["shape"], found["checks"]["shape"]["ok"]) == ([1, 7, 64], True)
    logits = client.get(f"/api/runs/{run}/tensors/unembedding/logits", params={"view": "prefill"}).json()
    assert logits["shape"] == [1, 7, 300]


def test_what_only_decode_computes_is_not_in_prefill(client: TestClient, run: str) -> None:
    answer = client.get(f"/api/runs/{run}/tensors/{STATE}", params={"view": "prefill"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not-computed")
    assert "does not come to this line" in answer.json()["detail"]


def test_check_prints_what_it_can(opened: Open, data_dir: Path) -> None:
    """A model of a new id is known by its checkpoint alone."""
    settings = Settings(
        data_dir=data_dir, checkpoint=(CheckpointChoice(model="mine", path=opened("SmolLM3ForCausalLM").directory),)
    )
    (report,) = run_checks(Catalog(open_store(data_dir)), settings, ["mine"])
    assert report.ok, [result for result in report.results if result.status == "failed"]
    (pending,) = report.of("pending")
    assert pending.kind == "equations"
    assert "operations were read off the code, without an equation" in pending.detail
    for kind in ("sources", "shapes", "edges", "consistency", "checkpoint"):
        assert len(report.of("passed", kind)) > 15, kind
