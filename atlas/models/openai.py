"""OpenAI's open models, with their configurations as the defaults of transformers' configuration classes."""

from __future__ import annotations

from datetime import date

from atlas.graph.anchors import at
from atlas.graph.evidence import SourceRef
from atlas.models.entry import CitedConfiguration, ModelEntry

GPT2 = SourceRef(source="transformers", path="src/transformers/models/gpt2/configuration_gpt2.py")

GPT_OSS = SourceRef(source="transformers", path="src/transformers/models/gpt_oss/configuration_gpt_oss.py")
OSS = at("GptOssConfig")
YARN = at("GptOssConfig.__post_init__").assigns("self.rope_parameters")

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
    ModelEntry(
        id="gpt-oss-120b",
        name="gpt-oss 120B",
        publisher="OpenAI",
        released=date(2025, 8, 5),
        architecture="gpt_oss",
        configuration=CitedConfiguration(
            file=GPT_OSS,
            values=OSS,
            also=(YARN,),
            shown=(
                OSS.assigns("default_theta"),
                OSS.field("num_hidden_layers").through(OSS.field("attention_bias")),
                at("GptOssConfig.__post_init__").assigns("self.layer_types").through(YARN),
            ),
            claim=(
                "The defaults of GptOssConfig are gpt-oss 120B: layers, width, heads, window, experts, experts a token, hidden "
                "width of one expert, clamp, vocabulary, epsilon, theta and the numbers of YaRN."
            ),
        ),
        follows="gpt2-124m",
        reads_as="shares the decoder's frame with GPT-2, and none of its parts",
        size="120B",
        rank=43,
    ),
)
