"""Mistral AI's open models, with their configurations as the defaults of transformers' configuration classes."""

from __future__ import annotations

from datetime import date

from atlas.graph.anchors import at
from atlas.graph.evidence import Evidence, SourceRef
from atlas.models.entry import CitedConfiguration, ModelEntry

MISTRAL = SourceRef(source="transformers", path="src/transformers/models/mistral/configuration_mistral.py")
MIXTRAL = SourceRef(source="transformers", path="src/transformers/models/mixtral/configuration_mixtral.py")
EPSILON = Evidence(
    id="mistral-epsilon",
    kind="erratum",
    claim=(
        "The class's default epsilon is 1e-6. The configuration that Mistral AI published with the weights of Mistral 7B says "
        "1e-5, as the class for Mixtral does, and that is used on these pages."
    ),
    file=MISTRAL,
    anchors=(at("MistralConfig").field("rms_norm_eps"),),
)

MODELS = (
    ModelEntry(
        id="mistral-7b",
        name="Mistral 7B",
        publisher="Mistral AI",
        released=date(2023, 9, 27),
        architecture="mistral",
        configuration=CitedConfiguration(
            file=MISTRAL,
            values=at("MistralConfig"),
            shown=(at("MistralConfig").field("vocab_size").through(at("MistralConfig").field("attention_dropout")),),
            claim=(
                "The defaults of MistralConfig are Mistral 7B v0.1: width, layers, heads, hidden width, vocabulary and window. "
                "Theta is the library's default, 10,000."
            ),
            corrected={"rms_norm_eps": 1e-5},
        ),
        size="7B",
        rank=41,
        errata=(EPSILON,),
    ),
    ModelEntry(
        id="mixtral-8x7b",
        name="Mixtral 8x7B",
        publisher="Mistral AI",
        released=date(2023, 12, 11),
        architecture="mixtral",
        configuration=CitedConfiguration(
            file=MIXTRAL,
            values=at("MixtralConfig"),
            shown=(
                at("MixtralConfig").assigns("default_theta"),
                at("MixtralConfig").field("vocab_size").through(at("MixtralConfig").field("rope_parameters")),
            ),
            claim=(
                "The defaults of MixtralConfig are Mixtral 8x7B: width, layers, heads, experts, experts a token, the hidden "
                "width of one expert, vocabulary, epsilon and theta."
            ),
        ),
        follows="mistral-7b",
        reads_as="attends as Mistral does, and routes each token to two of eight experts",
        size="8x7B",
        rank=42,
    ),
)
