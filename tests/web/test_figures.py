"""Numbers that follow from shapes, against the published ones."""

from __future__ import annotations

import pytest

from atlas.catalog import Catalog
from atlas.web.figures import (
    active_parameters,
    binary_bytes,
    cache_bytes_a_token,
    figures,
    parameters,
    parameters_of_one,
)


@pytest.mark.parametrize(
    ("model", "count", "cache"),
    [
        ("llama-3-8b", 8_030_261_248, 131_072),
        ("llama-3.1-8b", 8_030_261_248, 131_072),
        ("smollm2-135m", 134_515_008, 23_040),
        ("llama-3-70b", 70_553_706_496, 327_680),
        ("llama-3.1-405b", 405_853_388_800, 516_096),
        ("llama-3.2-1b", 1_235_814_400, 32_768),
        ("llama-3.2-3b", 3_212_749_824, 114_688),
        ("gpt2-124m", 124_439_808, 36_864),
        ("mistral-7b", 7_241_732_096, 131_072),
        ("mixtral-8x7b", 46_702_792_704, 131_072),
        ("qwen2.5-7b", 7_615_616_512, 57_344),
        ("qwen3-8b", 8_190_735_360, 147_456),
        ("gemma-3-1b", 999_885_952, 26_624),
        ("gemma-3-270m", 268_098_176, 18_432),
        ("gpt-oss-120b", 116_829_156_672, 73_728),
        ("deepseek-v3", 671_026_419_200, 70_272),
    ],
)
def test_parameters_and_cache(catalog: Catalog, model: str, count: int, cache: int) -> None:
    assert parameters(catalog[model]) == count
    assert cache_bytes_a_token(catalog[model]) == cache
    said = {figure.label: figure.value for figure in figures(catalog[model])}
    assert said["Parameters"] == f"{count:,}"
    assert said["KV cache"] == f"{cache:,}"


@pytest.mark.parametrize(
    ("model", "count"),
    [("llama-3-8b", 8_030_261_248), ("mixtral-8x7b", 12_879_925_248), ("deepseek-v3", 37_552_297_472)],
)
def test_a_token_goes_through_the_experts_that_it_chose(catalog: Catalog, model: str, count: int) -> None:
    assert active_parameters(catalog[model]) == count
    said = {figure.label: figure for figure in figures(catalog[model])}
    assert ("Active" in said) == (count != parameters(catalog[model]))


def test_caches_that_are_unlike_are_added(catalog: Catalog) -> None:
    (kept,) = [figure.how for figure in figures(catalog["deepseek-v3"]) if figure.label == "KV cache"]
    assert kept == "61 layers × (512 latent + 64 position) × 2 bytes"


def test_parts_add_up(catalog: Catalog) -> None:
    model = catalog["llama-3-8b"]
    parts = [node.path for node in model.graph.children("") if node.kind == "component"]
    assert sum(parameters(model, part) for part in parts) == parameters(model)
    assert parameters(model, "blocks") == 32 * parameters_of_one(model, "blocks")[""]
    assert parameters_of_one(model, "blocks/attention")[""] == 2 * 4096 * 4096 + 2 * 1024 * 4096


def test_bytes_for_reading() -> None:
    assert [binary_bytes(count) for count in (12, 2048, 16_060_522_496, 2**41)] == [
        "12 bytes",
        "2 KiB",
        "14.96 GiB",
        "2 TiB",
    ]
