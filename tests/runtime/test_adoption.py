"""A reader's own checkpoint: a small random Llama joins the catalogue and runs; one that does not fit is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from atlas.catalog import Catalog
from atlas.errors import CheckpointError, NoCheckpoint
from atlas.provenance.store import SourceStore
from atlas.runtime.adoption import adopt
from atlas.runtime.checkpoints import open_checkpoint
from atlas.runtime.engine import Engine
from atlas.runtime.references.llama import Runner
from atlas.runtime.runs import RunRequest
from atlas.settings import CheckpointChoice, Settings
from tests.runtime.conftest import TinyGguf


def test_a_new_id_joins_the_catalogue_and_runs(store: SourceStore, tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    catalog = Catalog(store)
    checkpoint = open_checkpoint(tiny_gguf(), tmp_path)
    model = adopt(catalog, "mine", checkpoint)
    assert catalog["mine"] is model
    assert model.architecture.sizes["d_model"] == 64
    assert model.configuration.sha256 == checkpoint.sha256
    assert Runner(model, checkpoint).n_layers == 2


def test_a_checkpoint_that_is_not_the_model_is_refused_with_what_differs(
    catalog: Catalog, tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    checkpoint = open_checkpoint(tiny_gguf(), tmp_path)
    with pytest.raises(CheckpointError, match=r"d_model is 64 and should be 4096") as caught:
        adopt(catalog, "llama-3-8b", checkpoint)
    assert "rope_theta is 10000.0 and should be 500000.0" in caught.value.detail
    assert "NEW=PATH" in caught.value.hint


def test_one_bad_checkpoint_does_not_keep_the_others_from_serving(
    store: SourceStore, own_data_dir: Path, tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF\x03\x00\x00\x00")
    chosen = (CheckpointChoice(model="mine", path=tiny_gguf()), CheckpointChoice(model="bad", path=bad))
    engine = Engine(Settings(data_dir=own_data_dir, checkpoint=chosen), Catalog(store))
    engine.start()
    try:
        deadline = time.monotonic() + 60
        while engine.demonstration is None:
            assert engine.status.error is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        request = RunRequest(model="mine", token_ids=(5, 6, 7), max_new_tokens=2, temperature=0, seed=0)
        view = engine.submit(request)
        while engine.view(view.id).status in ("queued", "running"):
            time.sleep(0.02)
        assert engine.view(view.id).status == "done"
        found = engine.request(view.id, ["blocks/attention/attention-update"], "decode", 1, 1).result(30)
        assert found["blocks/attention/attention-update"].tensor.shape == (1, 1, 64)
        with pytest.raises(NoCheckpoint, match=r"bad\.gguf"):
            engine.submit(request.model_copy(update={"model": "bad"}))
    finally:
        engine.close()
