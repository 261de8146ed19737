"""Alibaba's Qwen: configurations as the source of one library states them, since the publisher's own are no code."""

from __future__ import annotations

from datetime import date

from atlas.graph.anchors import Anchor, at
from atlas.graph.evidence import SourceRef
from atlas.models.entry import CitedConfiguration, ModelEntry

LITGPT = SourceRef(source="litgpt", path="litgpt/config.py")
ENTRY: Anchor = at("").entry("hf_config", "dict(org='Qwen', name='Qwen3-8B{}')")

MODELS = (
    ModelEntry(
        id="qwen3-8b",
        name="Qwen3 8B",
        publisher="Alibaba",
        released=date(2025, 4, 28),
        architecture="qwen3",
        configuration=CitedConfiguration(
            file=LITGPT,
            values=ENTRY,
            shown=(ENTRY,),
            claim=(
                "LitGPT's entry for Qwen3 8B supplies width, layers, heads, vocabulary, hidden width, epsilon and theta; the "
                "defaults of transformers' own Qwen3Config are those of no model."
            ),
            stated={
                "vocab_size": 151936,
                "hidden_size": 4096,
                "intermediate_size": 12288,
                "num_hidden_layers": 36,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "max_position_embeddings": 40960,
                "rms_norm_eps": 1e-6,
                "rope_theta": 1000000.0,
                "tie_word_embeddings": False,
            },
            names={
                "padded_vocab_size": "vocab_size",
                "n_embd": "hidden_size",
                "intermediate_size": "intermediate_size",
                "n_layer": "num_hidden_layers",
                "n_head": "num_attention_heads",
                "n_query_groups": "num_key_value_heads",
                "block_size": "max_position_embeddings",
                "norm_eps": "rms_norm_eps",
                "rope_base": "rope_theta",
            },
        ),
        size="8B",
        rank=52,
    ),
)
