"""A small random model of each family, written as GGUF by the gguf package, opened as a reader would open it.

Names come from the gguf package's own table and layouts from what its files are known to hold, both apart from what the
atlas reads them with; logits are those of transformers on the same weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from gguf.constants import MODEL_ARCH, MODEL_ARCH_NAMES, GGMLQuantizationType
from gguf.tensor_mapping import get_tensor_name_map

from atlas.catalog import Catalog, Model
from atlas.errors import CheckpointError
from atlas.graph.nodes import Parameter
from atlas.runtime.adoption import adopt
from atlas.runtime.checkpoints import open_checkpoint
from atlas.runtime.gguf_families import read
from atlas.runtime.references.base import Pass
from atlas.runtime.references.hugging_face import Runner
from atlas.runtime.tokens import byte_alphabet
from atlas.runtime.untrained import untrained

from .conftest import Numbers, write_tensors

IDS = (5, 100, 42, 7, 7, 200, 19, 3, 250, 11, 12, 13)


@dataclass(frozen=True)
class Form:
    """How models of one architecture are written: the gguf package's name for it, settings, and the marks of a
    SentencePiece tokenizer."""

    arch: MODEL_ARCH
    settings: Callable[[dict[str, Any]], dict[str, Any]]
    marks: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)


def common(config: dict[str, Any]) -> dict[str, Any]:
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "block_count": config["num_hidden_layers"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_theta"],
        "rope.dimension_count": head,
    }


def experts(config: dict[str, Any]) -> dict[str, Any]:
    return {"expert_count": config["num_local_experts"], "expert_used_count": config["num_experts_per_tok"]}


def gpt2(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "context_length": config["n_positions"],
        "embedding_length": config["n_embd"],
        "feed_forward_length": 4 * config["n_embd"],
        "block_count": config["n_layer"],
        "attention.head_count": config["n_head"],
        "attention.layer_norm_epsilon": config["layer_norm_epsilon"],
    }


def gemma3(config: dict[str, Any]) -> dict[str, Any]:
    return common(config) | {
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": config["sliding_window_pattern"],
        "attention.scale": config["query_pre_attn_scalar"] ** -0.5,
        "rope.freq_base_swa": config["rope_local_theta"],
    }


def gpt_oss(config: dict[str, Any]) -> dict[str, Any]:
    return (
        common(config)
        | experts(config)
        | {
            "expert_feed_forward_length": config["intermediate_size"],
            "attention.sliding_window": config["sliding_window"],
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": config["factor"],
            "rope.scaling.original_context_length": config["original_max_position_embeddings"],
        }
    )


def deepseek(config: dict[str, Any]) -> dict[str, Any]:
    length = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    return {name: value for name, value in common(config).items() if not name.startswith("attention.head_count_kv")} | {
        "attention.head_count_kv": 1,
        "attention.key_length": config["kv_lora_rank"] + config["qk_rope_head_dim"],
        "attention.value_length": config["kv_lora_rank"],
        "attention.key_length_mla": length,
        "attention.value_length_mla": config["v_head_dim"],
        "attention.q_lora_rank": config["q_lora_rank"],
        "attention.kv_lora_rank": config["kv_lora_rank"],
        "rope.dimension_count": config["qk_rope_head_dim"],
        "leading_dense_block_count": config["first_k_dense_replace"],
        "expert_count": config["n_routed_experts"],
        "expert_used_count": config["num_experts_per_tok"],
        "expert_shared_count": config["n_shared_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_group_count": config["n_group"],
        "expert_group_used_count": config["topk_group"],
        "expert_weights_scale": config["routed_scaling_factor"],
        "expert_weights_norm": config["norm_topk_prob"],
        "expert_gating_func": 2,
    }


FORMS: dict[str, Form] = {
    "gpt2": Form(MODEL_ARCH.GPT2, gpt2),
    "qwen2": Form(MODEL_ARCH.QWEN2, common),
    "qwen3": Form(MODEL_ARCH.QWEN3, common),
    "gemma3": Form(MODEL_ARCH.GEMMA3, gemma3, marks=("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")),
    "mistral": Form(
        MODEL_ARCH.LLAMA,
        lambda c: common(c) | {"attention.sliding_window": c["sliding_window"]},
        marks=("<unk>", "<s>", "</s>"),
    ),
    "mixtral": Form(MODEL_ARCH.LLAMA, lambda c: common(c) | experts(c)),
    "gpt_oss": Form(MODEL_ARCH.GPT_OSS, gpt_oss, changes={"swiglu_limit": 7.0}),
    "deepseek_v3": Form(MODEL_ARCH.DEEPSEEK2, deepseek),
}


def neighbours(rows: Numbers, heads: int) -> Numbers:
    """Rotated pairs as files of the Llama kind have them."""
    return rows.reshape(heads, 2, -1, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def tensors_of(architecture: str, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, Numbers]:
    """The model's weights as the file has them."""
    form = FORMS[architecture]
    table = get_tensor_name_map(form.arch, len(tensors))
    found: dict[str, Numbers] = {}
    for name, tensor in tensors.items():
        numbers = tensor.numpy()
        layer = name.split(".")[2] if ".layers." in name or ".h." in name else ""
        if name == "lm_head.weight" and tensor.data_ptr() == tensors[next(iter(tensors))].data_ptr():
            continue
        if ".experts." in name:
            parts = _experts(architecture, name.rpartition(".")[2], numbers)
            found |= {f"blk.{layer}.ffn_{part}": value for part, value in parts.items()}
            continue
        if name.endswith("kv_b_proj.weight") and config.get("split", True):
            heads, content, rank = config["num_attention_heads"], config["qk_nope_head_dim"], config["kv_lora_rank"]
            both = numbers.reshape(heads, -1, rank)
            found[f"blk.{layer}.attn_k_b.weight"] = both[:, :content].swapaxes(1, 2)
            found[f"blk.{layer}.attn_v_b.weight"] = both[:, content:]
            continue
        stem, _, leaf = name.replace("e_score_correction_bias", "e_score_correction.bias").rpartition(".")
        if leaf == "sinks":
            stem, leaf = name, "weight"
        if architecture == "gpt2" and numbers.ndim == 2 and ".h." in name:
            numbers = numbers.T
        if form.arch == MODEL_ARCH.LLAMA and stem.endswith(("q_proj", "k_proj")):
            which = "num_attention_heads" if stem.endswith("q_proj") else "num_key_value_heads"
            numbers = neighbours(numbers, config[which])
        if architecture == "gemma3" and stem.endswith("norm"):
            numbers = numbers + np.float32(1)
        theirs = table.get_name(stem)
        assert theirs is not None, stem
        found[f"{theirs}.{leaf}"] = numbers
    return found


