"""A second implementation of Llama, transformers' own, given the same weights: an independent witness for the logits.

Which of its parameters is which of ours stands in the declaration (their Hugging Face names), and which have their rows
permuted as well: transformers pairs feature i of a head with i + h/2 where Meta's code pairs 2i with 2i + 1.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import torch

from atlas.graph.nodes import Parameter
from atlas.runtime.references.base import ReferenceRunner

NAME = "transformers"
LARGEST = 4 << 30
"""Bytes of weights up to which a second model is built beside the first."""


def applies(runner: ReferenceRunner) -> str:
    """Why this witness cannot speak for a model; empty if it can."""
    if runner.model.architecture.reference.runner != "llama":
        return f"The model is run by {NAME} itself, so it is no second witness."
    size = sum(tensor.nbytes for tensor in runner.checkpoint.tensors.values())
    if size > LARGEST:
        return f"Its weights take {size / 2**30:.0f} GB, too much to build a second model beside it."
    return ""


def independent_logits(runner: ReferenceRunner, tokens: tuple[int, ...]) -> torch.Tensor:
    """The logits of one pass without history over all tokens, [1, T, vocab]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library: Any = importlib.import_module("transformers")
        sizes, settings = runner.model.architecture.sizes, runner.model.architecture.settings
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": settings["rope_theta"]}
        if settings["use_scaled_rope"]:
            rope |= {
                "rope_type": "llama3",
                "factor": settings["rope_factor"],
                "low_freq_factor": settings["low_factor"],
                "high_freq_factor": settings["high_factor"],
                "original_max_position_embeddings": settings["old_context"],
            }
        config = library.LlamaConfig(
            vocab_size=sizes["vocab"],
            hidden_size=sizes["d_model"],
            intermediate_size=sizes["d_mlp"],
            num_hidden_layers=sizes["layers"],
            num_attention_heads=sizes["q_heads"],
            num_key_value_heads=sizes["kv_heads"],
            rms_norm_eps=settings["norm_eps"],
            rope_parameters=rope,
            tie_word_embeddings=False,
            attn_implementation="eager",
        )
        with torch.device("meta"):  # without numbers, since they are ours
            model = library.LlamaForCausalLM(config).eval()
        model.load_state_dict(weights_for_them(runner), strict=True, assign=True)
        model.model.rotary_emb = type(model.model.rotary_emb)(config)  # it computes its frequencies as it is built
        with torch.inference_mode():
            logits: torch.Tensor = model(torch.tensor([tokens]), use_cache=False).logits
    return logits.float()


def weights_for_them(runner: ReferenceRunner) -> dict[str, torch.Tensor]:
    """Our parameters by their Hugging Face names, permuted where the declaration says so."""
    sizes = runner.model.architecture.sizes
    found: dict[str, torch.Tensor] = {}
    for node in runner.model.graph.nodes.values():
        declared = node.node
        if not isinstance(declared, Parameter):
            continue
        alias = next(alias for alias in declared.aliases if alias.of == "Hugging Face")
        for layer in range(sizes["layers"] if node.in_blocks else 1):
            weight = runner.weight(declared.weight.format(layer=layer))
            if alias.layout:
                weight = permuted(weight, weight.shape[0] // sizes["head_dim"])
            found[alias.name.format(layer=layer)] = weight
    return found


def permuted(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Row 2i + j of a head becomes row j h/2 + i."""
    return rows.view(heads, -1, 2, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)
