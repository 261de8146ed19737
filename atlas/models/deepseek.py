"""DeepSeek's models, with their configurations as the defaults of transformers' configuration classes."""

from __future__ import annotations

from datetime import date

from atlas.graph.anchors import at
from atlas.graph.evidence import Evidence, SourceRef
from atlas.models.entry import CitedConfiguration, ModelEntry

V3 = SourceRef(source="transformers", path="src/transformers/models/deepseek_v3/configuration_deepseek_v3.py")
CONFIG = at("DeepseekV3Config")
STRETCHED = Evidence(
    id="deepseek-context",
    kind="erratum",
    claim=(
        "The class's defaults are those of pre-training: 4,096 positions, plain rotary frequencies. The configuration published "
        "with the weights stretches them by YaRN to 163,840 positions, which slows most frequencies and sharpens attention; "
        "these pages show the model before that."
    ),
    file=V3,
    anchors=(CONFIG.field("max_position_embeddings"), CONFIG.field("rope_parameters")),
)

MODELS = (
    ModelEntry(
        id="deepseek-v3",
        name="DeepSeek-V3",
        publisher="DeepSeek",
        released=date(2024, 12, 26),
        architecture="deepseek_v3",
        configuration=CitedConfiguration(
            file=V3,
            values=CONFIG,
            shown=(CONFIG.field("vocab_size").through(CONFIG.field("num_mtp_layers")),),
            claim=(
                "The defaults of DeepseekV3Config are DeepSeek-V3: layers, width, heads, ranks of the latents, experts, groups, "
                "scaling of the routed part, vocabulary and epsilon."
            ),
        ),
        size="671B",
        rank=45,
        errata=(STRETCHED,),
    ),
)
