"""A worker: what other libraries take for the same work, on the same weights: `python -m benchmarks.worker_peers NAME`.

Runs in an environment of its own (`peers.txt`), one process for each library, since some change torch for the whole
process. Each gets transformers' Llama with our weights, in eager attention, since a fused kernel has no attention
weights that could be kept. No hub is asked for anything.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.worker_pipe import Answer, serve, timed


@dataclass(frozen=True)
class Way:
    """One way to take a pass: the call that is timed, and how to read its logits and kept values from what it gives."""

    take: Callable[[], Any]
    logits: Callable[[Any], Any]
    kept: Callable[[Any], Iterable[Any]] = lambda _: ()


def weights_for_transformers(tensors: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Meta's names and pairs of features (2i, 2i + 1) as transformers' names and pairs (i, i + h/2)."""
    named = {
        "model.embed_tokens.weight": tensors["tok_embeddings.weight"],
        "model.norm.weight": tensors["norm.weight"],
        "lm_head.weight": tensors.get("output.weight", tensors["tok_embeddings.weight"]),
    }
    parts = {
        "attention.wv": "self_attn.v_proj",
        "attention.wo": "self_attn.o_proj",
        "feed_forward.w1": "mlp.gate_proj",
        "feed_forward.w3": "mlp.up_proj",
        "feed_forward.w2": "mlp.down_proj",
        "attention_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    for layer in range(config["n_layers"]):
        here, there = f"layers.{layer}", f"model.layers.{layer}"
        for letter, heads in (("q", config["n_heads"]), ("k", config["n_kv_heads"])):
            rows = tensors[f"{here}.attention.w{letter}.weight"]
            turned = rows.view(heads, -1, 2, rows.shape[-1]).transpose(1, 2).reshape(rows.shape)
            named[f"{there}.self_attn.{letter}_proj.weight"] = turned
        for ours, theirs in parts.items():
            named[f"{there}.{theirs}.weight"] = tensors[f"{here}.{ours}.weight"]
    return named


def llama(weights: str, config: Mapping[str, Any]) -> Any:
    """transformers' Llama with the weights of a converted checkpoint."""
    transformers, load_file = import_module("transformers"), import_module("safetensors.torch").load_file
    tensors = load_file(weights)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config["vocab_size"],
            hidden_size=config["dim"],
            intermediate_size=tensors["layers.0.feed_forward.w1.weight"].shape[0],
            num_hidden_layers=config["n_layers"],
            num_attention_heads=config["n_heads"],
            num_key_value_heads=config["n_kv_heads"],
            rms_norm_eps=config["norm_eps"],
            rope_parameters={"rope_type": "default", "rope_theta": config["rope_theta"]},
            max_position_embeddings=config["context_length"],
            tie_word_embeddings=config["tied_embeddings"],
            attn_implementation="eager",
        )
    )
    model.load_state_dict(weights_for_transformers(tensors, config), strict=True, assign=True)
    return model.requires_grad_(False).eval()


def transformers_ways(model: Any, ids: Any) -> dict[str, Way]:
    """The plain model."""
    return {"bare": Way(lambda: model(ids), lambda out: out.logits)}


def transformer_lens_ways(model: Any, ids: Any) -> dict[str, Way]:
    """`TransformerBridge` around the model: as it is, and with every hook point kept."""
    transformers = import_module("transformers")
    tokenizers, bridge = import_module("tokenizers"), import_module("transformer_lens.model_bridge").TransformerBridge
    with tempfile.TemporaryDirectory() as folder:  # it asks for a tokenizer that can be opened again by its name
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0}, unk_token="<s>"))
        special = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), "<s>")
        transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
        model.config.save_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        bridged = bridge.boot_transformers("local-llama", hf_model=model, tokenizer=tokenizer, device="cpu")
    return {
        "bare": Way(lambda: bridged(ids), lambda out: out),
        "cache": Way(lambda: bridged.run_with_cache(ids), lambda out: out[0], lambda out: out[1].values()),
    }


