"""Our weights under the names and in the order of transformers."""

from __future__ import annotations

import torch

from benchmarks.worker_peers import tensors_in, weights_for_transformers

DIM, HEADS, KV_HEADS, D_MLP, WORDS = 8, 2, 1, 12, 5


def test_every_weight_of_the_default_kind_of_model_has_its_place() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape)

    tensors = {"tok_embeddings.weight": random(WORDS, DIM), "norm.weight": random(DIM)}
    half = DIM * KV_HEADS // HEADS
    for layer in range(2):
        shapes = {
            "attention.wq": (DIM, DIM),
            "attention.wk": (half, DIM),
            "attention.wv": (half, DIM),
            "attention.wo": (DIM, DIM),
            "feed_forward.w1": (D_MLP, DIM),
            "feed_forward.w2": (DIM, D_MLP),
            "feed_forward.w3": (D_MLP, DIM),
            "attention_norm": (DIM,),
            "ffn_norm": (DIM,),
        }
        tensors |= {f"layers.{layer}.{name}.weight": random(*shape) for name, shape in shapes.items()}
    named = weights_for_transformers(tensors, {"n_layers": 2, "n_heads": HEADS, "n_kv_heads": KV_HEADS})
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=DIM,
            intermediate_size=D_MLP,
            num_hidden_layers=2,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
        )
    )
    model.load_state_dict(named, strict=True)
    query = tensors["layers.0.attention.wq.weight"]
    turned = named["model.layers.0.self_attn.q_proj.weight"]
    assert torch.equal(turned[[0, 1, 2, 3]], query[[0, 2, 1, 3]])  # pairs (0, 1), (2, 3) become (0, 2), (1, 3)


def test_tensors_are_found_wherever_they_were_kept() -> None:
    x, y, z = torch.zeros(1), torch.ones(1), torch.ones(2)
    assert list(tensors_in([x, (y, None), {"a": z, "b": 3}], torch)) == [x, y, z]
