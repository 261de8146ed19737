from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atlas.errors import CheckpointError
from atlas.runtime.gguf_file import read_header
from atlas.runtime.gguf_llama import read
from atlas.runtime.tokens import Vocabulary

from .conftest import D_MLP, DIM, HEADS, KV_HEADS, LAYERS, TinyGguf

PAIRS = DIM // HEADS // 2
LOW_BASE = {"llama.rope.freq_base": 500000.0}


def matrix(rows: int, columns: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.ones((rows, columns), np.float32)


def factors(scale: float) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """What llama.cpp writes for Llama 3.1's rule, one pair at a time, in plain Python."""
    divisors = []
    for pair in range(PAIRS):
        wavelength = 2 * np.pi * 500000.0 ** (2 * pair / (2 * PAIRS))
        if wavelength < 2048:
            divisors.append(1.0)
        elif wavelength > 8192:
            divisors.append(scale)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            divisors.append(1 / ((1 - smooth) / scale + smooth))
    return {"rope_freqs.weight": np.array(divisors, np.float32)}


def test_configuration_in_metas_names(tiny_gguf: TinyGguf) -> None:
    conversion = read(tiny_gguf(quantization="Q4_1"))
    assert isinstance(conversion.tokenizer, Vocabulary)
    config = dict(conversion.config)
    multiple_of, multiplier = config.pop("multiple_of"), config.pop("ffn_dim_multiplier")
    assert config == {
        "dim": DIM,
        "n_layers": LAYERS,
        "n_heads": HEADS,
        "n_kv_heads": KV_HEADS,
        "vocab_size": len(conversion.tokenizer.tokens),
        "norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "use_scaled_rope": False,
        "context_length": 128,
        "tied_embeddings": True,
    }
    assert multiple_of * -(-int(multiplier * int(2 * 4 * DIM / 3)) // multiple_of) == D_MLP
    assert conversion.quantization == "Q4_1"
    assert conversion.warnings == []
    assert conversion.tokenizer.special == {0, 1}
    assert (conversion.tokenizer.bos_id, conversion.tokenizer.eos_ids) == (0, (1,))
    assert conversion.tokenizer.add_bos


def test_gguf_tensors_become_metas(tiny_gguf: TinyGguf) -> None:
    path = tiny_gguf(tensors={"output.weight": matrix(264, DIM)})
    file = read_header(path)
    parameters = {parameter.name: parameter for parameter in read(path).parameters}
    for ours, theirs in {
        "tok_embeddings.weight": "token_embd.weight",
        "layers.1.attention.wq.weight": "blk.1.attn_q.weight",
        "layers.0.feed_forward.w1.weight": "blk.0.ffn_gate.weight",
        "layers.0.feed_forward.w2.weight": "blk.0.ffn_down.weight",
        "layers.0.feed_forward.w3.weight": "blk.0.ffn_up.weight",
        "norm.weight": "output_norm.weight",
        "output.weight": "output.weight",
    }.items():
        assert parameters[ours].shape == file.tensors[theirs].shape
        mine, plain = parameters[ours].numbers(), file.numbers(theirs)
        assert all(np.array_equal(one, other) for one, other in zip(mine, plain, strict=True))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"architecture": "gemma3"}, "architecture 'gemma3'"),
        ({"metadata": {"llama.embedding_length": None}}, "embedding_length is None"),
        ({"metadata": {"llama.embedding_length": 1 << 31}}, "embedding_length is 2147483648"),
        ({"metadata": {"llama.embedding_length": "64"}}, "embedding_length is '64'"),
        ({"metadata": {"llama.block_count": 1 << 31}}, "block_count"),
        ({"metadata": {"llama.block_count": 3}}, "missing: layers.2.attention_norm.weight"),
        ({"metadata": {"llama.block_count": 1}}, "extra: blk.1.attn_norm.weight"),
        ({"metadata": {"llama.attention.head_count": [4, 4]}}, "head_count is"),
        ({"metadata": {"llama.attention.head_count": 5}}, "5 query heads"),
        ({"metadata": {"llama.attention.head_count_kv": 3}}, "3 key heads"),
        ({"metadata": {"llama.attention.head_count_kv": 4}}, "misshapen: layers.0.attention.wk.weight"),
        ({"metadata": {"llama.vocab_size": 7}}, "vocab_size"),
        ({"metadata": {"llama.attention.layer_norm_rms_epsilon": None}}, "rms_epsilon is None"),
        ({"metadata": {"llama.rope.freq_base": float("nan")}}, "freq_base is nan"),
        ({"metadata": {"llama.rope.dimension_count": 8}}, "dimension_count is 8"),
        ({"metadata": {"llama.attention.key_length": 32}}, "key_length is 32"),
        ({"metadata": {"llama.rope.scaling.type": "yarn"}}, "yarn"),
        ({"metadata": {"llama.expert_count": 8}}, "experts"),
        ({"metadata": {"tokenizer.ggml.model": "bert"}}, "of the kind 'bert'"),
        ({"metadata": {"tokenizer.ggml.model": "llama"}}, "no score for each"),
        ({"metadata": {"tokenizer.ggml.pre": "viking"}}, "'viking' is none of .*smollm"),
        ({"metadata": {"tokenizer.ggml.tokens": ["a"]}}, "it has 1 tokens"),
        ({"metadata": {"tokenizer.ggml.merges": None}}, "merges is not a list"),
        ({"metadata": {"tokenizer.ggml.bos_token_id": 9999}}, "bos_token_id is 9999"),
        ({"tensors": {"token_embd.weight": None}}, "no token embedding"),
        ({"tensors": {"blk.0.attn_q.bias": matrix(1, DIM)}}, r"extra: blk.0.attn_q.bias"),
        ({"tensors": {"norm.weight": matrix(1, DIM)}}, r"extra: norm.weight \(not of Llama\)"),
        ({"tensors": {"blk.1.ffn_down.weight": None}}, "missing: layers.1.feed_forward.w2.weight"),
        ({"tensors": {"blk.1.ffn_down.weight": matrix(D_MLP, DIM)}}, "misshapen: layers.1.feed_forward.w2"),
        ({"tensors": {"rope_freqs.weight": np.ones(3, np.float32)}}, r"shape \[3\]"),
        (
            {"tensors": {"rope_freqs.weight": np.arange(1, PAIRS + 1, dtype=np.float32)}},
            "scales RoPE in a way",
        ),
        ({"tensors": {"rope_freqs.weight": np.full(PAIRS, np.nan, np.float32)}}, "scales RoPE in a way"),
    ],
)
def test_refuses_and_says_why(tiny_gguf: TinyGguf, change: dict[str, Any], reason: str) -> None:
    path = tiny_gguf(**change)
    with pytest.raises(CheckpointError, match=reason) as raised:
        read(path)
    assert str(path) in raised.value.detail
    assert raised.value.hint


