"""OpenAI's open models, with their configurations as the defaults of transformers' configuration classes."""

from __future__ import annotations

from datetime import date

from atlas.graph.anchors import at
from atlas.graph.evidence import SourceRef
from atlas.models.entry import CitedConfiguration, ModelEntry

GPT2 = SourceRef(source="transformers", path="src/transformers/models/gpt2/configuration_gpt2.py")

MODELS = (
    ModelEntry(
        id="gpt2-124m",
        name="GPT-2 124M",
        publisher="OpenAI",
        released=date(2019, 2, 14),
        architecture="gpt2",
        configuration=CitedConfiguration(
            file=GPT2,
            values=at("GPT2Config"),
            shown=(at("GPT2Config").field("vocab_size").through(at("GPT2Config").field("tie_word_embeddings")),),
            claim=(
                "The defaults of GPT2Config are the smallest of the four models: width, layers, heads, positions, vocabulary "
                "and epsilon."
            ),
        ),
        size="124M",
        rank=40,
        tied_embeddings=True,
    ),
)
