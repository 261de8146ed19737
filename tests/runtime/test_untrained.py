"""Random weights: the same for the same seed, a token for every byte; and live values of models that have none here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient

from atlas.catalog import Catalog, Model
from atlas.errors import CheckpointError, NotComputed
from atlas.provenance.store import SourceStore
from atlas.runtime.engine import Engine
from atlas.runtime.untrained import untrained
from atlas.settings import Settings
from atlas.web.app import create_app
from atlas.web.backend import Backend


def test_random_weights_follow_from_the_seed(catalog: Catalog) -> None:
    model = catalog.small("gpt2")
    one, same, other = untrained(model), untrained(model), untrained(model, seed=1)
    assert one.sha256 == same.sha256 != other.sha256
    assert all(torch.equal(one.tensors[name], same.tensors[name]) for name in one.tensors)
    assert not torch.equal(one.tensors["transformer.h.0.ln_1.weight"], other.tensors["transformer.h.0.ln_1.weight"])
    assert one.warnings[0].endswith("the model has learned nothing.")
    assert one.tensors["lm_head.weight"] is one.tensors["transformer.wte.weight"]
    assert one.parameter_count == sum(t.numel() for name, t in one.tensors.items() if name != "lm_head.weight")


def test_every_text_can_be_written(catalog: Catalog) -> None:
    tokenizer = untrained(catalog.small("qwen3")).tokenizer
    text = "Zürich, né 1900 \N{GRINNING FACE}\n\0"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocab_size == 272


def test_a_vocabulary_without_room_for_every_byte_is_refused(catalog: Catalog) -> None:
    model = catalog.small("gpt2")
    entry = model.entry.model_copy(
        update={
            "configuration": model.entry.configuration.model_copy(update={"values": {**model.config, "vocab_size": 99}})
        }
    )
    narrow = Model(entry, catalog.architectures["gpt2"], catalog.store)
    with pytest.raises(CheckpointError, match="no room for 256 bytes"):
        untrained(narrow)


# --- live


class Shared(Backend):
    """A backend whose engine is started and stopped by the test."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.settings, engine.catalog)
        self._engine = engine

    def start(self) -> None:
        """It runs already."""

    def close(self) -> None:
        """The test closes it."""


@pytest.fixture(scope="module")
def engine(store: SourceStore, own_data_dir: Path) -> Iterator[Engine]:
    """An engine that was asked for untrained models."""
    engine = Engine(Settings(data_dir=own_data_dir, untrained=True), Catalog(store), journal=own_data_dir / "u.sqlite3")
    engine.start()
    deadline = time.monotonic() + 300
    while len(engine.demonstrations) < 2 or any(engine.run(r).status != "done" for r in engine.demonstrations.values()):
        assert engine.status.error is None, engine.status.error
        assert time.monotonic() < deadline, engine.status.stage
        time.sleep(0.05)
    yield engine
    engine.close()


def test_each_architecture_without_weights_runs(engine: Engine) -> None:
    small = {entry.architecture for entry in engine.catalog if entry.untrained}
    assert small == {name for name, module in engine.catalog.architectures.items() if hasattr(module, "SMALL")}
    assert all(engine.has_checkpoint(entry.id) for entry in engine.catalog if entry.untrained)
    assert set(engine.demonstrations) == {engine.catalog.default.id} | {e.id for e in engine.catalog if e.untrained}


def test_it_stands_in_for_its_own_architecture_only(engine: Engine) -> None:
    assert engine.stand_in("mixtral-8x7b") == "untrained-mixtral"
    assert engine.stand_in("llama-3-8b") == engine.catalog.default.id
    assert engine.stand_in("untrained-gpt2") == "untrained-gpt2"


def test_layers_that_differ_are_told_apart(engine: Engine) -> None:
    run, node = engine.demonstrations["untrained-deepseek-v3"], "blocks/feed-forward/router/chosen-experts"
    captured = engine.request(run, [node], "prefill", None, None).result(60)[node]
    assert (captured.layer, captured.tensor.shape[1]) == (1, 3)  # layer 0 is dense
    with pytest.raises(NotComputed, match="routed layers: 1-3"):
        engine.request(run, [node], "prefill", 0, None)
    several = engine.request(run, [node, "blocks/feed-forward/gate"], "prefill", 0, None).result(60)
    assert list(several) == ["blocks/feed-forward/gate"]


def test_pages_say_that_it_is_untrained(engine: Engine) -> None:
    client = TestClient(
        create_app(engine.settings, catalog=engine.catalog, backend=Shared(engine)), base_url="http://127.0.0.1"
    )
    page = client.get("/models/mixtral-8x7b/blocks/feed-forward/router/router-logits").text
    assert "An untrained model stands in" in page
    assert "random weights" in page
    assert "small and untrained" in page
    assert client.get("/api/models/mixtral-8x7b").json()["live"] == {
        "available": False,
        "stand_in": "untrained-mixtral",
    }
    dates = client.get("/").text.partition("By date")[2]
    assert "Mixtral 8x7B" in dates
    assert "untrained" not in dates
