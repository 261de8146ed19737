"""A small random Llama as a GGUF file, written by the gguf package, to be changed as a test needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

DIM, HEADS, KV_HEADS, LAYERS, D_MLP = 64, 4, 2, 2, 96
SPECIAL = ["<|begin|>", "<|end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o"]
GPT2_BYTES = [
    *(chr(byte) for byte in (*range(33, 127), *range(161, 173), *range(174, 256))),
    *(chr(256 + at) for at in range(68)),
]

Numbers = np.ndarray[Any, np.dtype[np.float32]]
TinyGguf = Callable[..., Path]


def _metadata() -> dict[str, Any]:
    tokens = [*SPECIAL, *GPT2_BYTES, *(merge.replace(" ", "") for merge in MERGES)]
    return {
        "llama.block_count": LAYERS,
        "llama.context_length": 128,
        "llama.embedding_length": DIM,
        "llama.feed_forward_length": D_MLP,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": DIM // HEADS,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": True,
    }


def _tensors(vocabulary: int) -> dict[str, Numbers]:
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocabulary, DIM),
        "output_norm.weight": (DIM,),
    }
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (DIM,),
            f"blk.{layer}.attn_q.weight": (DIM, DIM),
            f"blk.{layer}.attn_k.weight": (DIM * KV_HEADS // HEADS, DIM),
            f"blk.{layer}.attn_v.weight": (DIM * KV_HEADS // HEADS, DIM),
            f"blk.{layer}.attn_output.weight": (DIM, DIM),
            f"blk.{layer}.ffn_norm.weight": (DIM,),
            f"blk.{layer}.ffn_gate.weight": (D_MLP, DIM),
            f"blk.{layer}.ffn_up.weight": (D_MLP, DIM),
            f"blk.{layer}.ffn_down.weight": (DIM, D_MLP),
        }
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def write_tensors(writer: GGUFWriter, tensors: Mapping[str, Numbers | None], matrices: GGMLQuantizationType) -> None:
    """Write a file's tensors, vectors in float32, those that are None not, and close it."""
    for name, numbers in tensors.items():
        if numbers is not None:
            plain = np.ascontiguousarray(numbers, np.float32)
            kind = matrices if plain.ndim > 1 else GGMLQuantizationType.F32
            writer.add_tensor(name, quantize(plain, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> TinyGguf:
    """Writes one: `metadata` and `tensors` replace entries (None removes one)."""

    def write(
        name: str = "tiny.gguf",
        *,
        architecture: str = "llama",
        metadata: dict[str, Any] | None = None,
        tensors: dict[str, np.ndarray[Any, np.dtype[np.float32]] | None] | None = None,
        quantization: str = "F32",
    ) -> Path:
        path = tmp_path / name
        writer = GGUFWriter(path, architecture)
        entries = _metadata() | (metadata or {})
        for key, value in entries.items():
            match value:
                case None:
                    pass
                case bool():
                    writer.add_bool(key, value)
                case int():
                    writer.add_uint32(key, value)
                case float():
                    writer.add_float32(key, value)
                case str():
                    writer.add_string(key, value)
                case _:
                    writer.add_array(key, value)
        matrices = GGMLQuantizationType[quantization]
        write_tensors(writer, _tensors(len(_metadata()["tokenizer.ggml.tokens"])) | (tensors or {}), matrices)
        return path

    return write
