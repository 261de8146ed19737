"""A small random model of each architecture, saved as transformers saves models, opened as a reader would open it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from atlas.catalog import Catalog
from atlas.errors import CheckpointError
from atlas.runtime.adoption import adopt
from atlas.runtime.checkpoints import open_checkpoint
from atlas.runtime.distributed.shares import WeightShare
from atlas.runtime.placement import Placement
from atlas.runtime.references.base import Pass
from atlas.runtime.references.hugging_face import Runner
from atlas.runtime.tokens import byte_alphabet
from atlas.runtime.untrained import untrained

ARCHITECTURES = ("gpt2", "mistral", "mixtral", "qwen2", "qwen3", "gemma3", "gpt_oss", "deepseek_v3")
IDS = (5, 100, 42, 7, 7, 200, 19, 3, 250, 11, 12, 13)

Save = Callable[..., Path]


def write_tokenizer(directory: Path, size: int) -> None:
    """A token for each byte and two marks, the second of them the end."""
    vocabulary = {character: byte for byte, character in enumerate(byte_alphabet())}
    library = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken("<|begin|>"), AddedToken("<|end|>")])
    library.save(str(directory / "tokenizer.json"))
    settings = {"bos_token": "<|begin|>", "eos_token": {"content": "<|end|>"}, "add_bos_token": True}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    assert size >= 258


def save_small(catalog: Catalog, where: Path, architecture: str, shard: str = "1GB", **changes: Any) -> Path:
    """Saves the small model of an architecture; `shard` splits its weights."""
    model = catalog.small(architecture)
    runner = Runner(model, untrained(model))
    directory = where / architecture
    runner._transformer.save_pretrained(directory, max_shard_size=shard)
    write_tokenizer(directory, model.architecture.sizes["vocab"])
    config = json.loads((directory / "config.json").read_text())
    kept = {name: value for name, value in (config | changes).items() if value != "absent"}
    (directory / "config.json").write_text(json.dumps(kept))
    return directory


@pytest.fixture
def save(catalog: Catalog, tmp_path: Path) -> Save:
    return partial(save_small, catalog, tmp_path)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_saved_model_comes_back_bit_for_bit(architecture: str, save: Save, catalog: Catalog, tmp_path: Path) -> None:
    directory = save(architecture)
    checkpoint = open_checkpoint(directory, tmp_path)
    assert (checkpoint.architecture, checkpoint.format) == (architecture, "safetensors")
    own = Catalog(catalog.store)
    model = adopt(own, f"mine-{architecture.replace('_', '-')}", checkpoint)
    small = catalog.small(architecture)
    assert model.architecture.sizes == small.architecture.sizes
    assert model.architecture.settings == small.architecture.settings
    before, after = Runner(small, untrained(small)), Runner(model, checkpoint)
    work = Pass(IDS, 0)
    first, again = before.forward(work, before.memory(12)), after.forward(work, after.memory(12))
    assert torch.equal(first, again)
    assert checkpoint.parameter_count == before.checkpoint.parameter_count


def test_its_own_tokenizer_is_used(save: Save, tmp_path: Path) -> None:
    tokenizer = open_checkpoint(save("gpt2"), tmp_path).tokenizer
    text = "Zürich \N{GRINNING FACE} <|end|>"
    ids = tokenizer.encode(text)
    assert ids[0] == tokenizer.bos_id == 256
    assert 257 not in ids  # what a person types is text
    assert tokenizer.decode(ids[1:]) == text
    assert (tokenizer.special_ids, tokenizer.vocab_size) == (frozenset({256, 257}), 272)
    assert tokenizer.label(257) == "<|end|>"
    assert tokenizer.label(270) == "<|unused-270|>"
    assert tokenizer.encode("a", add_bos=False) == [97 - 33 + 33]


def test_shards_are_read_together_and_missing_ones_named(save: Save, tmp_path: Path) -> None:
    directory = save("qwen3", shard="60KB")
    shards = sorted(directory.glob("model-*.safetensors"))
    assert len(shards) > 2
    assert len(open_checkpoint(directory, tmp_path).files) == len(shards) + 2
    shards[1].unlink()
    with pytest.raises(CheckpointError, match=f"lacks 1 of {len(shards)} files of weights: {shards[1].name}"):
        open_checkpoint(directory, tmp_path)


def _broken(directory: Path, how: str) -> None:
    weights = directory / "model.safetensors"
    match how:
        case "no configuration":
            (directory / "config.json").unlink()
        case "no JSON":
            (directory / "config.json").write_text("{")
        case "no tokenizer":
            (directory / "tokenizer.json").unlink()
        case "a strange tokenizer":
            (directory / "tokenizer.json").write_text('{"model": {"type": "Magic"}}')
        case "pickles":
            weights.rename(directory / "pytorch_model.bin")
        case "no weights":
            weights.unlink()
        case "cut short":
            weights.write_bytes(weights.read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("no configuration", "has no config.json"),
        ("no JSON", "cannot be read"),
        ("no tokenizer", "has no tokenizer.json"),
        ("a strange tokenizer", "tokenizer.json cannot be read"),
        ("pickles", "pickles .* can run code"),
        ("no weights", "has no weights"),
        ("cut short", "is no whole safetensors file"),
    ],
)
def test_a_directory_that_lacks_something_says_what(save: Save, tmp_path: Path, how: str, says: str) -> None:
    directory = save("gpt2")
    _broken(directory, how)
    with pytest.raises(CheckpointError, match=says) as caught:
        open_checkpoint(directory, tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"auto_map": {"AutoModel": "modeling_own.OwnModel"}}, r"code of its own .*modeling_own.OwnModel"),
        ({"architectures": ["NobodyKnowsMe"]}, "which transformers .* does not know"),
        ({"architectures": ["GPT2ForSequenceClassification"]}, "which is no model that continues text"),
        ({"architectures": ["pipeline"]}, "which transformers .* does not know"),
        ({"architectures": "absent"}, "does not say which class"),
        ({"n_embd": 52}, "not those that its configuration asks for: .*misshapen"),
        ({"n_layer": 4}, "not those that its configuration asks for: missing: transformer.h.3"),
        ({"activation_function": "relu"}, "activation_function is 'relu', not 'gelu_new'"),
        ({"scale_attn_by_inverse_layer_idx": True}, "only False is described"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    save: Save, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(CheckpointError, match=says):
        open_checkpoint(save("gpt2", **changes), tmp_path)


def test_rotary_positions_that_nobody_described_are_refused(save: Save, tmp_path: Path) -> None:
    stretched = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    with pytest.raises(CheckpointError, match="rope_parameters is"):
        open_checkpoint(save("qwen3", rope_parameters=stretched), tmp_path)


def test_what_does_not_fit_into_memory_is_refused_first(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atlas.runtime import hugging_face_directory

    monkeypatch.setattr(hugging_face_directory, "_numbers_in", lambda _: 10**15)
    with pytest.raises(CheckpointError, match=r"needs 4000000.0 GB in float32 on cpu, \d+\.\d GB free"):
        open_checkpoint(save("gpt2"), tmp_path)


# --- Llama, which Meta's reference runs


@pytest.fixture
def llama(tmp_path: Path) -> Callable[..., Path]:
    """A small random Llama, saved by transformers; `changes` are to its configuration."""
    from transformers import LlamaConfig, LlamaForCausalLM

    def saved(**changes: Any) -> Path:
        settings: dict[str, Any] = {
            "vocab_size": 272,
            "hidden_size": 64,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "attn_implementation": "eager",
        }
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(**(settings | changes))).eval()
        directory = tmp_path / "llama"
        model.save_pretrained(directory)
        write_tokenizer(directory, 272)
        with torch.no_grad():
            torch.save(model(torch.tensor([IDS])).logits, tmp_path / "logits.pt")
        return directory

    return saved


@pytest.mark.parametrize("tied", [True, False])
def test_a_llama_directory_is_run_by_the_reference_in_its_own_order(
    llama: Callable[..., Path], catalog: Catalog, tmp_path: Path, tied: bool
) -> None:
    from atlas.runtime.references.llama import Runner as MetaRunner

    checkpoint = open_checkpoint(llama(tie_word_embeddings=tied), tmp_path)
    assert (checkpoint.architecture, checkpoint.config["tied_embeddings"]) == ("llama", tied)
    model = adopt(Catalog(catalog.store), "my-llama", checkpoint)
    runner = MetaRunner(model, checkpoint)
    ours = runner.forward(Pass(IDS, 0), runner.memory(len(IDS)))[0]
    theirs = torch.load(tmp_path / "logits.pt", weights_only=True)[0]
    assert ((ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)).max() < 1e-5


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_of_two_reads_its_share_of_a_llama_directory(
    llama: Callable[..., Path], catalog: Catalog, tmp_path: Path, rank: int
) -> None:
    directory, share = llama(), WeightShare.of_rank(catalog["smollm2-135m"], rank, 2)
    whole = open_checkpoint(directory, tmp_path)
    own = open_checkpoint(directory, tmp_path, placement=Placement(share=share))
    assert own.sha256 == whole.sha256
    assert own.tensors.keys() == whole.tensors.keys()
    for name, tensor in whole.tensors.items():
        assert torch.equal(own.tensors[name], tensor[share.index(name, tensor.shape)]), name
    assert own.nbytes < 0.51 * whole.nbytes


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"attention_bias": True}, "attention_bias is True"),
        ({"head_dim": 32}, "head_dim is 32"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "of the type 'linear'"),
        (
            {
                "rope_parameters": {
                    **{"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 2.0},
                    **{"high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
                }
            },
            "low_freq_factor is 2.0, not 1.0",
        ),
    ],
)
def test_a_llama_that_the_reference_cannot_compute_is_refused(
    llama: Callable[..., Path], tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(CheckpointError, match=says):
        open_checkpoint(llama(**changes), tmp_path)


@pytest.mark.parametrize(("factor", "said"), [(8.0, 0), (32.0, 1)])
def test_another_factor_of_scaled_rotary_positions_is_said(
    llama: Callable[..., Path], tmp_path: Path, factor: float, said: int
) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    opened = open_checkpoint(llama(rope_parameters=rope | {"original_max_position_embeddings": 8192}), tmp_path)
    assert opened.config["use_scaled_rope"] is True
    sentence = "The configuration scales RoPE by 32; the reference code, which runs here, by 8."
    assert opened.warnings == (sentence,) * said


def test_a_llama_that_lacks_weights_is_refused(llama: Callable[..., Path], tmp_path: Path) -> None:
    directory = llama()
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(CheckpointError, match=r"missing: layers.2.attention_norm.weight.* and 5 more"):
        open_checkpoint(directory, tmp_path)


def test_what_is_packed_in_its_file_is_counted_as_it_will_be_in_memory(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atlas.runtime import hugging_face_directory

    monkeypatch.setattr(hugging_face_directory, "_numbers_in", lambda _: 1000)  # as if most were packed
    monkeypatch.setattr("atlas.runtime.placement.free_memory", lambda _: 100_000)
    with pytest.raises(CheckpointError, match=r"needs 0.3 MB in float32 on cpu, 0.1 MB free"):
        open_checkpoint(save("qwen3"), tmp_path)
