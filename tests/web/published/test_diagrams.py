"""Diagrams with parts opened, as files: which are drawn, and that each is the drawing that a server gives."""

from __future__ import annotations

import json
import re
import zlib

import pytest

from atlas.catalog import Catalog
from atlas.render.diagram import component_svg
from atlas.web.model_view import Views
from atlas.web.published.diagrams import Drawings, drawn_sets, parts_of

BLOCKS = frozenset({"blocks"})


@pytest.mark.parametrize("model", ["smollm2-135m", "deepseek-v3", "gemma-3-1b"])
@pytest.mark.parametrize("most", [1, 16])
def test_every_part_can_be_opened_and_only_where_it_stands(model: str, most: int, catalog: Catalog) -> None:
    graph = catalog[model].graph
    parts = parts_of(graph, "")
    sets = drawn_sets(graph, "", BLOCKS, most)
    assert sets[0] == BLOCKS
    assert frozenset() in sets
    assert len(sets) == len(set(sets)) <= most + len(parts) + 1
    for one in sets:
        for part in one:
            assert all(other in one for other in parts if part.startswith(f"{other}/"))
    for part in parts:
        assert {part} | {other for other in parts if part.startswith(f"{other}/")} in sets


def test_what_takes_fewest_clicks_is_drawn_first_and_of_that_what_is_large(catalog: Catalog) -> None:
    sets = drawn_sets(catalog["smollm2-135m"].graph, "blocks", frozenset(), 100)
    assert len(sets) == 16, "all sets of the four parts of a block"
    assert [len(one) for one in sets] == sorted(len(one) for one in sets)
    assert sets[1] == {"blocks/attention"}


def test_a_file_holds_the_drawing_that_a_server_gives(catalog: Catalog) -> None:
    model = catalog["smollm2-135m"]
    view = Views(catalog)[model.id]

    def link(path: str, pass_: str) -> str:
        return "" if path == "blocks/mid-residual" else f"../../models/{model.id}/{path}/{pass_}.html"

    drawings = Drawings(model, ("blocks", "blocks/attention"), view.open_by_itself, link, 3)
    files = dict(drawings.files())
    listed = json.loads(files["index.json"])
    assert listed.keys() == {"blocks"}, "there is nothing to open in attention"
    parts, drawn = listed["blocks"]["parts"], listed["blocks"]["drawn"]
    assert len(files) == len(drawings) + 1 == 3 * len(drawn) + 1
    for number, numbers in enumerate(drawn):
        opened = frozenset(parts[at] for at in numbers)
        for pass_ in ("full", "decode"):
            text = zlib.decompress(files[f"{pass_}.blocks.{number}.svg.z"]).decode()
            served = component_svg(
                model.graph, "blocks", view=pass_, link=lambda path: f"/{path}", expanded=opened, toggle=lambda _: "/"
            )
            assert re.sub(r' href="[^"]*"', "", text) == re.sub(r' href="[^"]*"', "", served)
            assert set(re.findall(r'opened" data-node="([^"]*)"', text)) == opened
            assert f'href="../../models/{model.id}/blocks/attention/{pass_}.html"' in text
            assert "mid-residual/" not in text
