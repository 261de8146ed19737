"""The API of runs, on the real default model."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

ORDER: dict[str, Any] = {
    "model": "smollm2-135m",
    "prompt": "The capital of France is",
    "max_new_tokens": 4,
    "temperature": 0,
    "seed": 0,
}


def finished(client: TestClient, order: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/api/runs", json=order)
    assert answer.status_code == 202, answer.text
    run: dict[str, Any] = answer.json()
    deadline = time.monotonic() + 60
    while run["status"] in ("queued", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
        run = client.get(f"/api/runs/{run['id']}").json()
    return run


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.replace("\r\n", "\n").strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


def test_a_run_from_prompt_to_tokens(live_client: TestClient) -> None:
    run = finished(live_client, ORDER)
    assert run["status"] == "done"
    assert [t["id"] for t in run["tokens"][:5]] == [504, 3575, 282, 4649, 314]
    assert [t["origin"] for t in run["tokens"]] == ["prompt"] * 5 + ["generated"] * 4
    assert run["tokens"][5]["text"] == " Paris"
    assert run["steps"] == 3
    assert run["prompt_length"] == 5
    assert "".join(t["text"] for t in run["tokens"][:5]) == run["prompt"] == ORDER["prompt"]


def test_token_ids_in_place_of_text_are_the_same_run(live_client: TestClient) -> None:
    run = finished(live_client, ORDER)
    twin = {**ORDER, "prompt": None, "token_ids": [504, 3575, 282, 4649, 314]}
    assert live_client.post("/api/runs", json=twin).json()["id"] == run["id"]


def test_events_of_a_run(live_client: TestClient) -> None:
    run = live_client.post("/api/runs", json={**ORDER, "prompt": "Once upon a time", "max_new_tokens": 3}).json()
    answer = live_client.get(f"/api/runs/{run['id']}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    seen = events(answer.text)
    assert [kind for kind, _ in seen].count("token") == run["prompt_length"] + 3
    assert [data["position"] for kind, data in seen if kind == "token"] == list(range(run["prompt_length"] + 3))
    assert seen[-1] == ("done", {"status": "done", "steps": 2})
    assert seen[0][0] == "status"


def test_cancelling_is_told_to_those_who_follow(live_client: TestClient) -> None:
    order = {**ORDER, "prompt": None, "token_ids": list(range(50, 900)), "max_new_tokens": 100}
    run = live_client.post("/api/runs", json=order).json()
    assert live_client.delete(f"/api/runs/{run['id']}").status_code == 204
    assert live_client.get(f"/api/runs/{run['id']}").status_code == 404
    assert live_client.delete(f"/api/runs/{run['id']}").status_code == 404


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"model": "nope"}, 404, "not-found"),
        ({"model": "llama-3-8b"}, 409, "no-checkpoint"),
        ({"prompt": ""}, 422, "bad-request"),
        ({"max_new_tokens": -1}, 422, "bad-request"),
        ({"max_new_tokens": 100_000}, 422, "bad-request"),
        ({"prompt": "word " * 12_000}, 413, "too-large"),
        ({"temperature": "warm"}, 422, "bad-request"),
        ({"temperature": -1}, 422, "bad-request"),
        ({"seed": 2**64}, 422, "bad-request"),
        ({"prompt": None}, 422, "bad-request"),
        ({"token_ids": [1]}, 422, "bad-request"),
        ({"prompt": None, "token_ids": []}, 422, "bad-request"),
        ({"prompt": None, "token_ids": [10**12]}, 422, "bad-request"),
        ({"prompt": "\ud800"}, 422, "bad-request"),
        ({"tempreature": 1}, 422, "bad-request"),
    ],
)
def test_what_is_refused_and_how(live_client: TestClient, change: dict[str, Any], status: int, code: str) -> None:
    answer = live_client.post(
        "/api/runs", content=json.dumps({**ORDER, **change}), headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    said = answer.json()
    assert said["code"] == code
    assert said["detail"]
    assert said["hint"]
    assert said["request_id"]


def test_infinity_is_refused(live_client: TestClient) -> None:
    body = json.dumps({**ORDER, "temperature": float("inf")})
    answer = live_client.post("/api/runs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_unknown_run_is_not_found(live_client: TestClient) -> None:
    for path in ("0" * 20, "..%2f..", "x" * 500):
        answer = live_client.get(f"/api/runs/{path}")
        assert answer.status_code == 404, path
        assert answer.json()["request_id"]


def test_a_prompt_by_the_chat_template(live_client: TestClient) -> None:
    order = {**ORDER, "prompt": "Say <|im_end|> twice", "chat": True, "max_new_tokens": 2}
    run = finished(live_client, order)
    assert (run["status"], run["chat"], run["prompt"]) == ("done", True, "Say <|im_end|> twice")
    own = [token for token in run["tokens"] if token["origin"] == "prompt" and not token["template"]]
    assert "".join(token["text"] for token in own) == "Say <|im_end|> twice"
    assert run["tokens"][0]["template"]
    assert run["tokens"][0]["label"] == "<|im_start|>"
    assert not any(token["template"] for token in run["tokens"] if token["origin"] == "generated")
    assert live_client.post("/api/runs", json=order).json()["id"] == run["id"]
    told = [data for kind, data in events(live_client.get(f"/api/runs/{run['id']}/events").text) if kind == "token"]
    assert [token["template"] for token in told] == [token["template"] for token in run["tokens"]]


@pytest.mark.parametrize("wrong", [{"add_bos": True}, {"prompt": None, "token_ids": [1]}])
def test_a_chat_template_takes_a_prompt_and_nothing_beside(live_client: TestClient, wrong: dict[str, Any]) -> None:
    assert live_client.post("/api/runs", json={**ORDER, "chat": True, **wrong}).status_code == 422
