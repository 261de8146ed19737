"""The API of explanations: one number, followed back; refusals with problems."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from atlas.runtime.engine import Engine

A = "blocks/attention/"


@pytest.fixture
def base(engine: Engine) -> str:
    return f"/api/runs/{engine.demonstration}/explain/"


def test_a_number_is_explained(live_client: TestClient, base: str) -> None:
    found = live_client.get(f"{base}{A}scaled-similarities?view=prefill&layer=3&cell=0,4,2,1").json()
    assert found["operation"] == f"{A}scale-similarities"
    assert found["sources"][0]["node"] == f"{A}similarities"
    assert found["sources"][0]["cell"] == [0, 4, 2, 1]
    assert found["recomputed"]["value"] == pytest.approx(found["captured"]["value"])
    assert found["sources"][0]["figure"]["value"] / 8 == pytest.approx(found["captured"]["value"])
    assert f'data-node="{A}similarities"' in found["html"]
    assert "katex" in found["html"]


def test_every_source_can_be_asked_the_same(live_client: TestClient, base: str) -> None:
    found = live_client.get(f"{base}{A}attention-update?view=decode&step=2&layer=3&cell=0,0,7").json()
    source = found["totals"][0]["terms"][0]["sources"][0]
    query = {key: source[key] for key in ("view", "layer", "step") if source[key] is not None}
    cell = ",".join(map(str, source["cell"]))
    again = live_client.get(f"{base}{source['node']}", params={**query, "cell": cell}).json()
    assert again["captured"] == source["figure"]


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("view=prefill&layer=3&cell=0,1", 422, "has 2 indices"),
        ("view=prefill&layer=3&cell=0,1,999", 422, "no index 999"),
        ("view=prefill&layer=3&cell=one", 422, ""),
        ("view=prefill&layer=3", 422, ""),
        ("view=prefill&layer=99&cell=0,1,2", 404, "no layer 99"),
        ("view=sideways&cell=0,1,2", 422, ""),
    ],
)
def test_what_cannot_be_explained_is_a_problem(
    live_client: TestClient, base: str, query: str, status: int, says: str
) -> None:
    answer = live_client.get(f"{base}{A}attention-update?{query}")
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert says in answer.json()["detail"]


def test_a_node_that_the_pass_does_not_compute_is_a_problem(live_client: TestClient, base: str) -> None:
    answer = live_client.get(f"{base}causal-mask?view=decode&step=1&cell=0,0")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not-computed"
