"""Which layers a node belongs to where layers differ, and how a diagram says so without colour."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from atlas.catalog import Catalog
from atlas.graph.resolve import Graph
from atlas.render.diagram import component_svg
from atlas.render.diagram.belonging import badges, belonging

SVG = "{http://www.w3.org/2000/svg}"


def drawn(graph: Graph, component: str, *opened: str) -> ET.Element:
    return ET.fromstring(component_svg(graph, component, view="full", link=str, expanded=frozenset(opened)))


def badge_of(svg: ET.Element, path: str) -> tuple[str, str] | None:
    """The letters on a node, and the class of its pattern."""
    node = next(one for one in svg.iter(f"{SVG}g") if one.get("data-node") == path)
    for one in node.iter(f"{SVG}g"):
        if (one.get("class") or "").startswith("badge"):
            return "".join(one.itertext()), (one.get("class") or "").split()[1]
    return None


def broken(svg: ET.Element) -> dict[tuple[str | None, str | None], str]:
    """What the lines that flow in some layers only are told to be."""
    return {
        (one.get("data-from"), one.get("data-to")): next(one.iter(f"{SVG}title")).text or ""
        for one in svg.iter(f"{SVG}g")
        if "some" in (one.get("class") or "").split()
    }


def test_what_is_made_once_belongs_to_the_layers_that_use_it(catalog: Catalog) -> None:
    some = {path: layers.name for path, layers in belonging(catalog["gemma-3-1b"].graph).items()}
    assert {path for path in some if "/" not in path} == {
        "rotary", "rotary-local", "build-mask", "causal-mask", "build-sliding-mask", "sliding-mask",
    }  # fmt: skip
    assert some["rotary/cosines"] == some["causal-mask"] == "global"
    assert some["rotary-local/cosines"] == some["sliding-mask"] == "local"
    assert not [path for path in some if path.startswith("blocks")]


def test_nodes_of_the_blocks_belong_where_they_are_declared(catalog: Catalog) -> None:
    graph = catalog["deepseek-v3"].graph
    some = belonging(graph)
    assert some["blocks/feed-forward/project-gate"].numbers == (0, 1, 2)
    assert some["blocks/feed-forward/router"].name == "routed"
    assert "blocks/feed-forward" not in some
    assert "blocks/feed-forward/feed-forward-update" not in some
    assert [(badge.letters, badge.pattern) for badge in badges(graph).values()] == [("D", 0), ("R", 1)]


def test_a_model_whose_layers_are_alike_has_no_badges(catalog: Catalog) -> None:
    for entry in catalog:
        if entry.architecture in ("llama", "gpt2", "mistral", "qwen3"):
            assert not badges(catalog[entry.id].graph)
            assert not belonging(catalog[entry.id].graph)


def test_a_diagram_says_by_letters_and_broken_lines_which_layers(catalog: Catalog) -> None:
    svg = drawn(catalog["gemma-3-1b"].graph, "", "blocks")
    assert badge_of(svg, "sliding-mask") == ("L", "pattern-0")
    assert badge_of(svg, "causal-mask") == ("G", "pattern-1")
    assert badge_of(svg, "rotary") == ("G", "pattern-1")
    assert badge_of(svg, "blocks/attention") is None
    words = broken(svg)
    assert words["sliding-mask", "blocks/attention"].startswith("Only in local layers: 0-4, 6-10")
    assert words["causal-mask", "blocks/attention"].startswith("Only in global layers: 5, 11")
    links = {one.get("href"): one.get("aria-label") or "" for one in svg.iter(f"{SVG}a")}
    assert "only in local layers: 0-4" in links["sliding-mask"]


def test_a_line_between_two_of_a_kind_is_whole(catalog: Catalog) -> None:
    svg = drawn(catalog["deepseek-v3"].graph, "blocks/feed-forward")
    assert badge_of(svg, "blocks/feed-forward/project-gate") == ("D", "pattern-0")
    assert badge_of(svg, "blocks/feed-forward/router") == ("R", "pattern-1")
    ends = {end for pair in broken(svg) for end in pair}
    assert ("blocks/feed-forward-norm/normalized", "blocks/feed-forward/project-gate") in broken(svg)
    assert "blocks/feed-forward/activate" not in ends


@pytest.mark.parametrize("opened", [(), ("blocks/feed-forward/router",)])
def test_an_opened_part_says_it_in_its_title(catalog: Catalog, opened: tuple[str, ...]) -> None:
    svg = drawn(catalog["deepseek-v3"].graph, "blocks/feed-forward", *opened)
    titles = ["".join(one.itertext()) for one in svg.iter(f"{SVG}text")]
    assert ("Router, routed layers" in titles) == bool(opened)
