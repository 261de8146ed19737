"""Alibaba's Qwen: configurations as the source of one library states them, since the publisher's own are no code."""

from __future__ import annotations

from datetime import date

from atlas.graph.anchors import Anchor, at
from atlas.graph.evidence import Evidence, SourceRef
from atlas.models.entry import CitedConfiguration, ModelEntry

LITGPT = SourceRef(source="litgpt", path="litgpt/config.py")
OMNI = SourceRef(source="transformers", path="src/transformers/models/qwen2_5_omni/configuration_qwen2_5_omni.py")
TEXT = at("Qwen2_5OmniTextConfig")
ENTRY: Anchor = at("").entry("hf_config", "dict(org='Qwen', name='Qwen3-8B{}')")

TIED = Evidence(
    id="omni-tied",
    kind="erratum",
    claim=(
        "The class says that embedding and unembedding are tied. In Qwen2.5 7B they are two matrices, as in all of the family "
        "from 7B on (Qwen's model cards say so), and so they are on these pages."
    ),
    file=OMNI,
    anchors=(TEXT.field("tie_word_embeddings"),),
)

MODELS = (
    ModelEntry(
        id="qwen2.5-7b",
        name="Qwen2.5 7B",
        publisher="Alibaba",
        released=date(2024, 9, 19),
        architecture="qwen2",
        configuration=CitedConfiguration(
            file=OMNI,
            values=TEXT,
            shown=(TEXT.assigns("default_theta"), TEXT.field("vocab_size").through(TEXT.field("tie_word_embeddings"))),
            claim=(
                "The text model of Qwen2.5-Omni 7B is Qwen2.5 7B; the defaults of its class supply width, layers, heads, "
                "hidden width, vocabulary, epsilon and theta. The defaults of Qwen2Config itself are those of no model."
            ),
            corrected={"tie_word_embeddings": False},
        ),
        size="7B",
        rank=51,
        errata=(TIED,),
    ),
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
        follows="qwen2.5-7b",
        reads_as="normalises queries and keys where Qwen2.5 adds biases",
        size="8B",
        rank=52,
    ),
)
