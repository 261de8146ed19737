"""Numbers for Prometheus: what is counted, by which names, and that they tell nothing of what was asked."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from atlas.catalog import Catalog
from atlas.settings import Settings
from atlas.web.app import create_app

from .test_runs import ORDER, finished

Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def numbers(client: TestClient) -> Numbers:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_requests_are_counted_by_route_and_status(catalog: Catalog, tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path), catalog=catalog)
    with TestClient(app) as client:
        for path in ("/", "/", "/models/llama-3-8b/final-norm/scale", "/models/llama-3-8b/final-norm/normalized"):
            client.get(path)
        client.get("/models/llama-3-8b/nothing")
        client.get("/api/runs/secret-run")
        client.get("/nowhere/secret-path?q=secret-query")
        client.get("/static/site.js")
        client.request("SECRET", "/")
        seen = numbers(client)
        text = client.get("/metrics").text

    def count(route: str, status: int, method: str = "GET") -> float:
        labels = (("method", method), ("route", route), ("status", str(status)))
        return seen["atlas_requests_total", labels]

    assert count("/", 200) == 2
    assert count("/models/{model}/{node:path}", 200) == 2
    assert count("/models/{model}/{node:path}", 404) == 1
    assert count("/api/runs/{run_id}", 503) == 1
    assert count("none", 404) == 1
    assert count("/static", 200) == 1
    assert count("/", 405, "other") == 1
    assert seen["atlas_request_seconds_count", (("route", "/"),)] == 3
    assert "secret" not in text.lower()


def test_the_engine_is_counted(live_client: TestClient) -> None:
    before = numbers(live_client)
    run = finished(live_client, {**ORDER, "prompt": "Numbers of an engine", "max_new_tokens": 3})
    tensor = f"/api/runs/{run['id']}/tensors/blocks/attention/queries/cell?view=prefill&layer=4&slice=0,0,0,0"
    assert live_client.get(tensor).status_code == 200
    after = numbers(live_client)

    def grown(name: str, **labels: str) -> float:
        key = (name, tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0.0)

    assert grown("atlas_tokens_generated_total") == 3
    assert grown("atlas_tokens_prefilled_total") == run["prompt_length"]
    assert grown("atlas_runs_finished_total", status="done") == 1
    assert grown("atlas_pass_seconds_count", view="decode") == 2
    assert grown("atlas_replay_seconds_count") == 1
    assert grown("atlas_tensor_requests_total", origin="replayed") == 1
    for name in ("atlas_run_bytes", "atlas_tokens_per_second", "atlas_ready", "atlas_journal_ok"):
        assert after[name, ()] > 0
    assert after["atlas_run_bytes", ()] <= after["atlas_run_bytes_budget", ()]
    for name in ("atlas_runs_queued", "atlas_runs_running", "atlas_event_streams"):
        assert after[name, ()] == 0


def test_a_request_is_a_log_line_with_its_id_and_without_what_was_asked(
    catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(Settings(data_dir=tmp_path), catalog=catalog)
    caplog.set_level(logging.DEBUG, "atlas.requests")
    with TestClient(app) as client:
        client.get("/search?q=secret", headers={"X-Request-ID": "mine"})
        client.get("/healthz")
    one, probe = caplog.records
    assert one.getMessage() == "GET /search"
    assert vars(one)["request_id"] == "mine"
    assert (vars(one)["status"], vars(one)["route"]) == (200, "/search")
    assert (one.levelno, probe.levelno) == (logging.INFO, logging.DEBUG)
    assert "secret" not in caplog.text