def _experts(architecture: str, leaf: str, numbers: Numbers) -> dict[str, Numbers]:
    kind = "bias" if leaf.endswith("bias") else "weight"
    if architecture == "gpt_oss":
        if leaf.startswith("gate_up"):
            gate, up = numbers[..., ::2], numbers[..., 1::2]
            parts = {"gate_exps": gate, "up_exps": up}
        else:
            parts = {"down_exps": numbers}
        return {f"{name}.{kind}": part.swapaxes(1, 2) if part.ndim == 3 else part for name, part in parts.items()}
    if leaf == "gate_up_proj":
        gate, up = np.split(numbers, 2, axis=1)
        return {"gate_exps.weight": gate, "up_exps.weight": up}
    return {"down_exps.weight": numbers}


def byte_level_tokens(size: int) -> dict[str, Any]:
    tokens = [*byte_alphabet(), "<|begin|>", "<|end|>", "he", "ll", "hell", "hello"]
    tokens += [f"<|spare-{at}|>" for at in range(size - len(tokens))]
    return {
        "model": "gpt2",
        "pre": "qwen2",
        "tokens": tokens,
        "token_type": [1] * 256 + [3, 3] + [1] * 4 + [3] * (size - 262),
        "merges": ["h e", "l l", "he ll", "hell o"],
        "bos_token_id": 256,
        "eos_token_id": 257,
        "add_bos_token": False,
    }


