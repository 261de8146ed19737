"""Numbers that follow from shapes, against the published ones."""

from __future__ import annotations

import pytest

from atlas.catalog import Catalog
from atlas.web.figures import binary_bytes, cache_bytes_a_token, figures, parameters, parameters_of_one


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
    ],
)
def test_parameters_and_cache(catalog: Catalog, model: str, count: int, cache: int) -> None:
    assert parameters(catalog[model]) == count
    assert cache_bytes_a_token(catalog[model]) == cache
    said = {figure.label: figure.value for figure in figures(catalog[model])}
    assert said["Parameters"] == f"{count:,}"
    assert said["KV cache"] == f"{cache:,}"


def test_parts_add_up(catalog: Catalog) -> None:
    model = catalog["llama-3-8b"]
    parts = [node.path for node in model.graph.children("") if node.kind == "component"]
    assert sum(parameters(model, part) for part in parts) == parameters(model)
    assert parameters(model, "blocks") == 32 * parameters_of_one(model, "blocks")
    assert parameters_of_one(model, "blocks/attention") == 2 * 4096 * 4096 + 2 * 1024 * 4096


def test_bytes_for_reading() -> None:
    assert [binary_bytes(count) for count in (12, 2048, 16_060_522_496, 2**41)] == [
        "12 bytes",
        "2 KiB",
        "14.96 GiB",
        "2 TiB",
    ]
