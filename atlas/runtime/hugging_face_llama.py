"""A Llama model in a Hugging Face directory, as Meta's reference code wants it: names, order of rows, configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from atlas.errors import CheckpointError
from atlas.runtime.llama_layout import Config, feed_forward_rule, mismatches, parameter_shapes
from atlas.runtime.placement import Placement

CLASS = "LlamaForCausalLM"
_TOP = {
    "model.embed_tokens.weight": "tok_embeddings.weight",
    "model.norm.weight": "norm.weight",
    "lm_head.weight": "output.weight",
}
_BLOCK = {
    "input_layernorm.weight": "attention_norm.weight",
    "self_attn.q_proj.weight": "attention.wq.weight",
    "self_attn.k_proj.weight": "attention.wk.weight",
    "self_attn.v_proj.weight": "attention.wv.weight",
    "self_attn.o_proj.weight": "attention.wo.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "feed_forward.w1.weight",
    "mlp.up_proj.weight": "feed_forward.w3.weight",
    "mlp.down_proj.weight": "feed_forward.w2.weight",
}
FACTOR = 8.0
SCALING = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""The only scaling of rotary frequencies that the reference computes, with its factor.

With another factor (Llama 3.2: 32) the reference's is still what Meta runs such a model with, and it is said.
"""


def warnings(stated: Mapping[str, Any]) -> tuple[str, ...]:
    """What a reader should know of a configuration that the reference computes."""
    rope = stated.get("rope_parameters") or stated.get("rope_scaling") or {}
    factor = rope.get("factor", FACTOR)
    if rope.get("rope_type", rope.get("type")) != "llama3" or factor == FACTOR:
        return ()
    return (f"The configuration scales RoPE by {factor:g}; the reference code, which runs here, by {FACTOR:g}.",)


def read(
    path: Path, stated: Mapping[str, Any], files: Sequence[Path], placement: Placement
) -> tuple[Config, dict[str, torch.Tensor]]:
    """Configuration and weights by Meta's names, placed as asked.

    Raises CheckpointError for what the reference cannot compute, and for weights that are not the configuration's.
    """
    config = configuration(path, stated)
    heads = {"attention.wq.weight": int(config["n_heads"]), "attention.wk.weight": int(config["n_kv_heads"])}
    tensors: dict[str, torch.Tensor] = {}
    found: dict[str, tuple[int, ...]] = {}
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for theirs in opened.keys():  # noqa: SIM118 - not a dictionary
                ours = meta_name(theirs)
                if ours is None:
                    found[theirs] = ()
                    continue
                stored = opened.get_tensor(theirs)
                found[ours] = tuple(stored.shape)
                tensor = placement.put(ours, stored)
                several = heads.get(ours.partition(".")[2].partition(".")[2], 0) * len(tensor) // len(stored)
                tensors[ours] = interleaved(tensor, several) if several else tensor
    if config["tied_embeddings"]:
        tensors.pop("output.weight", None)
        found.pop("output.weight", None)
    wrong = mismatches(parameter_shapes(config), found)
    if wrong:
        raise CheckpointError(
            f"The weights in {path} are not those that its configuration asks for: {'; '.join(wrong)}.",
            "Check that config.json and weights are of the same model.",
        )
    if config["tied_embeddings"]:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    return config, tensors


def configuration(path: Path, stated: Mapping[str, Any]) -> Config:
    """A Llama configuration by the names of Meta's `ModelArgs`."""
    try:
        dim, heads = int(stated["hidden_size"]), int(stated["num_attention_heads"])
        width = int(stated["intermediate_size"])
        layers, vocabulary = int(stated["num_hidden_layers"]), int(stated["vocab_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path / 'config.json'} does not say {error}.", "Download it again.") from error
    rope = stated.get("rope_parameters") or stated.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    theta = rope.get("rope_theta", stated.get("rope_theta", 10000.0))
    refused = [
        f"{name} is {stated[name]!r}"
        for name, plain in (
            ("attention_bias", False),
            ("mlp_bias", False),
            ("hidden_act", "silu"),
            ("head_dim", dim // heads),
        )
        if stated.get(name, plain) not in (plain, None)
    ]
    if kind not in ("default", "llama3"):
        refused.append(f"rotary positions are of the type {kind!r}")
    if kind == "llama3":
        refused += [
            f"{name} is {rope.get(name)}, not {value}" for name, value in SCALING.items() if rope.get(name) != value
        ]
        if not isinstance(rope.get("factor"), int | float):
            refused.append(f"factor is {rope.get('factor')!r}")
    if refused:
        raise CheckpointError(
            f"{path} asks for what the reference code does not compute: {'; '.join(refused)}.",
            "Use another checkpoint.",
        )
    multiple, multiplier = feed_forward_rule(dim, width)
    config: Config = {
        "dim": dim,
        "n_layers": layers,
        "n_heads": heads,
        "n_kv_heads": int(stated.get("num_key_value_heads") or heads),
        "vocab_size": vocabulary,
        "multiple_of": multiple,
        "norm_eps": float(stated.get("rms_norm_eps", 1e-6)),
        "rope_theta": float(theta),
        "use_scaled_rope": kind == "llama3",
        "context_length": int(stated.get("max_position_embeddings", 2048)),
        "tied_embeddings": bool(stated.get("tie_word_embeddings", False)),
    }
    return config if multiplier is None else config | {"ffn_dim_multiplier": multiplier}


def meta_name(theirs: str) -> str | None:
    """Meta's name of a weight; None for one that it does not have."""
    if theirs in _TOP:
        return _TOP[theirs]
    prefix, _, rest = theirs.partition("model.layers.")
    layer, _, leaf = rest.partition(".")
    if prefix or not layer.isdecimal() or leaf not in _BLOCK:
        return None
    return f"layers.{layer}.{_BLOCK[leaf]}"


def interleaved(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of queries or keys from halves to neighbours: row j h/2 + i of a head becomes row 2i + j."""
    return rows.view(heads, 2, -1, rows.shape[-1]).transpose(1, 2).reshape(rows.shape).contiguous()
