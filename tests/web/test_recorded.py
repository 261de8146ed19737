"""A bundle opened where nothing else is: no weights, no data, the same API; and bundles that are sent."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from atlas.catalog import Catalog
from atlas.inspection.recorded.record import Choice
from atlas.runtime.engine import Engine
from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.backend import Backend
from tests.published import recorded

WEIGHTS = "blocks/attention/attention-weights"
Opened = Callable[..., AbstractContextManager[TestClient]]


@pytest.fixture(scope="module")
def opened(catalog: Catalog) -> Opened:
    """Opens an application on a data directory, with bundles and without weights."""

    @contextmanager
    def open_app(data_dir: Path, *bundles: Path, **given: object) -> Iterator[TestClient]:
        settings = Settings(data_dir=data_dir, **given)  # type: ignore[arg-type]
        backend = Backend(settings, catalog, bundles=bundles)
        app = create_app(settings, catalog=catalog, backend=backend)
        with TestClient(app, raise_server_exceptions=False) as client:
            deadline = time.monotonic() + 60
            while client.get("/readyz").status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield client

    return open_app


@pytest.fixture(scope="module")
def client(opened: Opened, bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with opened(tmp_path_factory.mktemp("empty"), bundle) as client:
        yield client


@pytest.fixture(scope="module")
def run(client: TestClient) -> str:
    found: str = client.get("/readyz").json()["demo_run"]
    return found


def without_time(answer: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in answer.items() if name not in ("seconds", "note", "request_id")}


ASKED = [
    f"tensors/{WEIGHTS}?view=decode&layer=3&step=2",
    f"tensors/{WEIGHTS}?view=full&layer=29&checks=all",
    f"tensors/{WEIGHTS}/cell?view=full&layer=7&slice=0,4,9,2&along=keys",
    f"tensors/{WEIGHTS}/top?view=full&layer=7&slice=0,4,9,:",
    f"tensors/{WEIGHTS}/heads?view=prefill&layer=2",
    f"tensors/{WEIGHTS}/profile?view=full&layer=0&along=q_heads",
    f"tensors/{WEIGHTS}/agreement?layer=4",
    "tensors/final-norm/normalized?view=prefill",
    "tensors/final-norm/gain?checks=all",
    "tensors/rotary/rotations/cell?slice=2,3&part=angle",
]


@pytest.mark.parametrize("asked", ASKED)
def test_it_answers_as_the_engine_did(asked: str, client: TestClient, live_client: TestClient, run: str) -> None:
    recorded, live = (one.get(f"/api/runs/{run}/{asked}") for one in (client, live_client))
    assert live.status_code == 200, live.text
    assert recorded.json() == live.json()


@pytest.mark.parametrize("asked", [f"{WEIGHTS}/tile?view=full&layer=5&slice=0,1,:,:", "final-norm/normalized/data"])
def test_numbers_are_the_engines_bit_for_bit(asked: str, client: TestClient, live_client: TestClient, run: str) -> None:
    recorded, live = (one.get(f"/api/runs/{run}/tensors/{asked}") for one in (client, live_client))
    assert live.status_code == 200
    assert recorded.content == live.content


def test_the_run_is_the_same(client: TestClient, live_client: TestClient, run: str) -> None:
    recorded, live = (one.get(f"/api/runs/{run}").json() for one in (client, live_client))
    assert without_time(recorded) == without_time(live)
    assert "opened here without its weights" in recorded["note"]
    events = client.get(f"/api/runs/{run}/events").text
    assert "event: done" in events


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("tensors/blocks/attention/queries?layer=3", "does not hold blocks/attention/queries in full, layer 3"),
        ("tensors/blocks/attention/queries/tile?layer=3&slice=0,:,0,:", "it was not chosen for recording"),
        ("tensors/blocks/attention/query-weight", "does not hold blocks/attention/query-weight"),
        (f"explain/{WEIGHTS}?layer=3&cell=0,0,1,0", "does not hold"),
        ("expressions?view=full&part=block&layer=0", "does not hold what expressions gave in full, layer 0"),
        ("tensors/code/Attention.forward/184.17-184.82?layer=0", "of an expression what it gave at a glance"),
    ],
)
def test_what_the_bundle_does_not_hold_is_said(asked: str, said: str, client: TestClient, run: str) -> None:
    answer = client.get(f"/api/runs/{run}/{asked}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not-recorded")
    assert said in answer.json()["detail"]


def test_expressions_say_what_they_gave_when_the_run_was_recorded(
    opened: Opened, engine: Engine, live_client: TestClient, run: str, tmp_path: Path
) -> None:
    path = recorded(engine, run, Choice(("final-norm",)), tmp_path / "glances.atlas")
    with opened(tmp_path / "empty", path) as client:
        for asked in ("view=full&part=outside", "view=decode&part=outside&step=3"):
            held, live = (one.get(f"/api/runs/{run}/expressions?{asked}") for one in (client, live_client))
            assert live.status_code == 200
            assert held.json() == live.json()


def test_nothing_can_be_run_and_pages_say_what_is_held(client: TestClient, run: str) -> None:
    answer = client.post("/api/runs", json={"model": "smollm2-135m", "prompt": "x"})
    assert (answer.status_code, answer.json()["code"]) == (409, "no-checkpoint")
    assert "has no weights" in answer.json()["detail"]
    page = client.get("/models/smollm2-135m/blocks/attention/queries").text
    assert "The recorded run holds nothing of it: it was not chosen for recording." in page
    whole = client.get(f"/models/llama-3-8b/{WEIGHTS}").text
    assert f'data-demo-run="{run}"' in whole
    assert 'data-live="recorded"' not in whole
    assert client.delete(f"/api/runs/{run}").status_code == 409
    unknown = client.get("/api/runs/0123456789")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not-found")


def test_a_bundle_that_is_sent_is_kept_shown_and_removed(
    opened: Opened, bundle: Path, run: str, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    with opened(first, bundle) as client:
        sent = client.post("/api/recorded", content=bundle.read_bytes())
        assert sent.status_code == 201, sent.text
        assert sent.json()["id"] == run
        assert sent.headers["Location"] == f"/api/runs/{run}"
    assert [path.name for path in (first / "recorded").iterdir()] == [f"{run}.atlas"]
    assert not list(first.glob(".received-*"))
    with opened(first, bundle) as client:
        data = client.get(f"/api/runs/{run}/tensors/{WEIGHTS}/data?view=full&layer=1")
        assert np.load(io.BytesIO(data.content)).shape == (1, 9, 13, 13)
        assert client.delete(f"/api/runs/{run}").status_code == 204
        assert client.get(f"/api/runs/{run}").status_code == 404
    assert not list((first / "recorded").iterdir())


def test_what_is_no_bundle_is_refused_and_nothing_is_kept(opened: Opened, bundle: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "data", bundle) as client:
        for content, code in ((b"no bundle", "bad-bundle"), (bundle.read_bytes()[:-1000], "bad-bundle")):
            answer = client.post("/api/recorded", content=content)
            assert (answer.status_code, answer.json()["code"]) == (422, code)
            assert "bundle.atlas is refused" in answer.json()["detail"]
        other = client.post("/api/recorded", content=bundle.read_bytes(), headers={"Origin": "https://elsewhere.test"})
        assert (other.status_code, other.json()["code"]) == (403, "other-origin")
    with opened(tmp_path / "small", bundle, max_bundle_bytes=bundle.stat().st_size) as client:
        answer = client.post("/api/recorded", content=bundle.read_bytes() + b"x")
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
        assert "--max-bundle-bytes" in answer.json()["hint"]
    with opened(tmp_path / "public", bundle, public=True) as client:
        answer = client.post("/api/recorded", content=bundle.read_bytes())
        assert (answer.status_code, answer.json()["code"]) == (403, "read-only")
    assert not list(tmp_path.glob("*/recorded/*"))


def test_a_live_server_shows_a_run_of_its_own_rather_than_the_recorded_one(
    live_client: TestClient, bundle: Path, run: str, own_data_dir: Path
) -> None:
    sent = live_client.post("/api/recorded", content=bundle.read_bytes())
    assert sent.status_code == 201, sent.text
    assert live_client.get(f"/api/runs/{run}/tensors/blocks/attention/queries?layer=3").status_code == 200
    (own_data_dir / "recorded" / f"{run}.atlas").unlink()
