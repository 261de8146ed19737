"""Excerpts and sources of nodes: once each, with marks, omissions and headings."""

from __future__ import annotations

import re

import pytest

from atlas.catalog import Catalog
from atlas.web.code_column import code_column

UPDATE = "blocks/attention/attention-update"


def test_what_computes_the_node_comes_first_then_what_surrounds_it_then_the_configuration(catalog: Catalog) -> None:
    column = code_column(catalog["llama-3-8b"], UPDATE)
    assert [(file.name, file.role) for file in column.files] == [
        ("model.py", "direct"),
        ("model.py", "contextual"),
        ("sku_list.py", "configuration"),
    ]
    assert [part.text for part in column.files[0].ranges] == ["201–202"]
    assert [part.text for part in column.files[1].ranges] == ["139–145", "242–254"]
    assert [part.omitted for part in column.files[1].excerpts] == ["", "lines 146–241 omitted"]
    assert column.files[2].ranges[0].href.endswith("models/sku_list.py#L19-L19")
    assert column.heading == "model.py 201–202 · model.py 139–145, 242–254 · sku_list.py 19, 188–207"


@pytest.mark.parametrize(("path", "line"), [(UPDATE, 202), ("blocks/attention/scale-similarities", 196)])
def test_the_pages_own_expression_is_marked_once(catalog: Catalog, path: str, line: int) -> None:
    column = code_column(catalog["llama-3-8b"], path)
    marked = re.findall(
        r'data-line="(\d+)"(?:(?!data-line).)*?data-this=""', "".join(e.html for e in column.files[0].excerpts)
    )
    assert marked == [str(line)]


def test_a_shared_expression_is_the_nearest_nodes(catalog: Catalog) -> None:
    for part in ("blocks/attention-norm", "blocks/feed-forward-norm", "final-norm"):
        html = "".join(
            e.html for file in code_column(catalog["llama-3-8b"], f"{part}/rms").files for e in file.excerpts
        )
        others = {"blocks/attention-norm", "blocks/feed-forward-norm", "final-norm"} - {part}
        assert f'data-node="{part}/rms" data-this=""' in html
        assert not [other for other in others if f'data-node="{other}/rms"' in html]


def test_a_source_that_is_not_here_is_cited_by_its_lines(catalog: Catalog) -> None:
    pieces = {piece.id: piece for piece in code_column(catalog["llama-3-8b"], UPDATE).sources}
    earlier = pieces["attn-output-llama3"]
    assert [part.text for part in earlier.ranges] == ["121–127", "189–190"]
    assert not earlier.excerpts
    assert earlier.missing.endswith("atlas sources sync llama3")
    assert pieces["attn-output"].excerpts[1].omitted == "lines 146–200 omitted"


def test_every_node_of_every_model_has_code_and_sources(catalog: Catalog) -> None:
    for model in ("llama-3.1-8b", "smollm2-135m"):
        for path in ("", *catalog[model].graph.nodes):
            column = code_column(catalog[model], path)
            assert column.files, path
            assert column.sources[-1].id == "config"
