"""GGUF files of any family that is declared here: recognised by `general.architecture`, matched tensor by tensor.

Which tensor of the file is which parameter stands in the declarations (their GGUF names); what is here is how each
family states its configuration, and where its tensors are laid out otherwise. Llama itself is run by Meta's reference
code, and has a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from atlas.catalog import found_architectures
from atlas.errors import AtlasError, CheckpointError
from atlas.graph.nodes import Parameter as Declared
from atlas.graph.resolve import Graph, Resolved
from atlas.runtime import gguf_layouts as layouts
from atlas.runtime import gguf_llama
from atlas.runtime.conversion import Conversion, Parameter
from atlas.runtime.gguf_facts import Facts, quantization, shown
from atlas.runtime.gguf_file import GgufFile, read_header
from atlas.runtime.gguf_tokens import tokenizer_of
from atlas.runtime.llama_layout import Config, mismatches

SIGMOID = 2  # expert_gating_func
DEEPEST_GEMMA3 = 62  # layers of the one size whose scores are scaled by another number than head_dim
PLAIN = layouts.Layout()


@dataclass(frozen=True)
class Family:
    """How files of one `general.architecture` are read. `id` is that of the declaration.

    `reads` are the settings that are understood; another one is said to the reader. `place` gives the layout of a
    parameter where it is not the plain one.
    """

    id: str
    configuration: Callable[[Facts], Config]
    place: Callable[[Resolved, Config], layouts.Layout | None]
    reads: frozenset[str]


def read(path: Path) -> Conversion:
    """Reads and checks a file; its numbers are read when the conversion is carried out.

    Raises CheckpointError naming what is wrong; OSError if the file cannot be read.
    """
    file = read_header(path)
    parts = file.metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise CheckpointError(
            f"{path} is one of {parts} parts of a model.", "Join them first: llama-gguf-split --merge FIRST WHOLE."
        )
    architecture = file.metadata.get("general.architecture")
    family = FAMILIES.get(architecture) if isinstance(architecture, str) else None
    if architecture == "llama":
        if file.metadata.get("llama.expert_count", 0):
            family = FAMILIES["llama, with experts"]
        elif file.metadata.get("llama.attention.sliding_window", 0):
            family = FAMILIES["llama, with a window"]
        else:
            return gguf_llama.read(path, file)
    if family is None:
        known = sorted({"llama", *(name for name in FAMILIES if "," not in name)})
        raise CheckpointError(
            f"{path} is of the architecture {shown(architecture)}, which is not read from GGUF files.",
            f"Choose a file of one of these: {', '.join(known)}; or a Hugging Face directory of the model.",
        )
    return _conversion(Facts(file), family)


def _conversion(facts: Facts, family: Family) -> Conversion:
    file, path = facts.file, facts.path
    _refuse_scaling(facts, family)
    config = family.configuration(facts)
    tied = _is_tied(file)
    config |= {"tie_word_embeddings": tied}
    try:
        graph = Graph(found_architectures()[family.id].declare(config))
    except AtlasError as error:
        raise CheckpointError(f"{path} cannot be used: {error.detail}", error.hint) from error
    parameters, expected, ties = _parameters(file, family, graph, config)
    found = {name: entry.shape for name, entry in file.tensors.items() if not _is_computed(file, name, ties)}
    if wrong := mismatches(expected, found):
        raise CheckpointError(
            f"The tensors of {path} are not those of its configuration. {'; '.join(wrong)}.",
            "Choose a plain file of the model: no adapter, no images.",
        )
    prefix = f"{file.metadata['general.architecture']}."
    unread = sorted(
        key for key in file.metadata if key.startswith(prefix) and key.removeprefix(prefix) not in family.reads
    )
    warnings = [f"The file also states {', '.join(unread)}, which nothing here reads."] if unread else []
    return Conversion(
        architecture=family.id,
        config=config | {"tied_embeddings": tied},
        quantization=quantization(file),
        parameters=parameters,
        tokenizer=tokenizer_of(facts, int(config["vocab_size"])),
        warnings=warnings,
        tied=ties,
    )


def _parameters(
    file: GgufFile, family: Family, graph: Graph, config: Config
) -> tuple[list[Parameter], dict[str, tuple[int, ...]], dict[str, str]]:
    """The parameters of a declaration, the tensors of the file that they are made of, and which are tied to which."""
    parameters: list[Parameter] = []
    expected: dict[str, tuple[int, ...]] = {}
    ties: dict[str, str] = {}
    seen: dict[tuple[str, ...], str] = {}
    layers = graph.architecture.sizes["layers"]
    for node in graph.nodes.values():
        if not isinstance(node.node, Declared):
            continue
        alias = next((alias for alias in node.node.aliases if alias.of == "GGUF"), None)
        assert alias is not None, f"{node.path} has no GGUF name"
        shape = tuple(extent.size or 0 for extent in node.shape["full"] or ())
        transposed = layouts.Transposed() if alias.layout == "transposed" else None
        for layer in range(layers) if node.in_blocks else (None,):
            if not node.exists_in(layer):
                continue
            theirs = _names(alias.name.format(layer=layer))
            layout = family.place(node, config) or transposed or PLAIN
            if node.path.endswith("/key-value-weight") and theirs[0] not in file.tensors:
                theirs = tuple(theirs[0].replace("attn_kv_b", part) for part in ("attn_k_b", "attn_v_b"))
                layout = layouts.SplitLatent(int(config["num_attention_heads"]), int(config["qk_nope_head_dim"]))
            ours = node.node.weight.format(layer=layer)
            if theirs in seen:
                ties[ours] = seen[theirs]
                continue
            seen[theirs] = ours
            expected |= dict(zip(theirs, layout.shapes(shape), strict=True))
            parameters.append(Parameter(ours, shape, partial(layout.numbers, file, theirs, shape)))
    return parameters, expected, ties


def _names(alias: str) -> tuple[str, ...]:
    """`blk.0.ffn_gate_exps.weight, ffn_up_exps.weight` as whole names."""
    first, *others = alias.split(", ")
    block = first[: first.rindex(".", 0, first.rindex("."))] if others else ""
    return (first, *(f"{block}.{other}" for other in others))


def _is_tied(file: GgufFile) -> bool:
    """Whether the unembedding is the embedding: not in the file, or the same numbers once more."""
    one, other = file.tensors.get("token_embd.weight"), file.tensors.get("output.weight")
    if one is None or other is None or one.shape != other.shape:
        return other is None
    pieces = zip(file.numbers("token_embd.weight"), file.numbers("output.weight"), strict=True)
    return all(np.array_equal(a, b) for a, b in pieces)


def _is_computed(file: GgufFile, name: str, ties: Mapping[str, str]) -> bool:
    """Whether a tensor of the file is no parameter: a copy of a tied one, or factors of one for the rotation."""
    if name == "rope_freqs.weight":
        return all(bool(np.all(piece == 1)) for piece in file.numbers(name))
    return name == "output.weight" and bool(ties)


def _refuse_scaling(facts: Facts, family: Family) -> None:
    prefix = facts.file.metadata["general.architecture"]
    kind = facts.file.metadata.get(f"{prefix}.rope.scaling.type", "none")
    if kind != "none" and "rope.scaling.type" not in family.reads:
        facts.refuse(f"its RoPE is scaled in a way ({shown(kind)}) that {family.id} is not described with")


# --- configurations, by the names that declarations use


def _vocabulary(facts: Facts) -> int:
    embedding = facts.file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        facts.refuse("it has no token embedding")
    return embedding.shape[0]


def _common(facts: Facts) -> Config:
    """What nearly all families state in the same way."""
    key = f"{facts.file.metadata['general.architecture']}."
    dim = facts.integer(f"{key}embedding_length", low=2, high=1 << 20)
    heads = facts.integer(f"{key}attention.head_count", high=1 << 12)
    kv_heads = facts.integer(f"{key}attention.head_count_kv", heads, high=1 << 12)
    if heads % kv_heads:
        facts.refuse(f"{kv_heads} key heads do not divide {heads} query heads")
    head = facts.integer(f"{key}attention.key_length", max(2, dim // heads), high=1 << 16)
    if facts.integer(f"{key}attention.value_length", head, high=1 << 16) != head:
        facts.refuse(f"{key}attention.value_length is not {key}attention.key_length, {head}")
    if head % 2 or facts.integer(f"{key}rope.dimension_count", head, high=1 << 16) != head:
        facts.refuse(f"{key}rope.dimension_count is not the size of a head, {head}, or that is odd")
    return {
        "vocab_size": _vocabulary(facts),
        "hidden_size": dim,
        "intermediate_size": facts.integer(f"{key}feed_forward_length"),
        "num_hidden_layers": facts.integer(f"{key}block_count", high=len(facts.file.tensors)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head,
        "max_position_embeddings": facts.integer(f"{key}context_length", high=1 << 30),
        "context_length": facts.integer(f"{key}context_length", high=1 << 30),
        "rms_norm_eps": facts.positive(f"{key}attention.layer_norm_rms_epsilon"),
        "rope_theta": facts.positive(f"{key}rope.freq_base", 10000.0),
    }


COMMON = frozenset(
    {
        *("context_length", "embedding_length", "feed_forward_length", "block_count", "vocab_size"),
        *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
        *("attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.freq_base", "expert_count"),
    }
)


def _gpt2(facts: Facts) -> Config:
    dim = facts.integer("gpt2.embedding_length", low=2, high=1 << 20)
    heads = facts.integer("gpt2.attention.head_count", high=1 << 12)
    if dim % heads:
        facts.refuse(f"{heads} heads do not divide d_model = {dim}")
    return {
        "vocab_size": _vocabulary(facts),
        "n_positions": facts.integer("gpt2.context_length", high=1 << 30),
        "context_length": facts.integer("gpt2.context_length", high=1 << 30),
        "n_embd": dim,
        "n_layer": facts.integer("gpt2.block_count", high=len(facts.file.tensors)),
        "n_head": heads,
        "n_inner": facts.integer("gpt2.feed_forward_length", 4 * dim),
        "layer_norm_epsilon": facts.positive("gpt2.attention.layer_norm_epsilon"),
    }


def _plain(facts: Facts) -> Config:
    return {name: value for name, value in _common(facts).items() if name != "head_dim"}


def _mistral(facts: Facts) -> Config:
    return _common(facts) | {"sliding_window": facts.integer("llama.attention.sliding_window", high=1 << 30)}


def _mixtral(facts: Facts) -> Config:
    return _common(facts) | _experts(facts, "llama")


def _experts(facts: Facts, key: str) -> Config:
    count, used = facts.integer(f"{key}.expert_count"), facts.integer(f"{key}.expert_used_count")
    if used > count:
        facts.refuse(f"{key}.expert_used_count is {used}, and there are {count} experts")
    return {"num_local_experts": count, "num_experts_per_tok": used}


def _gemma3(facts: Facts) -> Config:
    config = _common(facts)
    if "gemma3.attention.scale" in facts.file.metadata:
        scalar = 1 / facts.positive("gemma3.attention.scale") ** 2
    elif config["num_hidden_layers"] == DEEPEST_GEMMA3:
        scalar = config["hidden_size"] / config["num_attention_heads"]
    else:
        scalar = config["head_dim"]
    return config | {
        "sliding_window": facts.integer("gemma3.attention.sliding_window", high=1 << 30),
        "sliding_window_pattern": facts.integer("gemma3.attention.sliding_window_pattern", 6),
        "query_pre_attn_scalar": round(scalar),
        "rope_local_theta": facts.positive("gemma3.rope.freq_base_swa", 10000.0),
    }


def _gpt_oss(facts: Facts) -> Config:
    key = "gpt-oss.rope.scaling."
    if facts.file.metadata.get(f"{key}type") != "yarn":
        facts.refuse(f"its RoPE is scaled by {shown(facts.file.metadata.get(f'{key}type'))}, not by yarn")
    expert = facts.integer("gpt-oss.expert_feed_forward_length", 0, low=0)
    config = _common(facts) | _experts(facts, "gpt-oss")
    return config | {
        "intermediate_size": expert or config["intermediate_size"],
        "sliding_window": facts.integer("gpt-oss.attention.sliding_window", high=1 << 30),
        "factor": facts.positive(f"{key}factor"),
        "original_max_position_embeddings": facts.integer(f"{key}original_context_length", high=1 << 30),
        "beta_fast": facts.positive(f"{key}yarn_beta_fast", 32.0),
        "beta_slow": facts.positive(f"{key}yarn_beta_slow", 1.0),
        "truncate": False,
    }


def _deepseek(facts: Facts) -> Config:
    key = "deepseek2."
    if facts.integer(f"{key}expert_gating_func", 0, low=0) != SIGMOID:
        facts.refuse(f"{key}expert_gating_func is not sigmoid, and DeepSeek-V3 alone is described")
    heads = facts.integer(f"{key}attention.head_count", high=1 << 12)
    position = facts.integer(f"{key}rope.dimension_count", low=2, high=1 << 16)
    length = facts.integer(f"{key}attention.key_length", high=1 << 16)
    value = facts.integer(f"{key}attention.value_length", high=1 << 16)
    # Newer files state what is cached as if it were one head's, and what one head has beside it.
    length = facts.integer(f"{key}attention.key_length_mla", length, high=1 << 16)
    value = facts.integer(f"{key}attention.value_length_mla", value, high=1 << 16)
    if length <= position or position % 2:
        facts.refuse(f"keys of {length} have no room for {position} rotated features, or those are odd")
    layers = facts.integer(f"{key}block_count", high=len(facts.file.tensors))
    experts = _experts(facts, "deepseek2")
    return {
        "vocab_size": _vocabulary(facts),
        "hidden_size": facts.integer(f"{key}embedding_length", low=2, high=1 << 20),
        "intermediate_size": facts.integer(f"{key}feed_forward_length"),
        "moe_intermediate_size": facts.integer(f"{key}expert_feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "n_shared_experts": facts.integer(f"{key}expert_shared_count"),
        "n_routed_experts": experts["num_local_experts"],
        "num_experts_per_tok": experts["num_experts_per_tok"],
        "routed_scaling_factor": facts.positive(f"{key}expert_weights_scale"),
        "norm_topk_prob": facts.flag(f"{key}expert_weights_norm", True),
        "n_group": facts.integer(f"{key}expert_group_count", 8),
        "topk_group": facts.integer(f"{key}expert_group_used_count", 4),
        "first_k_dense_replace": facts.integer(f"{key}leading_dense_block_count", low=0, high=layers),
        "q_lora_rank": facts.integer(f"{key}attention.q_lora_rank"),
        "kv_lora_rank": facts.integer(f"{key}attention.kv_lora_rank"),
        "qk_rope_head_dim": position,
        "qk_nope_head_dim": length - position,
        "v_head_dim": value,
        "max_position_embeddings": facts.integer(f"{key}context_length", high=1 << 30),
        "context_length": facts.integer(f"{key}context_length", high=1 << 30),
        "rms_norm_eps": facts.positive(f"{key}attention.layer_norm_rms_epsilon"),
        "rope_theta": facts.positive(f"{key}rope.freq_base", 10000.0),
        "rope_interleave": True,
    }


# --- where parameters are laid out otherwise


def _nowhere(_node: Resolved, _config: Config) -> layouts.Layout | None:
    return None


def _as_llama(node: Resolved, config: Config) -> layouts.Layout | None:
    """Files of the Llama kind have rotated pairs as neighbours; the models of transformers have them a half apart."""
    heads = {"query-weight": "num_attention_heads", "key-weight": "num_key_value_heads"}.get(
        node.path.rpartition("/")[2]
    )
    return layouts.Halves(int(config[heads])) if heads else _joined(node, config)


def _joined(node: Resolved, _config: Config) -> layouts.Layout | None:
    return layouts.Joined() if node.path.endswith("experts/gate-up-weight") else None


def _larger_gains(node: Resolved, _config: Config) -> layouts.Layout | None:
    return layouts.MinusOne() if node.path.endswith("/gain") else None


def _in_turn(node: Resolved, _config: Config) -> layouts.Layout | None:
    leaf = node.path.partition("experts/")[2]
    return {
        "gate-up-weight": layouts.Interleaved(),
        "gate-up-bias": layouts.InterleavedBias(),
        "down-weight": layouts.TransposedExperts(),
    }.get(leaf)


YARN = frozenset(
    f"rope.scaling.{name}" for name in ("type", "factor", "original_context_length", "yarn_beta_fast", "yarn_beta_slow")
)
FAMILIES: Mapping[str, Family] = {
    "gpt2": Family("gpt2", _gpt2, _nowhere, COMMON | {"attention.layer_norm_epsilon"}),
    "qwen2": Family("qwen2", _plain, _nowhere, COMMON),
    "qwen3": Family("qwen3", _common, _nowhere, COMMON),
    "gemma3": Family(
        "gemma3",
        _gemma3,
        _larger_gains,
        COMMON
        | {"attention.sliding_window", "attention.sliding_window_pattern", "attention.scale", "rope.freq_base_swa"},
    ),
    "llama, with a window": Family("mistral", _mistral, _as_llama, COMMON | {"attention.sliding_window"}),
    "llama, with experts": Family("mixtral", _mixtral, _as_llama, COMMON | {"expert_used_count"}),
    "gpt-oss": Family(
        "gpt_oss",
        _gpt_oss,
        _in_turn,
        COMMON | YARN | {"expert_used_count", "expert_feed_forward_length", "attention.sliding_window"},
    ),
    "deepseek2": Family(
        "deepseek_v3",
        _deepseek,
        _joined,
        COMMON
        | {f"expert_{name}" for name in ("used_count", "shared_count", "feed_forward_length", "group_count")}
        | {f"expert_{name}" for name in ("group_used_count", "weights_scale", "weights_norm", "gating_func")}
        | {"leading_dense_block_count", "attention.q_lora_rank", "attention.kv_lora_rank"}
        | {"attention.key_length_mla", "attention.value_length_mla"},
    ),
}
"""By `general.architecture`; what a comma follows is what tells apart files of the same one."""
