"""Google's Gemma 3, with its configurations in the publisher's own code, which no package that we install carries."""

from __future__ import annotations

from datetime import date

from atlas.graph.anchors import at
from atlas.graph.evidence import SourceRef
from atlas.models.entry import CitedConfiguration, ModelEntry

GEMMA = SourceRef(source="gemma", path="gemma/gm/nn/_gemma.py")
NAMES = {
    "num_embed": "vocab_size",
    "embed_dim": "hidden_size",
    "hidden_dim": "intermediate_size",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "sliding_window_size": "sliding_window",
    "global_base_frequency": "rope_theta",
    "local_base_frequency": "rope_local_theta",
}


def _configuration(size: str, width: int, hidden: int, layers: int) -> CitedConfiguration:
    """The small text models differ in width, hidden width and layers alone."""
    values = at(f"Gemma3_{size}").field("config").call("_config.TransformerConfig")
    return CitedConfiguration(
        file=GEMMA,
        values=values,
        shown=(at("").assigns(f"_NUM_LAYERS_GEMMA3_{size}"), at("").assigns("GEMMA3_ATTENTION_PATTERN"), values),
        claim=(
            f"Google's own entry for Gemma 3 {size} supplies width, heads, hidden width, vocabulary, window, both thetas, the "
            "number of layers and their pattern: five local, one global. Epsilon is the code's own, 1e-6."
        ),
        stated={
            "vocab_size": 262144,
            "hidden_size": width,
            "intermediate_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6,
            "query_pre_attn_scalar": 256,
            "sliding_window": 512,
            "sliding_window_pattern": 6,
            "rope_theta": 1000000.0,
            "rope_local_theta": 10000.0,
            "tie_word_embeddings": True,
        },
        names=NAMES,
    )


MODELS = (
    ModelEntry(
        id="gemma-3-1b",
        name="Gemma 3 1B",
        publisher="Google",
        released=date(2025, 3, 12),
        architecture="gemma3",
        configuration=_configuration("1B", 1152, 6912, 26),
        size="1B",
        rank=54,
        tied_embeddings=True,
    ),
    ModelEntry(
        id="gemma-3-270m",
        name="Gemma 3 270M",
        publisher="Google",
        released=date(2025, 8, 14),
        architecture="gemma3",
        configuration=_configuration("270M", 640, 2048, 18),
        follows="gemma-3-1b",
        reads_as="computes as the larger ones do; more than half of its parameters are the embedding",
        size="270M",
        rank=55,
        tied_embeddings=True,
    ),
)