def test_scaled_rope_if_the_factors_are_the_references(tiny_gguf: TinyGguf) -> None:
    conversion = read(tiny_gguf(metadata=LOW_BASE, tensors=factors(8)))
    assert conversion.config["use_scaled_rope"] is True
    assert conversion.warnings == []
    assert "rope_freqs.weight" not in {parameter.name for parameter in conversion.parameters}


def test_another_factor_is_said(tiny_gguf: TinyGguf) -> None:
    conversion = read(tiny_gguf(metadata=LOW_BASE, tensors=factors(32)))
    assert conversion.config["use_scaled_rope"] is True
    assert conversion.warnings == ["The file scales RoPE by 32; the reference code, which runs here, by 8."]


def test_factors_of_one_scale_nothing(tiny_gguf: TinyGguf) -> None:
    conversion = read(tiny_gguf(tensors={"rope_freqs.weight": np.ones(PAIRS, np.float32)}))
    assert conversion.config["use_scaled_rope"] is False


def test_what_the_reference_does_not_read_is_said(tiny_gguf: TinyGguf) -> None:
    conversion = read(tiny_gguf(metadata={"llama.attention.clamp_kqv": 8.0}))
    assert conversion.warnings == [
        "The file also states llama.attention.clamp_kqv, which the reference code does not read."
    ]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_changed_header_is_read_or_refused(tiny_gguf: TinyGguf, data: st.DataObject) -> None:
    path = tiny_gguf()
    content = bytearray(path.read_bytes())
    end = min(entry.offset for entry in read_header(path).tensors.values())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(CheckpointError):
        read(path)