def sentencepiece_tokens(size: int, *marks: str) -> dict[str, Any]:
    """Every byte and a few pieces, after marks: for nothing known, for the beginning, and for the end."""
    first = len(marks)
    tokens = [*marks, *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["▁", "h", "e", "l", "o", "he", "ll", "hell", "hello", "▁hello", "w", "▁w", "3"]
    return {
        "model": "llama",
        "tokens": tokens[:size],
        "token_type": [3] * first + [6] * 256 + [1] * (size - 256 - first),
        "scores": [0.0] * (256 + first) + [-float(at) for at in range(size - 256 - first)],
        "bos_token_id": marks.index(next(mark for mark in marks if mark in ("<s>", "<bos>"))),
        "eos_token_id": marks.index(next(mark for mark in marks if mark in ("</s>", "<eos>"))),
        "add_bos_token": True,
    }


def put(writer: GGUFWriter, key: str, value: Any) -> None:
    match value:
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


Write = Callable[..., Path]


def small(catalog: Catalog, architecture: str) -> Model:
    """The small model, with what its kind of file cannot say as it is in the published ones."""
    model = catalog.small(architecture)
    changes = FORMS[architecture].changes
    if not changes:
        return model
    stated = model.entry.configuration.model_copy(update={"values": {**model.config, **changes}})
    return Model(
        model.entry.model_copy(update={"configuration": stated}), catalog.architectures[architecture], catalog.store
    )


def write_small(
    catalog: Catalog,
    where: Path,
    architecture: str,
    settings: dict[str, Any] | None = None,
    tensors: dict[str, Numbers | None] | None = None,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    **config: Any,
) -> Path:
    """Writes the small model of an architecture; `settings` and `tensors` replace entries (None removes one)."""
    form, model = FORMS[architecture], small(catalog, architecture)
    path = where / f"{architecture}.gguf"
    name = MODEL_ARCH_NAMES[form.arch]
    writer = GGUFWriter(path, name)
    stated = {f"{name}.{key}": value for key, value in form.settings(dict(model.config)).items()}
    size = model.architecture.sizes["vocab"]
    tokens = sentencepiece_tokens(size, *form.marks) if form.marks else byte_level_tokens(size)
    stated |= {f"tokenizer.ggml.{key}": value for key, value in tokens.items()}
    for key, value in (stated | (settings or {})).items():
        if value is not None:
            put(writer, key, value)
    weights = tensors_of(architecture, {**model.config, **config}, dict(untrained(model).tensors))
    write_tensors(writer, weights | (tensors or {}), kind)
    return path


@pytest.fixture
def write(catalog: Catalog, tmp_path: Path) -> Write:
    return partial(write_small, catalog, tmp_path)


@pytest.mark.parametrize("architecture", FORMS)
def test_a_file_gives_the_logits_of_its_weights(
    architecture: str, write: Write, catalog: Catalog, tmp_path: Path
) -> None:
    checkpoint = open_checkpoint(write(architecture), tmp_path)
    assert (checkpoint.architecture, checkpoint.format) == (architecture, "gguf")
    assert checkpoint.warnings == ()
    model = adopt(Catalog(catalog.store), f"mine-{architecture.replace('_', '-')}", checkpoint)
    own = small(catalog, architecture)
    assert model.architecture.sizes == own.architecture.sizes
    assert model.architecture.settings == pytest.approx(own.architecture.settings)
    before, after = Runner(own, untrained(own)), Runner(model, checkpoint)
    work = Pass(IDS, 0)
    first, again = before.forward(work, before.memory(12)), after.forward(work, after.memory(12))
    if architecture == "gemma3":  # one is added to its gains, and taken away again
        assert ((first - again).norm(dim=-1) / first.norm(dim=-1)).max() < 1e-5
    else:
        assert torch.equal(first, again)
    assert checkpoint.parameter_count == before.checkpoint.parameter_count


@pytest.mark.parametrize("architecture", ["mixtral", "gpt_oss"])
def test_a_file_of_fewer_bits_is_read_as_what_it_holds(
    architecture: str, write: Write, catalog: Catalog, tmp_path: Path
) -> None:
    checkpoint = open_checkpoint(write(architecture, kind=GGMLQuantizationType.F16), tmp_path)
    assert checkpoint.quantization == "F16"
    for name, tensor in untrained(small(catalog, architecture)).tensors.items():
        numbers = tensor.half().float() if tensor.ndim > 1 else tensor
        assert torch.equal(checkpoint.tensors[name], numbers), name


def test_one_part_of_several_is_refused(write: Write) -> None:
    with pytest.raises(CheckpointError, match="one of 3 parts") as caught:
        read(write("qwen2", {"split.count": 3}))
    assert "--merge" in caught.value.hint


def test_a_latent_that_is_not_split_is_read_as_well(write: Write, catalog: Catalog, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write("deepseek_v3", split=False), tmp_path)
    expected = untrained(catalog.small("deepseek_v3")).tensors
    assert all(torch.equal(tensor, expected[name]) for name, tensor in checkpoint.tensors.items())


@pytest.mark.parametrize("architecture", FORMS)
def test_the_names_that_pages_give_are_those_of_the_gguf_package(architecture: str, catalog: Catalog) -> None:
    table = get_tensor_name_map(FORMS[architecture].arch, 8)
    known = {theirs for _, theirs in table.mapping.values()}
    for path, node in catalog.small(architecture).graph.nodes.items():
        if isinstance(node.node, Parameter):
            alias = next(alias for alias in node.node.aliases if alias.of == "GGUF")
            first = alias.name.format(layer=1).split(", ")[0]
            assert first.rpartition(".")[0] in known, (path, first)


def test_a_mistral_without_a_window_is_run_as_llama(write: Write, catalog: Catalog, tmp_path: Path) -> None:
    from atlas.runtime.references.llama import Runner as MetaRunner

    checkpoint = open_checkpoint(write("mistral", {"llama.attention.sliding_window": None}), tmp_path)
    assert checkpoint.architecture == "llama"
    model = adopt(Catalog(catalog.store), "mine", checkpoint)
    ours, theirs = MetaRunner(model, checkpoint), Runner(catalog.small("mistral"), untrained(catalog.small("mistral")))
    work = Pass(IDS[:8], 0)  # within the window
    one, other = ours.forward(work, ours.memory(8)), theirs.forward(work, theirs.memory(8))
    assert ((one - other).norm(dim=-1) / other.norm(dim=-1)).max() < 1e-5


def test_an_unembedding_that_repeats_the_embedding_is_tied(write: Write, catalog: Catalog, tmp_path: Path) -> None:
    embedding = untrained(catalog.small("gpt2")).tensors["transformer.wte.weight"].numpy()
    checkpoint = open_checkpoint(write("gpt2", tensors={"output.weight": embedding}), tmp_path)
    assert checkpoint.config["tied_embeddings"] is True
    assert checkpoint.tensors["lm_head.weight"] is checkpoint.tensors["transformer.wte.weight"]


@pytest.mark.parametrize(
    ("architecture", "text", "ids"),
    [
        ("qwen3", "hello 33 \N{GRINNING FACE}<|end|>", [261]),
        ("mistral", "hello 33 \N{GRINNING FACE}</s>", [1, 268]),
    ],
)
def test_its_tokenizer_is_the_files(architecture: str, text: str, ids: list[int], write: Write, tmp_path: Path) -> None:
    path = write(architecture)
    first, again = open_checkpoint(path, tmp_path).tokenizer, open_checkpoint(path, tmp_path).tokenizer
    assert first.encode(text) == again.encode(text)
    assert first.encode(text)[: len(ids)] == ids
    assert first.written(first.encode(text)) == first.written(first.encode(text, add_bos=False)) == text
    assert first.prefix_space is (architecture == "mistral")
    assert not set(first.encode(text, add_bos=False)) & first.special_ids
    assert first.eos_ids == (257,) or first.eos_ids == (2,)


@pytest.mark.parametrize(
    ("architecture", "change", "says"),
    [
        ("qwen3", {"settings": {"general.architecture": None}}, "architecture"),
        ("qwen3", {"settings": {"qwen3.block_count": 4}}, "missing: blk.3.attn_norm.weight.* and 7 more"),
        ("qwen3", {"settings": {"qwen3.attention.key_length": 32}}, "value_length is not"),
        ("qwen3", {"settings": {"qwen3.embedding_length": 64}}, "misshapen: token_embd.weight"),
        ("qwen3", {"settings": {"qwen3.rope.scaling.type": "linear"}}, "scaled in a way .'linear'."),
        ("qwen3", {"settings": {"tokenizer.ggml.pre": "viking"}}, "pre-tokenizer 'viking' is none of"),
        ("qwen3", {"settings": {"tokenizer.ggml.model": "bert"}}, "of the kind 'bert'"),
        ("qwen3", {"settings": {"tokenizer.ggml.merges": None}}, "merges is not a list"),
        ("mistral", {"settings": {"tokenizer.ggml.scores": None}}, "no score for each of its 272 tokens"),
        ("mistral", {"settings": {"tokenizer.ggml.tokens": ["a"]}}, "it has 1 tokens"),
        ("qwen2", {"tensors": {"blk.1.attn_q.bias": None}}, "missing: blk.1.attn_q.bias"),
        ("qwen2", {"tensors": {"blk.1.attn_x.bias": np.ones(3, np.float32)}}, "extra: blk.1.attn_x.bias"),
        ("mixtral", {"settings": {"llama.expert_used_count": 9}}, "there are 5 experts"),
        ("deepseek_v3", {"settings": {"deepseek2.expert_gating_func": 1}}, "is not sigmoid"),
        ("gpt_oss", {"settings": {"gpt-oss.rope.scaling.type": "none"}}, "not by yarn"),
        ("gpt2", {"settings": {"gpt2.attention.head_count": 7}}, "7 heads do not divide"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    architecture: str, change: dict[str, Any], says: str, write: Write
) -> None:
    if "general.architecture" in change.get("settings", {}):
        path = write(architecture)
        path.write_bytes(path.read_bytes().replace(b"qwen3", b"quux3"))
        says = "of the architecture 'quux3', which is not read from GGUF files.*deepseek2, gemma3"
    else:
        path = write(architecture, **change)
    with pytest.raises(CheckpointError) as caught:
        read(path)
    assert re.search(says, str(caught.value)), str(caught.value)
    assert caught.value.hint


def test_what_is_not_read_is_said(write: Write) -> None:
    assert read(write("qwen3", {"qwen3.attention.clamp_kqv": 8.0})).warnings == [
        "The file also states qwen3.attention.clamp_kqv, which nothing here reads."
    ]
