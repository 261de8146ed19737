"""Diagrams as pixels: the size that sites ask for, plain styles, and fonts of our own."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from atlas.catalog import Catalog
from atlas.render.diagram import component_svg
from atlas.render.picture import HEIGHT, WIDTH, card, plain_style


@pytest.fixture(scope="module")
def drawn(catalog: Catalog) -> str:
    return component_svg(
        catalog["llama-3-8b"].graph, "blocks", view="full", current="blocks/mid-residual", link=lambda _: "#"
    )


def colours(png: bytes) -> set[tuple[int, ...]]:
    with Image.open(io.BytesIO(png)) as image:
        assert (image.format, image.size) == ("PNG", (WIDTH, HEIGHT))
        found = image.convert("RGB").getcolors(WIDTH * HEIGHT)
    assert found is not None
    return {colour for _, colour in found if isinstance(colour, tuple)}


def test_a_card_shows_the_diagram_in_the_colours_of_the_page(drawn: str) -> None:
    png = card(drawn, "Mid residual", ("Tensor of Llama 3 8B",))
    assert len(png) < 300_000
    shown = colours(png)
    paper, accent, part = (tuple(bytes.fromhex(colour)) for colour in ("fbfaf7", "b53d08", "f1efe9"))
    assert {paper, accent, part} <= shown


def test_the_same_diagram_gives_the_same_bytes(drawn: str) -> None:
    assert card(drawn, "A", ("b",)) == card(drawn, "A", ("b",))
    assert card(drawn, "A", ("b",)) != card(drawn, "B", ("b",)), "words are drawn, with fonts of our own"


def test_styles_are_plain() -> None:
    style = plain_style()
    for word in ("var(", "light-dark", "color-mix", "@media", ":hover", "--"):
        assert word not in style, word
    assert '.diagram-svg [data-axis="d_model"] { fill: #6a2fc0 }' in style
    assert ".diagram-svg .operation .shape { fill: #e3eeec; stroke: #5f9d97 }" in style


def test_what_is_no_diagram_is_refused() -> None:
    with pytest.raises(ValueError, match="no diagram"):
        card("<p>no</p>", "A", ())
