"""What stands in for what, in words."""

from __future__ import annotations

from atlas.catalog import Catalog
from atlas.web.stand_in import missing_reason, shown_tensor, stand_in


def test_what_differs_is_said(catalog: Catalog) -> None:
    said = stand_in(catalog["llama-3.1-8b"], catalog["smollm2-135m"], "Q4_1")
    assert said.sentence == "SmolLM2 135M stands in: no checkpoint of Llama 3.1 8B is here."
    assert said.differences == (
        "30 layers instead of 32",
        "576 features (d_model) instead of 4,096",
        "9 query heads instead of 32",
        "3 query heads a key and value head instead of 4",
        "64 features a head (head_dim) instead of 128",
        "1,536 hidden features (d_mlp) instead of 14,336",
        "49,152 tokens in its vocabulary instead of 128,256",
        "tied embedding and unembedding",
        "weights that were once quantised (Q4_1)",
        "no scaled RoPE",
    )


def test_what_is_the_same_is_not_said(catalog: Catalog) -> None:
    said = stand_in(catalog["llama-3-8b"], catalog["llama-3.1-8b"], None)
    assert said.differences == ("scaled RoPE",)


def test_a_node_that_the_stand_in_lacks_has_a_reason(catalog: Catalog) -> None:
    model, live = catalog["llama-3.1-8b"], catalog["smollm2-135m"]
    assert "no scaled frequencies: it rotates by plain frequencies" in missing_reason(
        model, live, "rotary/scaled-frequencies"
    )
    assert missing_reason(model, live, "blocks/block-output") == ""


def test_every_page_shows_some_tensors_values(catalog: Catalog) -> None:
    model = catalog["llama-3-8b"]
    assert shown_tensor(model, "") == "unembedding/logits"
    assert shown_tensor(model, "blocks/attention") == "blocks/attention/attention-update"
    assert shown_tensor(model, "blocks/attention/softmax") == "blocks/attention/attention-weights"
    assert shown_tensor(model, "blocks/attention/key-cache") == "blocks/attention/key-cache"
    for path in model.graph.nodes:
        assert model.graph[shown_tensor(model, path)].kind in ("tensor", "cache", "parameter")