def nnsight_ways(model: Any, ids: Any) -> dict[str, Way]:
    """`NNsight` around the model: the value of every operation of every layer, or of every module alone."""
    nnsight = import_module("nnsight")
    watched = nnsight.NNsight(model)

    def save() -> Any:
        with watched.trace(ids):
            kept = nnsight.save([])
            kept.append(watched.model.embed_tokens.output)
            for layer in watched.model.layers:
                for operation in operations_of(layer):
                    kept.append(operation.output)
            kept.append(watched.model.norm.output)
            kept.append(watched.lm_head.output)
        return kept

    def cache() -> Any:
        with watched.trace(ids) as tracer:
            kept = tracer.cache()
        return kept  # noqa: RET504 - the block runs in a frame of its own

    def outputs(kept: Any) -> list[Any]:
        return [kept[path].output for path in kept.keys()]  # noqa: SIM118 - no dictionary: it iterates otherwise

    return {
        "save": Way(save, lambda kept: kept[-1], lambda kept: kept),
        "cache": Way(cache, lambda kept: outputs(kept)[-1].logits, outputs),
    }


def operations_of(layer: Any) -> Iterator[Any]:
    """nnsight's handles of all operations of a layer, those of its parts included, in the order of execution."""
    parts = {
        "self_input_layernorm": layer.input_layernorm,
        "self_self_attn": layer.self_attn,
        "self_post_attention_layernorm": layer.post_attention_layernorm,
        "self_mlp": layer.mlp,
    }
    functions = ("apply_rotary_pos_emb", "rotate_half", "attention_interface", "repeat_kv")

    def inside(source: Any) -> Iterator[Any]:
        for operation in source:
            name = operation.name.rpartition("_")[0]
            if name in parts:
                yield from inside(parts[name].source)
            elif name in functions and operation.name != "attention_interface_0":  # the first is an assignment
                yield from inside(operation.source)
            yield operation

    return inside(layer.source)


def torchlens_ways(model: Any, ids: Any) -> dict[str, Way]:
    """`torchlens.trace`, which keeps the result of every operation."""
    torchlens = import_module("torchlens")

    def logits(found: Any) -> Any:
        return found[found.output_layers[0]].out

    def kept(found: Any) -> Iterator[Any]:
        return (layer.out for layer in found.layer_list)

    return {"trace": Way(lambda: torchlens.trace(model, ids), logits, kept)}


LIBRARIES: dict[str, tuple[str, Callable[[Any, Any], dict[str, Way]]]] = {
    "transformers": ("transformers", transformers_ways),
    "transformer_lens": ("transformer-lens", transformer_lens_ways),
    "nnsight": ("nnsight", nnsight_ways),
    "torchlens": ("torchlens", torchlens_ways),
}


def tensors_in(kept: Any, torch: Any) -> Iterator[Any]:
    """All tensors in lists, tuples and mappings."""
    if isinstance(kept, torch.Tensor):
        yield kept
    elif isinstance(kept, list | tuple):
        for item in kept:
            yield from tensors_in(item, torch)
    elif hasattr(kept, "values"):
        for item in kept.values():
            yield from tensors_in(item, torch)


class Peer:
    """One library with the model in it."""

    def __init__(self, name: str) -> None:
        self._distribution, self._make = LIBRARIES[name]
        self._ways: dict[str, Way] = {}

    def open(self, weights: str, config: Mapping[str, Any], tokens: list[int]) -> Answer:
        """Build the model, and take each way once: its version, what it keeps, and the likeliest next token."""
        os.environ["HF_HUB_OFFLINE"] = "1"
        self._torch = import_module("torch")
        self._ways = self._make(llama(weights, config), self._torch.tensor([tokens]))
        told: Answer = {"version": version(self._distribution), "torch": self._torch.__version__, "ways": {}}
        for name, way in self._ways.items():
            result = self._take(way)
            last, kept = way.logits(result)[0, -1], list(tensors_in(list(way.kept(result)), self._torch))
            storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in kept}
            told["ways"][name] = {
                "next": int(last.argmax()),
                "logit": float(last.max()),
                "tensors": len(kept),
                "bytes": sum(storages.values()),
            }
            del result, kept, last
        gc.collect()
        gc.freeze()
        return told

    def take(self, way: str) -> Answer:
        """Take one pass in one way."""
        return timed(lambda: self._take(self._ways[way]))[1]

    def _take(self, way: Way) -> Any:
        with self._torch.no_grad():
            return way.take()


def main() -> None:
    peer = Peer(sys.argv[1])
    serve({"open": peer.open, "take": peer.take})


if __name__ == "__main__":
    main()
