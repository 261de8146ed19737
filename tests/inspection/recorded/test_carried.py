"""A run of a model that no catalogue has: opened where neither its weights nor its entry are, or refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from atlas.catalog import Catalog, Model, open_store
from atlas.errors import BadRequest, BundleError, CheckpointError
from atlas.inspection.recorded.bundle import written
from atlas.inspection.recorded.carried import carried
from atlas.inspection.recorded.carried import opened as open_carried
from atlas.inspection.recorded.layout import CarriedModel
from atlas.inspection.recorded.reading import Recorded
from atlas.inspection.recorded.record import Choice, record
from atlas.runtime.captures import Captured
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.derivation.bounds import bounded
from atlas.runtime.derivation.derive import derived_id
from atlas.runtime.engine import Engine
from atlas.runtime.runs import RunRequest
from atlas.settings import CheckpointChoice, Settings
from atlas.web.app import create_app
from atlas.web.backend import Backend
from tests.derived import COMMON, save

from .test_bundle import changed, members_of, pack, with_true_hashes

LIMIT = 1 << 30
GATED, LOGITS = "blocks/mixer/norm/hidden-states-2", "unembedding/logits"
IDS = (5, 100, 42, 7, 7, 200, 19)


@dataclass(frozen=True)
class Made:
    """Bundles of two models, `mamba` that nothing describes and `tiny` that is a Llama, and what the engine said."""

    bundles: dict[str, Path]
    models: dict[str, Model]
    checkpoints: dict[str, Checkpoint]
    captured: Captured


@pytest.fixture(scope="module")
def made(own_data_dir: Path, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("carried")
    choices = {
        "mamba": save("Mamba2ForCausalLM", root / "mamba"),
        "tiny": save("LlamaForCausalLM", root / "llama", **COMMON, num_hidden_layers=2),
    }
    settings = Settings(
        data_dir=own_data_dir, checkpoint=tuple(CheckpointChoice(model=name, path=at) for name, at in choices.items())
    )
    engine = Engine(settings, Catalog(open_store(data_dir)), demonstrate=False, journal=Path(":memory:"))
    engine.start()
    deadline = time.monotonic() + 120
    while not engine.status.ready:
        assert engine.status.error is None, engine.status.error
        assert time.monotonic() < deadline, engine.status.stage
        time.sleep(0.02)
    bundles = {}
    for name in choices:
        run = engine.submit(RunRequest(model=name, token_ids=IDS, max_new_tokens=3, temperature=0.0, seed=0)).id
        while engine.view(run).status != "done":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        bundles[name] = root / f"{name}.atlas"
        with written(bundles[name]) as sink:
            asyncio.run(record(engine, run, Choice(), sink))
        if name == "mamba":
            captured = engine.request(run, [GATED], "decode", 1, 2).result()[GATED]
    models = {name: engine.catalog[name] for name in choices}
    checkpoints = {name: engine.runner(name).checkpoint for name in choices}
    engine.close()
    return Made(bundles, models, checkpoints, captured)


@pytest.fixture(scope="module")
def elsewhere(data_dir: Path) -> Catalog:
    """The catalogue of somebody who has none of these models. It stays so: who adds one takes another."""
    return Catalog(open_store(data_dir))


@pytest.mark.parametrize("name", ["mamba", "tiny"])
def test_it_is_the_same_model_elsewhere(name: str, made: Made, elsewhere: Catalog) -> None:
    opened = Recorded(made.bundles[name], elsewhere, LIMIT)
    ours, theirs = made.models[name], opened.model
    assert theirs.id == name
    assert (theirs.architecture.id, theirs.architecture.sizes) == (ours.architecture.id, ours.architecture.sizes)
    assert theirs.config == ours.config
    assert list(theirs.graph.nodes) == list(ours.graph.nodes)
    assert theirs.graph.edges == ours.graph.edges
    assert [node.shape for node in theirs.graph.nodes.values()] == [node.shape for node in ours.graph.nodes.values()]
    if name == "mamba":
        assert theirs.architecture == ours.architecture
    assert name not in elsewhere, "it joins when its run is shown"
    held = {(one.node, one.view): one for one in opened.facts.held}
    assert held[LOGITS, "prefill"].words == "all of it"
    opened.close()


def test_its_numbers_are_the_engines(made: Made, elsewhere: Catalog) -> None:
    opened = Recorded(made.bundles["mamba"], elsewhere, LIMIT)
    found = opened.captured(GATED, "decode", 1, 2)
    assert found.tensor.equal(made.captured.tensor)
    assert found.axes == made.captured.axes
    opened.close()


def application(data_dir: Path, catalog: Catalog, *bundles: Path) -> TestClient:
    """On a data directory, started with bundles."""
    settings = Settings(data_dir=data_dir)
    return TestClient(create_app(settings, catalog=catalog, backend=Backend(settings, catalog, bundles=bundles)))


def get_ready(client: TestClient) -> None:
    deadline = time.monotonic() + 60
    while (answer := client.get("/readyz")).status_code != 200:
        assert "failed" not in answer.text, answer.text
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.02)


def test_its_pages_are_shown_on_an_empty_data_directory(made: Made, data_dir: Path, tmp_path: Path) -> None:
    catalog = Catalog(open_store(data_dir))
    with application(tmp_path, catalog, *made.bundles.values()) as client:
        get_ready(client)
        listed = {model["id"]: model["derived"] for model in client.get("/api/models").json()}
        assert (listed["mamba"], listed["tiny"]) == (True, False)
        for name in made.bundles:
            assert client.get(f"/models/{name}").status_code == 200
            assert client.get(f"/models/{name}/{LOGITS}?view=decode").status_code == 200
        node = client.get(f"/api/models/mamba/nodes/{GATED}").json()
        assert node["evidence"][0]["available"]
        assert "silu" in node["evidence"][0]["excerpt"][0]["code"]
        assert "came along with a recorded run" in client.get(f"/models/mamba/{GATED}").text
        run = json.loads(members_of(made.bundles["mamba"])["run.json"])["id"]
        assert client.get(f"/api/runs/{run}").json()["model"] == "mamba"
        found = client.get(f"/api/runs/{run}/tensors/{GATED}?view=decode&step=2&layer=1").json()
        assert found["checks"]["shape"]["ok"] is True
        assert client.get(f"/api/runs/{run}/tensors/{GATED}/data?view=decode&step=2&layer=1").status_code == 200
    assert not (tmp_path / "weights").exists()


def test_a_run_that_is_removed_takes_its_model_along(made: Made, bundle: Path, data_dir: Path, tmp_path: Path) -> None:
    with application(tmp_path, Catalog(open_store(data_dir)), bundle) as client:
        get_ready(client)
        sent = client.post("/api/recorded", content=made.bundles["tiny"].read_bytes())
        assert sent.status_code == 201, sent.text
        assert client.get("/models/tiny").status_code == 200
        assert client.delete(f"/api/runs/{sent.json()['id']}").status_code == 204
        assert client.get("/models/tiny").status_code == 404
        assert client.get("/models/smollm2-135m").status_code == 200


def test_another_model_of_that_id_keeps_it(made: Made, elsewhere: Catalog, data_dir: Path) -> None:
    catalog = Catalog(open_store(data_dir))
    own = catalog.small("qwen3").entry.model_copy(update={"id": "tiny"})
    catalog.add(own)
    opened = Recorded(made.bundles["tiny"], catalog, LIMIT)
    sha256 = made.models["tiny"].configuration.sha256
    assert opened.model.id == opened.request.model == opened.view.model == f"tiny-{sha256[:8]}"
    opened.close()
    assert catalog.entry("tiny") is own
    reserved = Recorded(made.bundles["mamba"], elsewhere, LIMIT, reserved={"mamba"})
    assert reserved.model.id.startswith("mamba-")
    reserved.close()


def test_the_same_model_is_not_there_twice(made: Made, data_dir: Path) -> None:
    catalog = Catalog(open_store(data_dir))
    first = Recorded(made.bundles["tiny"], catalog, LIMIT)
    catalog.add(first.model.entry)
    second = Recorded(made.bundles["tiny"], catalog, LIMIT)
    assert second.model is catalog["tiny"]
    first.close()
    second.close()


def derivation(change: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda model: change(model["derivation"])


def argument(name: str, value: object) -> Callable[[Any], object]:
    return derivation(lambda how: how["arguments"].update({name: value}))


LIES: dict[str, tuple[str, Callable[[Any], object], str]] = {
    "another version": (
        "mamba",
        derivation(lambda how: how.update(version="4.99.1")),
        r"read off the code of transformers 4\.99\.1; installed here is \d",
    ),
    "a class that loads": ("mamba", derivation(lambda how: how.update(model_class="AutoModelForCausalLM")), "no model"),
    "no class": ("mamba", derivation(lambda how: how.update(model_class="os.system")), "not what it should be"),
    "another class": ("mamba", derivation(lambda how: how.update(model_class="Olmo2ForCausalLM")), "has no "),
    "an unknown argument": ("mamba", argument("no_such_argument", 1), "has no no_such_argument"),
    "code of the hub": ("mamba", argument("auto_map", "x"), "which may have code loaded"),
    "a kernel of the hub": ("mamba", argument("attn_implementation", "x"), "which may have code loaded"),
    "an address": ("mamba", argument("hidden_act", "owner/name"), "not what it should be"),
    "a hidden argument": ("mamba", argument("_attn_implementation", "x"), "not what it should be"),
    "a configuration inside": ("mamba", argument("text_config", {"a": 1}), "a configuration of its own"),
    "a huge size": ("mamba", argument("hidden_size", 1 << 40), "no size that a model has"),
    "a huge vocabulary": ("tiny", lambda model: model["values"].update(vocab_size=1 << 40), "no size that a model"),
    "many layers": ("mamba", argument("num_hidden_layers", 100_000), "layers are shown"),
    "another size": ("mamba", argument("hidden_size", 48), "its graph is not that which its run names"),
    "a missing size": ("tiny", lambda model: model["values"].pop("dim"), "no model has such a configuration"),
    "no derivation": ("mamba", lambda model: model.update(derivation=None), "is not described here"),
    "another id": ("tiny", lambda model: model.update(id="other"), "of another model than its run"),
    "an id that is a path": ("tiny", lambda model: model.update(id="../x"), "not what it should be"),
    "an unknown field": ("tiny", lambda model: model.update(code="import os"), "not what it should be"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_model_that_is_not_what_it_says_is_refused(name: str, made: Made, elsewhere: Catalog, tmp_path: Path) -> None:
    which, lie, reason = LIES[name]
    members = with_true_hashes(changed(members_of(made.bundles[which]), "model.json", lie))
    path = pack(tmp_path / "lie.atlas", members)
    with pytest.raises(BundleError, match=reason):
        Recorded(path, elsewhere, LIMIT)
    assert which not in elsewhere


def test_a_configuration_that_the_code_cannot_run_is_refused(made: Made, elsewhere: Catalog) -> None:
    """And whose hash is what it should be."""
    opened = Recorded(made.bundles["mamba"], elsewhere, LIMIT)
    facts, model = opened.facts, CarriedModel.model_validate_json(opened.bundle.text("model.json"))
    opened.close()
    assert model.derivation is not None
    for given in ({"num_heads": 3}, {"hidden_act": "no-such-function"}, {"n_groups": 0}, {"conv_kernel": "four"}):
        how = model.derivation.model_copy(update={"arguments": {**model.derivation.arguments, **given}})
        identity = derived_id(how.model_class, how.arguments, facts.reference)
        with pytest.raises(BundleError, match=r"cannot be shown: .*(such a configuration|watched without numbers)"):
            open_carried(
                model.model_copy(update={"derivation": how}),
                facts.model_copy(update={"architecture": identity}),
                elsewhere,
            )
        assert identity not in elsewhere.architectures


def test_a_run_of_the_catalogues_own_model_carries_none(bundle: Path) -> None:
    members = members_of(bundle)
    assert "model.json" not in members
    assert json.loads(members["manifest.json"])["format"] == 1


def test_what_cannot_go_along_is_said_before_anything_is_recorded(made: Made) -> None:
    model, checkpoint = made.models["mamba"], made.checkpoints["mamba"]
    assert carried(model, checkpoint) is not None
    derived = checkpoint.derived
    assert derived is not None
    for given, reason in (
        ({"text_config": {"a": 1}}, "text_config, which is a configuration of its own"),
        ({"hidden_act": "owner/name"}, "is no plain data"),
        ({"hidden_act": object()}, "is no plain data"),
    ):
        reference = derived.architecture.reference
        odd = reference.model_copy(update={"arguments": {**reference.arguments, **given}})
        architecture = derived.architecture.model_copy(update={"reference": odd})
        other = replace(checkpoint, derived=replace(derived, architecture=architecture))
        with pytest.raises(BadRequest, match=reason) as error:
            carried(model, other)
        assert "cannot be recorded for others" in error.value.detail


def test_what_somebodys_configuration_builds_is_bounded() -> None:
    import torch

    with pytest.raises(CheckpointError, match="more than 10 modules"), bounded(most=10):
        torch.nn.ModuleList(torch.nn.Identity() for _ in range(1 << 30))
    with pytest.raises(CheckpointError, match="more than 0 seconds"), bounded(seconds=0.0):
        torch.zeros(1).add(1)
    assert len(torch.nn.ModuleList(torch.nn.Identity() for _ in range(20))) == 20
