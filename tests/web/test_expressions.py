"""The code as an index: what every expression of the reference gave, and its values as a tensor."""

from __future__ import annotations

import io

import numpy as np
import pytest
from fastapi.testclient import TestClient

from atlas.runtime.engine import Engine


@pytest.fixture
def base(engine: Engine) -> str:
    return f"/api/runs/{engine.demonstration}"


def values(client: TestClient, base: str, name: str, query: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    answer = client.get(f"{base}/tensors/{name}/data?{query}&format=npy")
    assert answer.status_code == 200, answer.text
    loaded: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = np.load(io.BytesIO(answer.content))
    return loaded


def test_every_expression_of_a_block(live_client: TestClient, base: str) -> None:
    said = live_client.get(f"{base}/expressions?view=prefill&layer=3").json()
    assert said["path"] == "models/llama3/model.py"
    by_text = {item["text"]: item for item in said["expressions"]}
    scores = by_text["torch.matmul(xq, keys.transpose(2, 3))"]
    assert scores["nodes"] == ["blocks/attention/similarities"]
    assert scores["values"][0]["shape"] == [1, 9, 5, 5]
    undeclared = by_text["keys.transpose(2, 3)"]
    assert undeclared["nodes"] == []
    assert undeclared["values"][0]["shape"] == [1, 9, 64, 5]
    norm = by_text["x.pow(2)"]
    assert len(norm["values"]) == 2
    masked = by_text["scores + mask"]["values"][0]
    assert masked["inf"] == 9 * 10
    assert not any(item["function"].endswith("__init__") for item in said["expressions"])


def test_an_expression_is_a_tensor_like_any_other(live_client: TestClient, base: str) -> None:
    query = "view=prefill&layer=3"
    said = live_client.get(f"{base}/expressions?{query}").json()["expressions"]
    by_text = {item["text"]: item for item in said}
    similar = by_text["torch.matmul(xq, keys.transpose(2, 3))"]["name"]
    declared = values(live_client, base, "blocks/attention/similarities", query)
    assert np.array_equal(values(live_client, base, similar, query), declared)
    turned = values(live_client, base, by_text["keys.transpose(2, 3)"]["name"], query)
    repeated = values(live_client, base, "blocks/attention/repeated-keys", query)
    assert np.array_equal(turned, repeated.transpose(0, 2, 3, 1))
    whole = live_client.get(f"{base}/tensors/{by_text['keys.transpose(2, 3)']['name']}?{query}").json()
    assert whole["shape"] == [1, 9, 64, 5]
    assert [axis["name"] for axis in whole["axes"]] == ["axis 0", "axis 1", "axis 2", "axis 3"]
    assert whole["checks"]["shape"]["ok"] is whole["checks"]["equation"]["ok"] is None
    assert whole["checks"]["source"]["ok"] is True
    squares = by_text["x.pow(2)"]["name"]
    first, second = (values(live_client, base, f"{squares}/{turn}", query) for turn in (1, 2))
    assert np.array_equal(first, values(live_client, base, "blocks/block-input", query) ** 2)
    assert np.array_equal(second, values(live_client, base, "blocks/mid-residual", query) ** 2)


def test_expressions_outside_the_blocks(live_client: TestClient, base: str) -> None:
    said = live_client.get(f"{base}/expressions?view=decode&step=2&part=outside").json()["expressions"]
    by_text = {item["text"]: item for item in said}
    assert by_text["self.output(h).float()"]["values"][0]["shape"] == [1, 1, 49152]
    assert "torch.matmul(scores, values)" not in by_text
    name = by_text["self.norm(h)"]["name"]
    assert name.startswith("outer-code/")
    ours = values(live_client, base, name, "view=decode&step=2")
    assert np.array_equal(ours, values(live_client, base, "final-norm/normalized", "view=decode&step=2"))


def test_a_statistic_is_that_of_the_tensor(live_client: TestClient, base: str) -> None:
    said = live_client.get(f"{base}/expressions?view=prefill&layer=0").json()["expressions"]
    update = next(item for item in said if item["nodes"] == ["blocks/attention/attention-update"])
    whole = live_client.get(f"{base}/tensors/blocks/attention/attention-update?view=prefill&layer=0").json()["stats"]
    for name in ("mean", "rms", "min", "max"):
        assert update["values"][0][name] == pytest.approx(whole[name], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/expressions?view=prefill&layer=30", 404),
        ("/expressions?view=sideways", 422),
        ("/expressions?view=decode&step=99", 404),
        ("/tensors/code/Attention.forward/1.1-1.2?view=prefill", 404),
        ("/tensors/code/../../etc?view=prefill", 404),
        ("/tensors/code/Attention.forward/196.17-196.82/9?view=prefill", 404),
    ],
)
def test_what_is_not_there(live_client: TestClient, base: str, path: str, status: int) -> None:
    answer = live_client.get(base + path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
