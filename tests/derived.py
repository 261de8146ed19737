"""Small random models of architectures that nothing here describes, saved as transformers saves models, and opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atlas.catalog import Catalog, Model
    from atlas.graph.resolve import Graph
    from atlas.runtime.checkpoints import Checkpoint
    from atlas.runtime.references.hugging_face import Runner

COMMON: Mapping[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": None,
}
SMALL: Mapping[str, Mapping[str, Any]] = {
    "Mamba2ForCausalLM": {
        **{"vocab_size": 300, "hidden_size": 32, "num_heads": 4, "head_dim": 16, "state_size": 12, "expand": 2},
        **{"n_groups": 2, "num_hidden_layers": 2, "chunk_size": 6, "conv_kernel": 4},
        **{"bos_token_id": 256, "eos_token_id": 257, "pad_token_id": None},
    },
    "Olmo2ForCausalLM": {**COMMON, "num_hidden_layers": 2, "tie_word_embeddings": True},
    "Phi3ForCausalLM": {**COMMON, "num_hidden_layers": 2, "original_max_position_embeddings": 128},
    "SmolLM3ForCausalLM": {**COMMON, "num_hidden_layers": 3, "no_rope_layer_interval": 2},
}
"""Numbers unlike each other, as far as they go; Mamba's chunks are shorter than the prompts of tests."""
TUPLES: Mapping[str, Any] = {"vocab_size": 300, "hidden_size": 32, "n_layer": 2, "n_head": 4}
"""Bloom, whose blocks give tuples."""


@dataclass(frozen=True)
class Opened:
    """A checkpoint of an architecture without a declaration, opened as a reader would, in a catalogue of its own."""

    name: str
    directory: Path
    checkpoint: Checkpoint
    catalog: Catalog
    model: Model
    runner: Runner

    @property
    def graph(self) -> Graph:
        return self.model.graph


def save(name: str, directory: Path, **changes: Any) -> Path:
    """Build a model with random weights and save it with a tokenizer."""
    import torch
    import transformers

    from tests.runtime.test_hugging_face_directory import write_tokenizer

    model_class = getattr(transformers, name)
    configuration = model_class.config_class(**{**SMALL.get(name, TUPLES), **changes})
    torch.manual_seed(0)
    model_class._from_config(configuration).save_pretrained(directory)
    write_tokenizer(directory, configuration.vocab_size)
    return directory


def open_saved(name: str, root: Path, catalog: Catalog) -> Opened:
    """Save the small model of a class below `root`, and open it into a catalogue."""
    from atlas.runtime.adoption import adopt
    from atlas.runtime.checkpoints import open_checkpoint
    from atlas.runtime.references.hugging_face import Runner

    checkpoint = open_checkpoint(save(name, root / "model"), root / "data")
    model = adopt(catalog, "mine", checkpoint)
    return Opened(name, root / "model", checkpoint, catalog, model, Runner(model, checkpoint))
