"""The graph as JSON: what the contract says of it, and that its own description fits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from atlas.catalog import Catalog
from atlas.settings import Settings
from atlas.web.app import create_app

NODE = "/api/models/llama-3-8b/nodes/blocks/attention/attention-update"


@pytest.fixture(scope="module")
def client(catalog: Catalog, data_dir: Path) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(data_dir=data_dir), catalog=catalog)) as client:
        yield client


def test_models_are_listed_in_order(client: TestClient, catalog: Catalog) -> None:
    listed = client.get("/api/models").json()
    assert [one["id"] for one in listed] == [entry.id for entry in catalog]
    assert listed[1] == {
        "id": "llama-3.1-8b",
        "name": "Llama 3.1 8B",
        "publisher": "Meta",
        "released": "2024-07-23",
        "kind": "Dense decoder",
        "attention": "Grouped-query attention",
        "architecture": "llama",
        "follows": "llama-3-8b",
        "derived": False,
        "live": {"available": False, "stand_in": None},
    }


def test_a_graph_is_whole(client: TestClient, catalog: Catalog) -> None:
    graph = client.get("/api/models/llama-3-8b").json()
    assert [node["path"] for node in graph["nodes"]] == list(catalog["llama-3-8b"].graph.nodes)
    assert graph["config"]["dim"] == 4096
    assert {"from", "to", "views", "next_layer", "first_layer", "lends"} == set(graph["edges"][0])
    assert [edge for edge in graph["edges"] if edge["next_layer"]] == [
        {
            "from": "blocks/block-output",
            "to": "blocks/block-input",
            "views": ["full", "prefill", "decode"],
            "next_layer": True,
            "first_layer": False,
            "lends": False,
        }
    ]
    mask = next(node for node in graph["nodes"] if node["path"] == "causal-mask")
    assert mask["shape"]["decode"] is None
    assert mask["views"] == ["full", "prefill"]
    block = next(node for node in graph["nodes"] if node["path"] == "blocks")
    assert block["repeat"] == 32


def test_a_node_has_shapes_equation_and_pinned_evidence(client: TestClient) -> None:
    node = client.get(NODE).json()
    assert node["code"] == "self.wo(output)"
    assert [(one["axis"], one["symbol"], one["size"]) for one in node["shape"]["decode"]] == [
        ("batch", "B", None),
        ("positions", "1", 1),
        ("d_model", "D", 4096),
    ]
    assert node["equation"] == r"\Delta_{\mathrm{attn}} = Z_{\mathrm m}\,W_{\mathrm O}^{\top}"
    assert "htmlData" not in node["explanation"]
    direct, earlier, *_, config = node["evidence"]
    assert direct["lines"] == [[202, 202]]
    assert direct["excerpt"][0]["code"].strip() == "return self.wo(output)"
    assert direct["source"]["url"].endswith("/models/llama3/model.py#L202-L202")
    assert earlier["lines"] == [[190, 190]]
    assert not earlier["available"]
    assert "atlas sources sync llama3" in earlier["missing"]
    assert config["lines"] == [[19, 19], [188, 207]]
    for piece in node["evidence"]:
        assert re.fullmatch("[0-9a-f]{64}", piece["source"]["sha256"])


@pytest.mark.parametrize(
    ("address", "nearest"),
    [
        ("/api/models/llama-3-9b", "llama-3-8b"),
        ("/api/models/llama-3-8b/nodes/blocks/attention/atention-update", "blocks/attention/attention-update"),
    ],
)
def test_an_unknown_name_is_a_problem_that_suggests(client: TestClient, address: str, nearest: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert (said["code"], said["status"], said["title"], said["nearest"]) == ("not-found", 404, "Not Found", nearest)
    assert nearest in said["hint"]
    assert said["request_id"] == answer.headers["x-request-id"]


def test_search_answers_with_addresses(client: TestClient) -> None:
    found = client.get("/api/search", params={"q": "blk.3.attn_k.weight", "model": "smollm2-135m"}).json()
    assert found["hits"][0]["href"] == "/models/smollm2-135m/blocks/attention/key-weight?layer=3"
    assert found["hits"][0]["of"] == "GGUF"
    assert client.get("/api/search", params={"q": "x" * 201}).status_code == 422


def test_the_description_names_every_call_and_its_problems(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    ours = {"/healthz", "/readyz", "/api/models", "/api/models/{model}", "/api/models/{model}/nodes/{node}"}
    assert {*ours, "/api/search"} <= set(described["paths"])
    node = described["paths"]["/api/models/{model}/nodes/{node}"]["get"]
    assert "application/problem+json" in node["responses"]["404"]["content"]
    assert "Problem" in described["components"]["schemas"]
    assert not [path for path in described["paths"] if path in ("/", "/search", "/models/{model}")]
