"""A Llama-architecture GGUF file as Meta's reference code wants it: configuration, parameters, vocabulary.

Owns the names on both sides and what the reference cannot compute. llama.cpp keeps the rows of wq and wk in
Meta's interleaved order, so nothing is permuted.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np

from atlas.errors import CheckpointError
from atlas.runtime.conversion import Conversion, Parameter
from atlas.runtime.gguf_facts import Facts, quantization, shown
from atlas.runtime.gguf_file import GgufFile, read_header
from atlas.runtime.gguf_tokens import tokenizer_of
from atlas.runtime.llama_layout import Config, feed_forward_rule, mismatches, parameter_shapes

_TOP = {
    "token_embd.weight": "tok_embeddings.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": "output.weight",
}
_BLOCK = {
    "attn_norm.weight": "attention_norm.weight",
    "attn_q.weight": "attention.wq.weight",
    "attn_k.weight": "attention.wk.weight",
    "attn_v.weight": "attention.wv.weight",
    "attn_output.weight": "attention.wo.weight",
    "ffn_norm.weight": "ffn_norm.weight",
    "ffn_gate.weight": "feed_forward.w1.weight",
    "ffn_up.weight": "feed_forward.w3.weight",
    "ffn_down.weight": "feed_forward.w2.weight",
}
_ROPE_FACTORS = "rope_freqs.weight"
_READ = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "expert_count",
}


def read(path: Path, file: GgufFile | None = None) -> Conversion:
    """Reads and checks a file; its numbers are read when the conversion is carried out.

    Raises CheckpointError naming what is wrong; OSError if the file cannot be read.
    """
    file = file or read_header(path)
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        raise CheckpointError(
            f"{path} is of the architecture {architecture!r}, and only llama is read from GGUF files.",
            "Choose a Llama-architecture file (Llama, SmolLM2 and others).",
        )
    facts = Facts(file)
    config, warnings = _configuration(facts)
    names = _names(int(config["n_layers"]))
    found = {
        names.get(name, f"{name} (not of Llama)"): entry.shape
        for name, entry in file.tensors.items()
        if name != _ROPE_FACTORS
    }
    if wrong := mismatches(parameter_shapes(config), found):
        raise CheckpointError(
            f"The tensors of {path} are not those of its configuration. {'; '.join(wrong)}.",
            "Choose a plain Llama-architecture file: no biases, no experts, no adapter.",
        )
    theirs = {name: gguf_name for gguf_name, name in names.items()}
    return Conversion(
        architecture="llama",
        config=config,
        quantization=quantization(file),
        parameters=[
            Parameter(name, shape, partial(file.numbers, theirs[name]))
            for name, shape in parameter_shapes(config).items()
        ],
        tokenizer=tokenizer_of(facts, int(config["vocab_size"])),
        warnings=warnings,
        tied={"output.weight": "tok_embeddings.weight"} if config["tied_embeddings"] else {},
    )


def _configuration(facts: Facts) -> tuple[Config, list[str]]:
    tensors = facts.file.tensors
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        facts.refuse("it has no token embedding")
    dim = facts.integer("llama.embedding_length", low=2, high=1 << 20)
    heads = facts.integer("llama.attention.head_count", high=1 << 12)
    kv_heads = facts.integer("llama.attention.head_count_kv", heads, high=1 << 12)
    if dim % (2 * heads) or heads % kv_heads:
        facts.refuse(f"{heads} query heads and {kv_heads} key heads do not divide d_model = {dim}")
    layers = facts.integer("llama.block_count", high=len(tensors))
    multiple_of, multiplier = feed_forward_rule(dim, facts.integer("llama.feed_forward_length"))
    vocabulary = embedding.shape[0]
    if facts.integer("llama.vocab_size", vocabulary) != vocabulary:
        facts.refuse(f"llama.vocab_size is not the embedding's number of rows, {vocabulary:,}")
    _refuse_other_arithmetic(facts, dim // heads)
    scaled, warnings = _rope_scaling(facts, dim // heads)
    config: Config = {
        "dim": dim,
        "n_layers": layers,
        "n_heads": heads,
        "n_kv_heads": kv_heads,
        "vocab_size": vocabulary,
        "multiple_of": multiple_of,
        "norm_eps": facts.positive("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": facts.positive("llama.rope.freq_base", 10000.0),
        "use_scaled_rope": scaled,
        "context_length": facts.integer("llama.context_length"),
        "tied_embeddings": "output.weight" not in tensors,
    }
    if multiplier is not None:
        config["ffn_dim_multiplier"] = multiplier
    unread = sorted(
        key for key in facts.file.metadata if key.startswith("llama.") and key.removeprefix("llama.") not in _READ
    )
    if unread:
        warnings.append(f"The file also states {', '.join(unread)}, which the reference code does not read.")
    return config, warnings


def _refuse_other_arithmetic(facts: Facts, head_dim: int) -> None:
    """Refuses what would run, but compute something else than this model does."""
    for key in ("llama.attention.key_length", "llama.attention.value_length", "llama.rope.dimension_count"):
        if facts.integer(key, head_dim) != head_dim:
            facts.refuse(f"{key} is {facts.file.metadata[key]}, and the reference code knows only {head_dim} here")
    if facts.file.metadata.get("llama.expert_count", 0):
        facts.refuse("it has experts, which Llama's reference code has not")
    scaling = facts.file.metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        facts.refuse(f"its RoPE is scaled in a way ({shown(scaling)}) that the reference code does not know")


def _rope_scaling(facts: Facts, head_dim: int) -> tuple[bool, list[str]]:
    """Whether the reference's own scaling of RoPE is what the file's factors say, and what else to know.

    A file that scales states by how much each pair's frequency is divided. Llama 3.1's rule, with its
    factor of 8, is all that the reference has. Where a file follows the rule with another factor (Llama
    3.2: 32), the reference's scaling is still what Meta runs such a model with, and the nearest: it is
    used, with a warning.
    """
    entry = facts.file.tensors.get(_ROPE_FACTORS)
    if entry is None:
        return False, []
    if entry.shape != (head_dim // 2,):
        facts.refuse(f"{_ROPE_FACTORS} has the shape {list(entry.shape)}, not [{head_dim // 2}]")
    stated = np.concatenate(list(facts.file.numbers(_ROPE_FACTORS))).astype(np.float64)
    if np.all(stated == 1):
        return False, []
    theta = facts.positive("llama.rope.freq_base", 10000.0)
    factor = float(stated[-1])
    if not math.isfinite(factor) or factor <= 0 or not np.allclose(stated, _rule(head_dim, theta, factor), rtol=1e-4):
        facts.refuse(f"{_ROPE_FACTORS} scales RoPE in a way that the reference code does not know")
    if math.isclose(factor, 8, rel_tol=1e-4):
        return True, []
    return True, [f"The file scales RoPE by {factor:g}; the reference code, which runs here, by 8."]


def _rule(head_dim: int, theta: float, factor: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Llama 3.1's divisors of the frequencies, one a pair.

    Of a wavelength under 2048 none, over 8192 `factor`; between, the frequency is blended linearly in
    8192 / wavelength, from divided (at 1) to kept (at 4). (`apply_scaling` of llama_models/llama3/model.py.)
    """
    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    kept = np.clip((8192 * frequencies / (2 * np.pi) - 1) / 3, 0, 1)
    return 1 / ((1 - kept) / factor + kept)


def _names(layers: int) -> dict[str, str]:
    """Meta's name for each of llama.cpp's."""
    blocks = {
        f"blk.{layer}.{theirs}": f"layers.{layer}.{ours}" for layer in range(layers) for theirs, ours in _BLOCK.items()
    }
    return _TOP | blocks
