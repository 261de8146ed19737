"""The default model for measurements: as the engine runs it, and bare."""

from __future__ import annotations

import importlib
from typing import Any

from atlas.catalog import open_catalog
from atlas.runtime.checkpoints import open_checkpoint
from atlas.runtime.references.base import ReferenceRunner
from atlas.runtime.references.llama import ARGUMENTS, Runner
from atlas.runtime.weights import fetch_default
from atlas.settings import Settings


def open_runner() -> Runner:
    """The reference code with the default weights in it, from the user's data directory."""
    settings = Settings()
    catalog = open_catalog(settings.data_dir)
    checkpoint = open_checkpoint(fetch_default(settings.data_dir), settings.data_dir)
    return Runner(catalog[catalog.default.id], checkpoint)


def bare_model(runner: ReferenceRunner, positions: int) -> Any:
    """The reference model with the same weights and a KV cache of its own, for `model(tokens, start)` without us."""
    config = runner.checkpoint.config
    arguments = {name: config[name] for name in ARGUMENTS if config.get(name) is not None}
    settings = importlib.import_module("llama_models.llama3.args").ModelArgs
    model = runner.loaded.module.Transformer(settings(max_batch_size=1, max_seq_len=positions, **arguments))
    model.load_state_dict(dict(runner.checkpoint.tensors), strict=True, assign=True)
    return model.requires_grad_(False).eval()
