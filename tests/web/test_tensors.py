"""The API of tensors on the real model: every answer against the numbers themselves."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy
from fastapi.testclient import TestClient

from atlas.catalog import Catalog
from atlas.runtime.engine import Engine

Array = npt.NDArray[Any]
WEIGHTS = "blocks/attention/attention-weights"
UPDATE = "blocks/attention/attention-update"
LOGITS = "unembedding/logits"


class Api:
    """Calls about the tensors of one run."""

    def __init__(self, client: TestClient, run: str) -> None:
        self.client = client
        self.run = run

    def ask(self, path: str, **query: Any) -> Any:
        return self.client.get(f"/api/runs/{self.run}/tensors/{path}", params=query)

    def json(self, path: str, **query: Any) -> Any:
        answer = self.ask(path, **query)
        assert answer.status_code == 200, answer.text
        return json.loads(answer.text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    def array(self, node: str, **query: Any) -> Array:
        answer = self.ask(f"{node}/data", **query)
        assert answer.status_code == 200, answer.text
        assert int(answer.headers["content-length"]) == len(answer.content)
        loaded: Array = np.load(io.BytesIO(answer.content), allow_pickle=False)
        return loaded

    def binary(self, path: str, **query: Any) -> tuple[Array, Array]:
        answer = self.ask(path, **query)
        assert answer.status_code == 200, answer.text
        shape = tuple(int(size) for size in answer.headers["atlas-shape"].split(","))
        kind = {"float32": "<f4", "float64": "<f8"}[answer.headers["atlas-dtype"]]
        flags = np.frombuffer(answer.content[-math.prod(shape) :], np.uint8).reshape(shape)
        return np.frombuffer(answer.content[: -flags.size], kind).reshape(shape), flags

    def problem(self, path: str, **query: Any) -> dict[str, Any]:
        answer = self.ask(path, **query)
        assert answer.headers["content-type"].startswith("application/problem+json"), answer.text
        said: dict[str, Any] = answer.json()
        assert said["status"] == answer.status_code
        assert said["detail"]
        return said


@pytest.fixture(scope="session")
def api(live_client: TestClient, engine: Engine) -> Api:
    """The demonstration run: five prompt tokens, eight generated."""
    assert engine.demonstration is not None
    return Api(live_client, engine.demonstration)


@pytest.mark.parametrize(
    ("node", "view", "step"),
    [(UPDATE, "prefill", None), (WEIGHTS, "full", None), (WEIGHTS, "decode", 3), ("token-ids", "full", None)],
)
def test_a_summary_is_that_of_its_numbers(api: Api, node: str, view: str, step: int | None) -> None:
    pass_ = {"view": view, "layer": 4} | ({"step": step} if step else {})
    said, array = api.json(node, **pass_), api.array(node, **pass_)
    assert said["shape"] == list(array.shape)
    assert [axis["size"] for axis in said["axes"]] == list(array.shape)
    stats = said["stats"]
    assert stats["count"] == array.size
    assert stats["mean"] == pytest.approx(array.astype(np.float64).mean(), rel=1e-12)
    assert stats["std"] == pytest.approx(array.astype(np.float64).std(), rel=1e-9)
    assert (stats["min"], stats["max"]) == (array.min(), array.max())
    assert sum(stats["histogram"]["counts"]) == array.size
    assert said["checks"]["shape"]["ok"] is True
    assert said["checks"]["source"]["ok"] is True
    assert (said["view"], said["step"]) == (view, step)


def test_positions_are_those_of_the_run(api: Api) -> None:
    assert [axis["first"] for axis in api.json(WEIGHTS, view="decode", step=3)["axes"]] == [None, None, 7, 0]
    assert [axis["first"] for axis in api.json(UPDATE, view="full")["axes"]] == [None, 0, None]
    assert [axis["first"] for axis in api.json("embedding/weight")["axes"]] == [None, None]


def test_a_masked_tensor_is_summed_up_over_its_finite_cells(api: Api) -> None:
    said = api.json("blocks/attention/masked-similarities", view="prefill", layer=3)
    assert (said["stats"]["inf"], said["stats"]["minus_inf"], said["stats"]["nan"]) == (90, 90, 0)
    assert math.isfinite(said["stats"]["mean"])


def test_complex_numbers_keep_their_shape(api: Api) -> None:
    said, array = api.json("rotary/rotations", view="prefill"), api.array("rotary/rotations", view="prefill")
    assert array.dtype == np.complex64
    assert said["shape"] == list(array.shape) == [5, 32]
    assert said["stats"]["count"] == 160
    assert said["stats"]["max"] == max(array.real.max(), array.imag.max())
    angles, _ = api.binary("rotary/rotations/tile", view="prefill", slice=":,:", part="angle")
    assert np.array_equal(angles, np.angle(array))


@pytest.mark.parametrize("text", ["0,3,:,:", "0,-1,2", "0,1:3,:,4", ""])
def test_data_is_cut_as_numpy_cuts(api: Api, text: str) -> None:
    whole = api.array(WEIGHTS, view="prefill", layer=3)
    assert np.array_equal(
        api.array(WEIGHTS, view="prefill", layer=3, slice=text), eval(f"a[{text or '...'}]", {"a": whole})
    )


def test_the_other_formats_hold_the_same_numbers(api: Api) -> None:
    query = {"view": "decode", "layer": 2, "step": 4, "slice": "0,:,:3"}
    array = api.array(UPDATE, **query)
    packed = api.ask(f"{UPDATE}/data", **query, format="safetensors")
    assert np.array_equal(safetensors.numpy.load(packed.content)[UPDATE], array)
    assert "decode" in packed.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(api.ask(f"{UPDATE}/data", **query, format="csv").text)))
    assert [row["positions"] for row in rows] == ["8"] * 3
    assert [np.float32(row["value"]) for row in rows] == array.reshape(-1).tolist()


def test_a_parameter_has_values_and_no_pass(api: Api) -> None:
    said = api.json("blocks/attention/output-weight", layer=3)
    assert (said["shape"], said["view"], said["step"], said["layer"]) == ([576, 576], None, None, 3)
    assert api.array("blocks/attention/output-weight", layer=3).shape == (576, 576)
    assert said["checks"]["shape"]["ok"] is True


def test_tiles_are_reductions_of_the_plane(api: Api) -> None:
    plane = api.array(LOGITS, view="prefill")[0]
    bottom, flags = api.binary(f"{LOGITS}/tile", view="prefill", slice="0,:,:", tile_column=3)
    assert np.array_equal(bottom, plane[:, 768:1024])
    assert (flags == 16).all()
    peaks, _ = api.binary(f"{LOGITS}/tile", view="prefill", slice="0,:,:", column_level=8, reduce="max")
    assert np.array_equal(peaks, plane.reshape(5, 192, 256).max(axis=2))
    turned, _ = api.binary(f"{LOGITS}/tile", view="prefill", slice="0,:,:", row_level=8, reduce="max", transpose=True)
    assert np.array_equal(turned, peaks.T)


def test_thumbnails_show_every_head(api: Api) -> None:
    weights = api.array(WEIGHTS, view="full", layer=3)[0]
    small, flags = api.binary(f"{WEIGHTS}/thumbnails", view="full", layer=3, slice="0,:,:,:", over="q_heads", side=7)
    assert small.shape == flags.shape == (9, 7, 7)
    assert small[4, 6, 6] == weights[4, 12:, 12:].max()


def test_a_profile_is_a_measure_along_an_axis(api: Api) -> None:
    array = api.array("blocks/block-output", view="full", layer=20).astype(np.float64)
    found = api.json("blocks/block-output/profile", view="full", layer=20, along="positions", measure="rms")
    assert found == pytest.approx(np.sqrt((array[0] ** 2).mean(axis=1)).tolist())
    masked = api.json("blocks/attention/masked-similarities/profile", view="prefill", along="keys", measure="max")
    similar = api.array("blocks/attention/masked-similarities", view="prefill")
    assert masked == pytest.approx(similar.max(axis=(0, 1, 2)).tolist())


def test_a_cell_in_full_with_its_rank(api: Api) -> None:
    array = api.array(WEIGHTS, view="prefill", layer=3)
    cell = api.json(f"{WEIGHTS}/cell", view="prefill", layer=3, slice="0,2,4,1")
    value = array[0, 2, 4, 1]
    assert cell["value"] == value
    assert np.float32(cell["text"]) == value
    assert cell["rank"] == (array[0, 2, 4] > value).sum() + 1
    assert (cell["of"], cell["along"]) == (5, "keys")
    by_head = api.json(f"{WEIGHTS}/cell", view="prefill", layer=3, slice="0,2,4,1", along="q_heads")
    assert by_head["rank"] == (array[0, :, 4, 1] > value).sum() + 1
    picked = api.json(f"{WEIGHTS}/cell", view="prefill", layer=3, slice="0,2,1:5,:", pick="max")
    assert picked["value"] == array[0, 2, 1:5].max()
    assert array[tuple(picked["index"])] == picked["value"]
    masked = api.json("blocks/attention/masked-similarities/cell", view="prefill", slice="0,0,0,4")
    assert (masked["value"], masked["text"], masked["rank"]) == (None, "-inf", None)


def test_the_strongest_keys_with_their_tokens(api: Api) -> None:
    row = api.array(WEIGHTS, view="full", layer=3)[0, 2, 7]
    top = api.json(f"{WEIGHTS}/top", view="full", layer=3, slice="0,2,7,:", count=3)
    assert [entry["index"] for entry in top["entries"]] == np.argsort(-row, kind="stable")[:3].tolist()
    assert top["entries"][0]["token"] == "The"
    assert top["entries"][0]["value"] == row.max()


def test_heads_are_measured(api: Api) -> None:
    weights = api.array(WEIGHTS, view="full", layer=3)[0].astype(np.float64)
    heads = api.json(f"{WEIGHTS}/heads", view="full", layer=3)
    assert [head["head"] for head in heads] == list(range(9))
    assert heads[2]["first"] == pytest.approx(weights[2, 1:, 0].mean())
    assert heads[2]["previous"] == pytest.approx(np.diagonal(weights[2], -1).mean())
    assert api.problem(f"{UPDATE}/heads", view="full")["status"] == 422


def test_logits_as_tokens(api: Api) -> None:
    row = api.array(LOGITS, view="prefill")[0, 4].astype(np.float64)
    shares = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
    (said,) = api.json(f"{LOGITS}/predictions", view="prefill", start=4, count=5)["positions"]
    assert [one["id"] for one in said["top"]] == np.argsort(-row)[:5].tolist()
    assert said["top"][0]["label"] == said["next"]["label"] == " Paris"
    assert [one["probability"] for one in said["top"]] == pytest.approx(np.sort(shares)[::-1][:5].tolist())
    assert said["next"]["rank"] == 1


def test_the_lens_at_the_end_is_the_model_itself(api: Api) -> None:
    lens = api.json("blocks/block-output/predictions", view="prefill", layer=29, start=0, stop=5, count=4)["positions"]
    said = api.json(f"{LOGITS}/predictions", view="prefill", start=0, stop=5, count=4)["positions"]
    for one, other in zip(lens, said, strict=True):
        assert [top["id"] for top in one["top"]] == [top["id"] for top in other["top"]]
        assert one["next"]["probability"] == pytest.approx(other["next"]["probability"], rel=1e-3)
    early = api.json("embedding/embedded/predictions", view="prefill", start=4)["positions"][0]
    assert early["next"]["rank"] > 1


def test_decode_agrees_with_the_full_sequence(api: Api) -> None:
    for node in (WEIGHTS, UPDATE, "blocks/attention/key-cache", "blocks/block-output"):
        found = api.json(f"{node}/agreement", layer=7)
        assert found["positions"] == list(range(12))
        assert 0 < found["worst"] < 1e-5
    one = api.json(f"{UPDATE}/difference", view="decode", layer=7, step=3, against_view="full")
    a = api.array(UPDATE, view="decode", layer=7, step=3)[0, 0].astype(np.float64)
    b = api.array(UPDATE, view="full", layer=7)[0, 7].astype(np.float64)
    assert one["positions"] == [7]
    assert one["by_position"] == pytest.approx([np.linalg.norm(a - b) / np.linalg.norm(a)])
    assert one["max_abs"] == pytest.approx(np.abs(a - b).max())
    gap, _ = api.binary(f"{UPDATE}/tile", view="decode", layer=7, step=3, against_view="full", slice="0,:,:")
    assert np.array_equal(gap[0], (a - b).astype(np.float32)[:256])


def test_a_tensor_is_equal_to_itself_and_layers_differ(api: Api) -> None:
    same = api.json(f"{WEIGHTS}/difference", view="prefill", layer=3, against_run=api.run)
    assert (same["equal"], same["worst"], same["max_abs"]) == (True, 0.0, 0.0)
    other = api.json(f"{WEIGHTS}/difference", view="prefill", layer=3, against_layer=4)
    assert not other["equal"]
    assert other["worst"] > 0.01


def test_where_two_runs_part(api: Api, live_client: TestClient) -> None:
    ask = {"model": "smollm2-135m", "prompt": "The capital of Spain is", "max_new_tokens": 4}
    other = live_client.post("/api/runs", json=ask).json()["id"]
    live_client.get(f"/api/runs/{other}/events")  # ends when the run does
    said = live_client.get(f"/api/runs/{api.run}/parting/{other}").json()
    assert (said["position"], said["node"], said["common"]) == (3, "token-ids", 3)
    assert "' France' here, ' Spain' there" in said["sentence"]
    same = live_client.get(f"/api/runs/{api.run}/parting/{api.run}").json()
    assert (same["position"], same["node"]) == (None, None)


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        (UPDATE, {"view": "sideways"}, 422, "view"),
        (UPDATE, {"view": "prefill", "layer": 30}, 404, "layer 30"),
        (UPDATE, {"view": "prefill", "layer": -1}, 404, "layer -1"),
        (UPDATE, {"view": "decode", "step": 99}, 404, "decode step 99"),
        (UPDATE, {"view": "decode", "step": 0}, 404, "decode step 0"),
        (UPDATE, {"view": "full", "lyer": 3}, 422, "lyer"),
        ("blocks/attention/nothing", {}, 404, "no node"),
        ("blocks/attention", {}, 422, "component"),
        ("blocks/attention/masked-similarities", {"view": "decode"}, 404, "does not compute"),
        (f"{UPDATE}/data", {"view": "full", "format": "exe"}, 422, "format"),
        (f"{UPDATE}/data", {"view": "full", "slice": "0,::,x"}, 422, "not a number"),
        (f"{UPDATE}/data", {"view": "full", "slice": "0,99"}, 422, "'positions', which has size 13"),
        (f"{UPDATE}/tile", {"view": "full", "slice": "0,1,2"}, 422, "keeps 0 axes"),
        (f"{UPDATE}/tile", {"view": "full", "slice": "0,:,:", "row_level": 9}, 422, "row level 9"),
        (f"{UPDATE}/tile", {"view": "full", "slice": "0,:,:", "tile_column": 3}, 422, "tile 3"),
        (f"{UPDATE}/tile", {"view": "full", "slice": "0,:,:", "reduce": "median"}, 422, "reduce"),
        (f"{UPDATE}/tile", {"view": "full", "slice": "0,:,:", "part": "angle"}, 422, "real"),
        (f"{UPDATE}/thumbnails", {"view": "full", "slice": "0,:,:", "over": "q_heads"}, 422, "no axis 'q_heads'"),
        (f"{UPDATE}/cell", {"view": "full", "slice": "0,1"}, 422, "576 elements"),
        (f"{UPDATE}/top", {"view": "full", "slice": "0,:,:"}, 422, "keeps 2 axes"),
        (f"{UPDATE}/predictions", {"view": "full"}, 422, "neither logits"),
        (f"{LOGITS}/predictions", {"view": "prefill", "start": 5}, 422, "positions 0 to 4"),
        (f"{UPDATE}/difference", {"view": "full"}, 422, "nothing to compare"),
        (f"{UPDATE}/difference", {"view": "prefill", "against_view": "decode"}, 422, "no position in common"),
    ],
)
def test_bad_requests_say_what_is_wrong(api: Api, path: str, query: dict[str, object], status: int, said: str) -> None:
    problem = api.problem(path, **query)
    assert problem["status"] == status
    assert said in problem["detail"] + problem["hint"]


def test_what_does_not_fit_is_refused(api: Api, live_client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_client.app.state.settings, "max_response_bytes", 1024)  # type: ignore[attr-defined]
    problem = api.problem(f"{UPDATE}/data", view="full")
    assert (problem["status"], problem["limit"]) == (413, 1024)
    assert api.ask(f"{UPDATE}/data", view="full", slice="0,0,:100").status_code == 200


def test_a_one_token_prompt_has_no_mask(live_client: TestClient) -> None:
    ask = {"model": "smollm2-135m", "token_ids": [504], "max_new_tokens": 1}
    run = live_client.post("/api/runs", json=ask).json()["id"]
    live_client.get(f"/api/runs/{run}/events")
    one = Api(live_client, run)
    problem = one.problem("blocks/attention/masked-similarities", view="prefill")
    assert (problem["status"], problem["code"]) == (404, "not-computed")
    assert one.problem(UPDATE, view="decode")["status"] == 404
    assert one.json(WEIGHTS, view="prefill")["stats"]["mean"] == 1.0


def test_a_forgotten_run_is_gone_for_tensors_too(live_client: TestClient) -> None:
    ask = {"model": "smollm2-135m", "token_ids": [504, 505], "max_new_tokens": 1}
    run = live_client.post("/api/runs", json=ask).json()["id"]
    live_client.get(f"/api/runs/{run}/events")
    gone = Api(live_client, run)
    assert gone.json(UPDATE, view="prefill")["shape"] == [1, 2, 576]
    assert live_client.delete(f"/api/runs/{run}").status_code == 204
    assert gone.problem(UPDATE, view="prefill")["status"] == 404
    assert gone.problem(f"{UPDATE}/data", view="prefill")["status"] == 404


def test_every_tensor_of_the_graph_can_be_looked_at(api: Api, catalog: Catalog) -> None:
    for node in catalog["smollm2-135m"].graph.nodes.values():
        if node.kind in ("component", "operation"):
            continue
        said = api.json(node.path, view="prefill", layer=1, checks="shape")
        shown = said["presentation"]
        names = [axis["name"] for axis in said["axes"]]
        assert shown["columns"] in names
        assert shown["rows"] is None or shown["rows"] in names
        kept = ",".join(":" if name in (shown["rows"], shown["columns"]) else "0" for name in names)
        assert api.ask(f"{node.path}/tile", view="prefill", layer=1, slice=kept).status_code == 200


def test_it_is_described(live_client: TestClient) -> None:
    paths = live_client.get("/openapi.json").json()["paths"]
    for name in ("", "/data", "/tile", "/cell", "/predictions", "/difference"):
        answers = paths[f"/api/runs/{{run_id}}/tensors/{{node}}{name}"]["get"]["responses"]
        assert {"200", "404", "409", "422", "503"} <= set(answers)
