from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_models.sku_list import all_registered_models

from atlas.runtime.llama_layout import d_mlp, feed_forward_rule, mismatches, parameter_shapes


@pytest.mark.parametrize(
    ("dim", "multiple_of", "multiplier", "width"),
    [
        (4096, 1024, 1.3, 14336),
        (8192, 4096, 1.3, 28672),
        (16384, 4096, 1.2, 53248),
        (2048, 256, 1.5, 8192),
        (3072, 256, 1.0, 8192),
        (576, 256, None, 1536),
    ],
)
def test_width_of_published_models(dim: int, multiple_of: int, multiplier: float | None, width: int) -> None:
    assert d_mlp(dim, multiple_of, multiplier) == width


def test_the_rule_finds_the_width_of_every_model_in_metas_catalogue() -> None:
    seen = 0
    for model in all_registered_models():
        args = model.arch_args
        if "dim" in args and "multiple_of" in args:
            width = d_mlp(args["dim"], args["multiple_of"], args.get("ffn_dim_multiplier"))
            assert d_mlp(args["dim"], *feed_forward_rule(args["dim"], width)) == width
            seen += 1
    assert seen > 10


@given(st.integers(2, 1 << 15), st.integers(1, 1 << 18))
def test_the_rule_reproduces_any_width(dim: int, width: int) -> None:
    assert d_mlp(dim, *feed_forward_rule(dim, width)) == width


def test_parameters_of_llama_3_8b_add_up() -> None:
    shapes = parameter_shapes(
        {
            "dim": 4096,
            "n_layers": 32,
            "n_heads": 32,
            "n_kv_heads": 8,
            "vocab_size": 128256,
            "ffn_dim_multiplier": 1.3,
            "multiple_of": 1024,
            "tied_embeddings": False,
        }
    )
    count = 0
    for shape in shapes.values():
        size = 1
        for length in shape:
            size *= length
        count += size
    assert count == 8_030_261_248


def test_mismatches_are_named_and_few() -> None:
    expected = {"a": (1, 2), **{f"m{at}": (1,) for at in range(6)}}
    assert mismatches(expected, {"a": (2, 1), "x": (1,)}) == [
        "missing: m0, m1, m2, m3 and 2 more",
        "extra: x",
        "misshapen: a [2, 1] (should be [1, 2])",
    ]
    assert mismatches(expected, expected) == []
