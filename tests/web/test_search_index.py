"""Search: by our names and by everyone else's, with slips of the finger, down to the layer."""

from __future__ import annotations

from datetime import date

import pytest

from atlas.catalog import Catalog
from atlas.web.search_index import SearchIndex

A = "/models/llama-3-8b/blocks/attention/"


@pytest.fixture(scope="module")
def index(catalog: Catalog) -> SearchIndex:
    return SearchIndex(catalog)


@pytest.mark.parametrize(
    ("query", "href"),
    [
        ("attention update", f"{A}attention-update"),
        ("atention updte", f"{A}attention-update"),
        ("ATTENTION   UPDATE", f"{A}attention-update"),
        ("update attention", f"{A}attention-update"),
        ("S_s", f"{A}scaled-similarities"),
        ("S", f"{A}similarities"),
        ("Δ_attn", f"{A}attention-update"),
        (r"\Delta_{\mathrm{attn}}", f"{A}attention-update"),
        ("self.wo(output)", f"{A}output-projection"),
        ("blocks/attention/softmax", f"{A}softmax"),
        ("blk.3.attn_k.weight", f"{A}key-weight?layer=3"),
        ("model.layers.12.self_attn.q_proj.weight", f"{A}query-weight?layer=12"),
        ("layers.0.attention.wo.weight", f"{A}output-weight?layer=0"),
        ("blocks.5.attn.hook_z", f"{A}head-outputs?layer=5"),
        ("self_attn.k_proj", f"{A}keys"),
        ("hook_z", f"{A}head-outputs"),
        ("resid_mid", "/models/llama-3-8b/blocks/mid-residual"),
        ("hidden_states[0]", "/models/llama-3-8b/embedding/embedded"),
        ("hidden_states[4]", "/models/llama-3-8b/blocks/block-input?layer=4"),
        ("rope_freqs.weight", "/models/llama-3.1-8b/rotary/scaled-frequencies"),
        ("smollm2", "/models/smollm2-135m"),
        ("d_model", "/how-to-read#axis-d_model"),
    ],
)
def test_the_first_answer(index: SearchIndex, query: str, href: str) -> None:
    assert index.search(query)[0].href == href


def test_the_output_of_the_layer_before_is_found_too(index: SearchIndex) -> None:
    found = [hit.href for hit in index.search("hidden_states[4]")]
    assert "/models/llama-3-8b/blocks/block-output?layer=3" in found


def test_answers_lead_to_the_readers_model_and_view_where_it_has_the_node(index: SearchIndex) -> None:
    assert index.search("softmax over keys", model="smollm2-135m", view="decode")[0].href == (
        "/models/smollm2-135m/blocks/attention/softmax?view=decode"
    )
    assert index.search("scaled frequencies", model="smollm2-135m")[0].href.startswith("/models/llama-3.1-8b/")


def test_another_communitys_name_comes_with_its_layout(index: SearchIndex) -> None:
    hit = index.search("blocks.3.attn.W_Q")[0]
    assert (hit.matched, hit.of) == ("blocks.n.attn.W_Q", "TransformerLens")
    assert "transposed" in hit.layout
    assert index.search("attention update")[0].matched == ""


def test_explanations_are_searched_after_names(index: SearchIndex) -> None:
    assert "blocks/attention/multiply" not in [hit.path for hit in index.search("conjunctions")]
    assert index.search("conjunctions")[0].path == "blocks/feed-forward/multiply"


@pytest.mark.parametrize("query", ["", "   ", "zzzzqqqq", "(((", "[{layer}]", "\\", "9" * 200])
def test_nothing_found_is_no_error(index: SearchIndex, query: str) -> None:
    assert all(hit.href for hit in index.search(query))


def test_a_model_that_joins_is_found(catalog: Catalog) -> None:
    own = Catalog(catalog.store)
    index = SearchIndex(own)
    assert not [hit for hit in index.search("my finetune") if hit.kind == "model" and hit.path == "my-finetune"]
    mine = own.entry("llama-3-8b").model_copy(
        update={"id": "my-finetune", "name": "My finetune", "released": date(2026, 1, 1)}
    )
    own.add(mine)
    assert index.search("my finetune")[0].href == "/models/my-finetune"
