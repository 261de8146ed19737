"""Diagrams of every architecture, component and view: what is drawn, where, and how it works in a browser."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route

from atlas.catalog import Catalog
from atlas.errors import NotFound
from atlas.graph.anchors import at
from atlas.graph.axes import VIEWS, View
from atlas.graph.evidence import SourceRef
from atlas.graph.nodes import Architecture, Component, Node, Operation, Parameter, Reference, Tensor
from atlas.graph.resolve import Graph
from atlas.provenance.locks import Locks
from atlas.provenance.store import SourceStore
from atlas.render.assets import sources_dir, static_dir
from atlas.render.diagram import component_svg, repeated_part, text
from atlas.render.diagram.cells import Glyph, frame_title
from atlas.render.diagram.elk import Point
from atlas.render.diagram.layout import Layout, Line, lay_out
from atlas.render.diagram.levels import level
from atlas.render.diagram.stream import residual_stream
from tests.chromium import launched

SVG = "{http://www.w3.org/2000/svg}"
NONE: frozenset[str] = frozenset()
ATTENTION = "blocks/attention"


def page_of(path: str) -> str:
    return f"/node/{path}"


# --- the graphs: one model of each architecture, and two made up


def catalog(cache: Path) -> Catalog:
    return Catalog(SourceStore(Locks.read(sources_dir()), cache))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    found = catalog(tmp_path_factory.mktemp("sources"))
    chosen = {entry.architecture: entry.id for entry in reversed(list(found))}
    return {name: found[name].graph for name in sorted({*chosen.values(), "llama-3-8b"})}


@pytest.fixture(scope="module")
def graphs(models: dict[str, Graph]) -> dict[str, Graph]:
    return {**models, "parallel": Graph(parallel()), "entangled": Graph(entangled())}


@pytest.fixture(scope="module")
def llama(models: dict[str, Graph]) -> Graph:
    return models["llama-3-8b"]


def wide(path: str, *shape: str) -> Tensor:
    axes = shape or ("batch", "positions", "d_model")
    return Tensor(path=path, name=path.title(), description="", symbol="x", shape=axes, hook=at("f").returns())


def step(path: str, inputs: str, outputs: str) -> Operation:
    return Operation(
        path=path, name=path.rsplit("/", 1)[-1].title(), description="", inputs=tuple(inputs.split()),
        outputs=tuple(outputs.split()), equation="y = x", reference=lambda: None,
    )  # fmt: skip


def part(path: str, repeat: str | None = None) -> Component:
    return Component(path=path, name=path.rsplit("/", 1)[-1].title(), description="", repeat=repeat)


def made_up(*nodes: Node, enters: str) -> Architecture:
    return Architecture(
        id="made-up", name="Made up", summary="", kind="", attention="", nodes=nodes,
        reference=Reference(runner="", file=SourceRef(source="", path=""), block="", forward=""),
        sizes={"d_model": 8, "layers": 3, "d_mlp": 16}, settings={},
        loops=(("blocks/block-output", "blocks/block-input"),), enters=((enters, "blocks/block-input"),),
    )  # fmt: skip


def parallel() -> Architecture:
    """Both branches read the same stream and come back in one sum; the stream is scaled before the first block."""
    return made_up(
        wide("token-ids", "batch", "positions"),
        step("look-up", "token-ids", "embedded"),
        wide("embedded"),
        step("scale", "embedded", "scaled"),
        wide("scaled"),
        part("blocks", "layers"),
        wide("blocks/block-input"),
        part("blocks/mixer"),
        step("blocks/mixer/mix", "blocks/block-input", "mixed"),
        wide("blocks/mixer/mixed"),
        part("blocks/feed-forward"),
        Parameter(
            path="blocks/feed-forward/weight", name="Weight", description="", symbol="W",
            shape=("d_mlp", "d_model"), weight="w",
        ),
        step("blocks/feed-forward/think", "blocks/block-input weight", "thought"),
        wide("blocks/feed-forward/thought"),
        step("blocks/add", "block-input mixer/mixed feed-forward/thought", "block-output"),
        wide("blocks/block-output"),
        step("score", "blocks/block-output", "logits"),
        wide("logits"),
        enters="scaled",
    )  # fmt: skip


def entangled() -> Architecture:
    """A component hands something out and takes something else back; another is inside it; nothing is embedded."""
    return made_up(
        wide("begin"),
        part("blocks", "layers"),
        wide("blocks/block-input"),
        part("blocks/mixture"),
        step("blocks/mixture/route", "blocks/block-input", "choice weight"),
        wide("blocks/mixture/choice", "batch", "positions"),
        wide("blocks/mixture/weight", "batch", "positions"),
        step("blocks/share-out", "mixture/choice", "shared-out"),
        wide("blocks/shared-out", "batch", "positions"),
        part("blocks/mixture/experts", "layers"),
        step("blocks/mixture/experts/hide", "blocks/shared-out blocks/block-input", "hidden"),
        wide("blocks/mixture/experts/hidden", "batch", "positions", "d_mlp"),
        step("blocks/mixture/experts/reveal", "hidden", "revealed"),
        wide("blocks/mixture/experts/revealed"),
        step("blocks/mixture/gather", "experts/revealed weight", "update"),
        wide("blocks/mixture/update"),
        step("blocks/add", "block-input mixture/update", "block-output"),
        wide("blocks/block-output"),
        enters="begin",
    )


def components(graph: Graph) -> list[str]:
    return ["", *(path for path, node in graph.nodes.items() if node.kind == "component")]


Drawn = tuple[str, Graph, str, View, frozenset[str]]


@pytest.fixture(scope="module")
def drawn(graphs: dict[str, Graph]) -> list[Drawn]:
    """Every component in every view; the whole model with its blocks or all of it opened, and the blocks with some."""
    found: list[Drawn] = []
    for name, graph in graphs.items():
        found += [(name, graph, component, view, NONE) for component in components(graph) for view in VIEWS]
        inner = [path for path in components(graph) if path.startswith("blocks/")]
        found += [(name, graph, "", "full", frozenset(parts)) for parts in (components(graph)[1:], ["blocks"])]
        found.append((name, graph, "blocks", "decode", frozenset(inner[:2])))
    return found


@pytest.fixture(scope="module")
def layouts(drawn: list[Drawn]) -> list[tuple[str, Graph, Layout]]:
    return [
        (f"{name} {component or 'whole'} {view} {sorted(parts)}", graph, lay_out(graph, component, view, parts, True))
        for name, graph, component, view, parts in drawn
    ]


# --- what is drawn


def svg_of(one: Drawn) -> ET.Element:
    """The diagram with links and opening signs, read back."""
    _, graph, component, view, parts = one
    markup = component_svg(
        graph,
        component,
        view=view,
        link=page_of,
        expanded=parts,
        toggle=lambda open_: f"?open={','.join(sorted(open_))}",
    )
    return ET.fromstring(markup)


def present(graph: Graph, path: str, view: View) -> bool:
    """Whether a pass in this view computes or uses a node, by the graph's own edges and shapes."""
    node = graph[path]
    if node.kind == "component":
        return any(present(graph, child.path, view) for child in graph.children(path))
    if node.kind == "parameter":
        return any(edge.source == path and view in edge.views for edge in graph.edges)
    views = node.node.views if isinstance(node.node, Tensor | Operation) else VIEWS
    return view in views


def test_each_node_of_a_view_is_drawn_once_and_nothing_else(drawn: list[Drawn]) -> None:
    for one in drawn:
        _, graph, component, view, parts = one
        counts = Counter(element.get("data-node") for element in svg_of(one).iter() if element.get("data-node"))
        assert set(counts.values()) == {1}, one
        assert counts.keys() <= graph.nodes.keys()
        inside = [component, *(path for path in parts if path in counts)]
        for parent in inside:
            for child in graph.children(parent):
                assert (child.path in counts) == present(graph, child.path, view), (one, child.path)
        for path in counts:
            assert path is not None
            assert present(graph, path, view), (one, path)


def test_links_lead_to_what_they_stand_for(drawn: list[Drawn]) -> None:
    for one in drawn:
        for link in svg_of(one).iter(f"{SVG}a"):
            if link.get("class") == "node-link":
                nodes = [node for child in link if (node := child.get("data-node"))]
                assert link.get("href") == page_of(nodes[0])
                assert link.get("aria-label") or "".join(link.itertext())


def test_lines_join_what_flows(drawn: list[Drawn]) -> None:
    """Each line has both its ends in the drawing, and each edge between two drawn nodes has its line."""
    for one in drawn:
        _, graph, _, view, parts = one
        svg = svg_of(one)
        nodes = {element.get("data-node") for element in svg.iter() if element.get("data-node")} - parts
        flows = [element for element in svg.iter(f"{SVG}g") if "flow" in (element.get("class") or "").split()]
        lines = {(element.get("data-from"), element.get("data-to")) for element in flows}
        assert len(lines) == len(flows)
        assert {end for line in lines for end in line} <= nodes
        for edge in graph.edges:
            if view in edge.views and not edge.next_layer and {edge.source, edge.target} <= nodes:
                assert (edge.source, edge.target) in lines, (one, edge)


def test_the_markup_has_no_style_or_script_of_its_own(drawn: list[Drawn]) -> None:
    for one in drawn:
        for element in svg_of(one).iter():
            assert element.tag.removeprefix(SVG) in {
                "svg", "g", "a", "title", "rect", "circle", "path", "text", "tspan",
            }  # fmt: skip
            assert not [name for name in element.keys() if name == "style" or name.startswith("on")]  # noqa: SIM118


def test_decode_shows_the_cache_read_whole_and_one_row_written(llama: Graph) -> None:
    def cache(view: View) -> tuple[str, int, int]:
        svg = ET.fromstring(component_svg(llama, ATTENTION, view=view, link=page_of))
        group = next(g for g in svg.iter() if g.get("data-node") == f"{ATTENTION}/key-cache")
        words = next("".join(text.itertext()) for text in group.iter(f"{SVG}text") if text.get("class") == "rows")
        kinds = Counter(rect.get("class") for rect in group.iter(f"{SVG}rect"))
        return words.replace("\u200b", ""), kinds["row"], kinds["row new"]

    assert cache("decode") == ("write 1, read Tk", 8, 1)
    assert cache("prefill") == ("write P, read P", 0, 9)
    assert cache("full") == ("write T, read T", 0, 9)


def test_a_view_draws_what_it_computes(llama: Graph) -> None:
    def lines(view: View) -> set[tuple[str, str]]:
        return {(line.source, line.target) for line in lay_out(llama, ATTENTION, view, NONE, False).lines}

    scaled, softmax = f"{ATTENTION}/scaled-similarities", f"{ATTENTION}/softmax"
    assert (scaled, softmax) in lines("decode") - lines("prefill")
    assert (scaled, f"{ATTENTION}/apply-mask") in lines("prefill") - lines("decode")
    shapes = component_svg(llama, ATTENTION, view="decode", link=page_of)
    assert '<tspan data-axis="q_heads">32</tspan>×<tspan data-axis="queries">1</tspan>' in shapes


def test_what_only_lends_its_shape_is_marked(llama: Graph) -> None:
    lent = [line for line in lay_out(llama, "", "full", NONE, False).lines if line.lends]
    assert [(line.source, line.target) for line in lent] == [("token-ids", "build-mask")]


def test_kinds_differ_in_shape(llama: Graph) -> None:
    svg = ET.fromstring(component_svg(llama, ATTENTION, view="full", link=page_of))

    def parts(path: str) -> tuple[str | None, list[tuple[str, str | None]]]:
        group = next(g for g in svg.iter() if g.get("data-node") == path)
        shapes = [e for e in group if "shape" in (e.get("class") or "").split()]
        return group.get("class"), [(e.tag.removeprefix(SVG), e.get("rx")) for e in shapes]

    assert parts(f"{ATTENTION}/softmax")[1] == [("rect", "11.25")], "a pill is round to the middle of its sides"
    assert parts(f"{ATTENTION}/queries")[1] == [("rect", "5")]
    assert parts(f"{ATTENTION}/query-weight") == ("node parameter", [("rect", None)])
    assert parts(f"{ATTENTION}/key-cache")[1] == [("rect", "2"), ("rect", "2")], "a box and its lid"
    assert parts("blocks/attention-residual")[1] == [("circle", None)]
    assert parts("blocks/attention-norm")[0] == "node component outside"


def test_the_current_node_is_marked_and_its_ends_stand_out(llama: Graph) -> None:
    update = f"{ATTENTION}/attention-update"
    svg = ET.fromstring(component_svg(llama, ATTENTION, view="full", current=update, link=page_of))
    marked = [link for link in svg.iter(f"{SVG}a") if link.get("aria-current") == "page"]
    assert [link.get("href") for link in marked] == [page_of(update)]

    def having(state: str, mark: str) -> set[str | None]:
        return {g.get(mark) for g in svg.iter(f"{SVG}g") if state in (g.get("class") or "").split()} - {None}

    ends = {f"{ATTENTION}/output-projection", "blocks/attention-residual"}
    assert having("current", "data-node") == {update}
    assert having("near", "data-node") == ends
    assert having("near", "data-from") | having("near", "data-to") == ends | {update}


def test_opening_and_closing_have_addresses(llama: Graph) -> None:
    def toggles(parts: frozenset[str]) -> dict[str | None, str | None]:
        svg = svg_of(("", llama, "", "full", parts))
        return {a.get("data-toggle"): a.get("href") for a in svg.iter(f"{SVG}a") if a.get("class") == "toggle"}

    assert toggles(NONE)["blocks"] == "?open=blocks"
    opened = toggles(frozenset({"blocks", "nowhere"}))
    assert opened["blocks"] == "?open="
    assert opened[ATTENTION] == "?open=blocks,blocks/attention"
    closed = component_svg(llama, "", view="full", link=page_of)
    assert "toggle" not in closed, "no signs where there are no addresses for them"


def test_what_is_no_component_has_no_diagram(llama: Graph) -> None:
    with pytest.raises(NotFound, match="no component"):
        component_svg(llama, "token-ids", view="full", link=page_of)
    with pytest.raises(NotFound, match="no node"):
        component_svg(llama, "blocks/attentoin", view="full", link=page_of)


# --- the residual stream


def test_the_stream_is_found_by_structure(llama: Graph, graphs: dict[str, Graph]) -> None:
    stream = residual_stream(llama, "decode")
    assert stream.sums == {"blocks/attention-residual", "blocks/feed-forward-residual"}
    assert stream.links == {
        ("embedding/embedded", "blocks/block-input"),
        ("blocks/block-input", "blocks/attention-residual"),
        ("blocks/attention-residual", "blocks/mid-residual"),
        ("blocks/mid-residual", "blocks/feed-forward-residual"),
        ("blocks/feed-forward-residual", "blocks/block-output"),
        ("blocks/block-output", "blocks/block-input"),
    }
    scaled = residual_stream(graphs["parallel"], "full")
    assert scaled.sums == {"blocks/add"}
    assert {("embedded", "scale"), ("scale", "scaled"), ("scaled", "blocks/block-input")} <= scaled.links
    assert residual_stream(graphs["entangled"], "full").sums == {"blocks/add"}


def test_every_decoder_has_a_stream_through_its_blocks(models: dict[str, Graph]) -> None:
    for name, graph in models.items():
        stream = residual_stream(graph, "full")
        assert {"blocks/block-input", "blocks/block-output", "embedding/embedded"} <= stream.nodes, name
        assert stream.sums, name


def middle(glyph: Glyph) -> float:
    return glyph.x + glyph.width / 2


def test_the_stream_is_one_straight_line_left_of_all_else(layouts: list[tuple[str, Graph, Layout]]) -> None:
    for name, _, layout in layouts:
        spine = {middle(layout.glyphs[path]) for path in layout.stream if path in layout.glyphs}
        assert len(spine) <= 1, (name, spine)
        for line in layout.lines:
            if line.stream:
                assert {x for x, _ in line.points} == spine, (name, line)
        stream = [layout.glyphs[path] for path in layout.stream if path in layout.glyphs]
        for path, glyph in layout.glyphs.items():
            beside = any(glyph.y < one.y + one.height for one in stream) and any(glyph.y > one.y for one in stream)
            assert not beside or middle(glyph) >= max(spine), (name, path)


def test_a_branch_shows_the_piece_of_stream_that_it_leaves_and_rejoins(llama: Graph) -> None:
    shown = level(llama, ATTENTION, "full")
    around = {path for path, item in shown.items.items() if item.outside}
    assert around >= {"blocks/block-input", "blocks/attention-norm", "blocks/attention-residual", "blocks/mid-residual"}
    assert ("blocks/block-input", "blocks/attention-residual") in {
        (link.source, link.target) for link in shown.links if link.stream
    }


def test_a_repeated_component_says_how_often_and_leads_back(llama: Graph) -> None:
    layout = lay_out(llama, "blocks", "full", NONE, False)
    assert [(line.source, line.target) for line in layout.returns] == [("blocks/block-output", "blocks/block-input")]
    assert "×32</text>" in component_svg(llama, "blocks", view="full", link=page_of)
    assert ">block × 32</text>" in component_svg(llama, "", view="full", link=page_of)


# --- places


def apart(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def corners(glyph: Glyph) -> tuple[float, float, float, float]:
    return glyph.x, glyph.y, glyph.x + glyph.width, glyph.y + glyph.height


def test_nothing_overlaps_and_all_is_in_the_picture(layouts: list[tuple[str, Graph, Layout]]) -> None:
    for name, _, layout in layouts:
        for a, b in itertools.combinations(layout.glyphs.values(), 2):
            assert apart(corners(a), corners(b)), (name, a.path, b.path)
        boxes = [corners(glyph) for glyph in layout.glyphs.values()]
        points = [(x, y, x, y) for line in (*layout.lines, *layout.returns, *layout.stubs) for x, y in line.points]
        for left, top, right, bottom in [*boxes, *points]:
            assert left >= 0 <= top, name
            assert right <= layout.width, name
            assert bottom <= layout.height, name


def test_no_line_runs_through_a_node(layouts: list[tuple[str, Graph, Layout]]) -> None:
    for name, _, layout in layouts:
        for line in (*layout.lines, *layout.returns):
            for start, end in itertools.pairwise(line.points):
                for path, glyph in layout.glyphs.items():
                    if path in (line.source, line.target):
                        continue
                    assert apart(swept(start, end), corners(glyph)), (name, line.source, line.target, path)


def swept(start: Point, end: Point) -> tuple[float, float, float, float]:
    return min(start[0], end[0]), min(start[1], end[1]), max(start[0], end[0]), max(start[1], end[1])


def test_lines_begin_and_end_at_their_nodes(layouts: list[tuple[str, Graph, Layout]]) -> None:
    def touches(point: Point, glyph: Glyph) -> bool:
        left, top, right, bottom = corners(glyph)
        on_side = point[1] in (top, bottom) and left <= point[0] <= right
        return on_side or (point[0] in (left, right) and top <= point[1] <= bottom)

    def square(line: Line) -> bool:
        return all(a[0] == b[0] or a[1] == b[1] for a, b in itertools.pairwise(line.points))

    for name, _, layout in layouts:
        for line in layout.lines:
            source = layout.glyphs[line.source]
            below = [one for one in layout.glyphs.values() if middle(one) == middle(source) and one.y >= source.y]
            pile = [source]  # what is made or used together stands one below the other
            for one in sorted(below, key=lambda one: one.y):
                if 0 < one.y - pile[-1].y - pile[-1].height <= 6:
                    pile.append(one)
            assert any(touches(line.points[0], one) for one in pile), (name, line)
            assert touches(line.points[-1], layout.glyphs[line.target]), (name, line)
            assert square(line), (name, line)


def test_frames_hold_what_was_opened_and_nothing_else(layouts: list[tuple[str, Graph, Layout]]) -> None:
    for name, _, layout in layouts:
        for frame in layout.frames:
            box = frame.box
            edges = (box.x, box.y, box.x + box.width, box.y + box.height)
            for path, glyph in layout.glyphs.items():
                left, top, right, bottom = corners(glyph)
                if glyph.item.inside == frame.path or glyph.item.inside.startswith(f"{frame.path}/"):
                    assert edges[0] < left, (name, path)
                    assert edges[1] < top, (name, path)
                    assert right < edges[2], (name, path)
                    assert bottom < edges[3], (name, path)
                else:
                    assert apart(edges, corners(glyph)), (name, frame.path, path)


def test_the_title_of_a_frame_is_clear_of_lines(llama: Graph) -> None:
    layout = lay_out(llama, "", "full", frozenset(components(llama)[1:]), True)
    assert len(layout.frames) == len(components(llama)) - 1
    for frame in layout.frames:
        right = frame.title + text.width(frame_title(llama, frame.path), 12, bold=True)
        title = (frame.title, frame.box.y, right, frame.box.y + 24)
        assert right < frame.box.x + frame.box.width - 20, "there is room for the sign that closes it"
        for line in layout.lines:
            for start, end in itertools.pairwise(line.points):
                assert apart(swept(start, end), title), (frame.path, line)


def test_things_keep_their_order_from_view_to_view(llama: Graph) -> None:
    orders = []
    for view in VIEWS:
        glyphs = lay_out(llama, ATTENTION, view, NONE, False).glyphs
        orders.append(sorted(("queries", "keys", "values"), key=lambda name: glyphs[f"{ATTENTION}/{name}"].x))
    assert orders == [["queries", "keys", "values"]] * 3


def test_the_size_is_known_before_it_is_drawn(llama: Graph) -> None:
    for component in ("", "blocks", ATTENTION):
        svg = ET.fromstring(component_svg(llama, component, view="full", link=page_of))
        assert svg.get("viewBox") == f"0 0 {svg.get('width')} {svg.get('height')}"
        assert float(svg.get("width") or 0) < 400, "a column of a laptop"


# --- previews, stability, threads


def test_a_preview_is_a_small_picture_without_links(graphs: dict[str, Graph]) -> None:
    for graph in graphs.values():
        svg = ET.fromstring(component_svg(graph, "", view="full", link=page_of, preview=True))
        assert (svg.get("width"), svg.get("height"), svg.get("role")) == ("220", "160", "img")
        assert not list(svg.iter(f"{SVG}a"))
        parts = {element.get("data-node") for element in svg.iter() if element.get("data-node")}
        inside = graph.children(repeated_part(graph))
        assert parts >= {child.path for child in inside if child.kind in ("component", "operation")}


def test_the_same_input_gives_the_same_bytes_in_another_process(llama: Graph, tmp_path: Path) -> None:
    cases = (("", ()), ("", ("blocks", "rotary")), (ATTENTION, ()))
    code = (
        "import hashlib, sys\nfrom pathlib import Path\nfrom tests.render.test_diagram import catalog, hashed\n"
        f"print(hashed(catalog(Path(sys.argv[1]))['llama-3-8b'].graph, {cases!r}))\n"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).resolve().parents[2], text=True, timeout=120,
        capture_output=True, env={**os.environ, "PYTHONHASHSEED": "1"},
    )  # fmt: skip
    assert other.returncode == 0, other.stderr
    assert other.stdout.strip() == str(hashed(llama, cases))


def hashed(graph: Graph, cases: tuple[tuple[str, tuple[str, ...]], ...]) -> list[str]:
    drawn = [component_svg(graph, part, view="full", link=str, expanded=frozenset(opened)) for part, opened in cases]
    return [hashlib.sha256(svg.encode()).hexdigest() for svg in drawn]


def test_threads_draw_what_one_draws(tmp_path: Path) -> None:
    def draw(graph: Graph, component: str) -> str:
        return component_svg(graph, component, view="prefill", link=page_of)

    one, other = catalog(tmp_path)["llama-3-8b"].graph, catalog(tmp_path)["llama-3-8b"].graph
    parts = components(one)
    with ThreadPoolExecutor(max_workers=4) as threads:
        together = list(threads.map(lambda part: draw(one, part), parts * 2))
    assert together == [draw(other, part) for part in parts] * 2


# --- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def browser_page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    yield page
    page.close()


def serve(page: Page, bodies: dict[str, str]) -> None:
    """Answer for a made-up site from memory and from static/, with the headers that forbid inline script."""

    def answer(route: Route) -> None:
        path = "/" + route.request.url.split("://", 1)[1].split("/", 1)[1]
        if path.startswith("/static/"):
            route.fulfill(path=static_dir() / path.removeprefix("/static/"))
        elif path in bodies:
            head = (
                "<!doctype html><html lang=en><meta charset=utf-8><title>Diagram</title>"
                "<link rel=stylesheet href=/static/vendor/katex/katex.min.css>"
                "<link rel=stylesheet href=/static/theme.css><link rel=stylesheet href=/static/diagram.css>"
                "<script type=module src=/static/start.js></script><body>"
            )
            policy = "default-src 'self'; style-src 'self'; script-src 'self'"
            route.fulfill(
                body=head + bodies[path],
                content_type="text/html; charset=utf-8",
                headers={"Content-Security-Policy": policy, "Content-Type": "text/html; charset=utf-8"},
            )
        else:
            route.fulfill(status=404, body="")

    def start(route: Route) -> None:
        body = 'import { diagrams } from "/static/diagram.js"; diagrams(); document.documentElement.dataset.ready = "";'
        route.fulfill(body=body, content_type="text/javascript")

    page.route("http://atlas.test/**", answer)
    page.route("http://atlas.test/static/start.js", start)


def test_words_fit_their_shapes(browser_page: Page, graphs: dict[str, Graph]) -> None:
    """Measured in a browser, bold where the node is the current one."""
    body = ""
    for graph in graphs.values():
        for component in components(graph):
            for view in ("full", "decode"):
                svg = component_svg(graph, component, view=view, link=page_of, toggle=lambda _: "?")
                body += f"<figure>{svg}</figure>"
    serve(browser_page, {"/": body})
    browser_page.goto("http://atlas.test/")
    browser_page.evaluate("document.fonts.ready")
    outside = browser_page.evaluate(
        """() => {
          const found = [];
          for (const node of document.querySelectorAll(".node:not(.opened)")) {
            const shapes = [...node.querySelectorAll(".shape:not(.lid):not(.behind)")];
            if (!shapes.length) continue;
            const box = shapes[0].getBBox();
            node.classList.add("current");
            for (const text of node.querySelectorAll("text")) {
              const ink = text.getBBox();
              if (ink.x < box.x + 1 || ink.x + ink.width > box.x + box.width - 1)
                found.push([node.dataset.node, text.textContent, ink.width, box.width]);
            }
            node.classList.remove("current");
          }
          return found;
        }"""
    )
    assert outside == []


def test_pan_zoom_and_fit(browser_page: Page, llama: Graph) -> None:
    svg = component_svg(llama, "blocks", view="full", link=page_of)
    serve(browser_page, {"/": f'<figure class="diagram">{svg}</figure>'})
    browser_page.goto("http://atlas.test/")
    browser_page.wait_for_selector("html[data-ready]")

    def seen() -> list[float]:
        return [float(n) for n in (browser_page.get_attribute(".diagram-svg", "viewBox") or "").split()]

    home = seen()
    box = browser_page.locator(".diagram-svg").bounding_box()
    browser_page.get_by_role("button", name="Zoom the diagram in").click()
    closer = seen()
    assert closer[2] == pytest.approx(home[2] / 1.3)
    assert closer[2] / closer[3] == pytest.approx(home[2] / home[3])
    assert browser_page.locator(".diagram-svg").bounding_box() == box, "the picture stays where it is"
    browser_page.mouse.move(150, 250)
    browser_page.mouse.down()
    browser_page.mouse.move(130, 220, steps=4)
    browser_page.mouse.up()
    assert seen()[0] > closer[0]
    assert seen()[1] > closer[1]
    assert browser_page.url == "http://atlas.test/", "a drag is no click"
    browser_page.get_by_role("button", name="Show the whole diagram").click()
    assert seen() == home
    browser_page.get_by_role("button", name="Zoom the diagram out").click()
    assert seen() == home, "there is nothing beyond the whole"


def test_arrow_keys_follow_the_flow(browser_page: Page, llama: Graph) -> None:
    svg = component_svg(llama, ATTENTION, view="decode", link=page_of)
    serve(browser_page, {"/": f'<figure class="diagram">{svg}</figure>'})
    browser_page.goto("http://atlas.test/")
    browser_page.wait_for_selector("html[data-ready]")
    browser_page.locator(f'a[href="{page_of(f"{ATTENTION}/queries")}"]').focus()

    def press(key: str) -> str:
        browser_page.keyboard.press(f"Arrow{key}")
        return str(browser_page.evaluate("document.activeElement.querySelector('[data-node]').dataset.node"))

    assert press("Down") == f"{ATTENTION}/rotate-queries"
    assert press("Down") == f"{ATTENTION}/rotated-queries"
    assert press("Down") == f"{ATTENTION}/compare"
    assert press("Up") == f"{ATTENTION}/rotated-queries"
    assert press("Right") == f"{ATTENTION}/rotated-keys"
    assert press("Left") == f"{ATTENTION}/rotated-queries"


def test_a_component_opens_in_place_and_the_address_keeps_it(browser_page: Page, llama: Graph) -> None:
    def page(parts: frozenset[str]) -> str:
        svg = component_svg(
            llama,
            "",
            view="full",
            link=page_of,
            expanded=parts,
            toggle=lambda open_: f"/?open={','.join(sorted(open_))}",
        )
        return f'<main data-kept><nav id="views">{sorted(parts)}</nav><figure class="diagram">{svg}</figure></main>'

    serve(browser_page, {"/": page(NONE), "/?open=": page(NONE), "/?open=blocks": page(frozenset({"blocks"}))})
    browser_page.goto("http://atlas.test/")
    browser_page.wait_for_selector("html[data-ready]")
    browser_page.evaluate("document.querySelector('main').dataset.kept = 'the same document'")
    browser_page.get_by_role("link", name="Open Transformer block here").click()
    browser_page.wait_for_selector('[data-node="blocks/mid-residual"]')
    assert browser_page.url == "http://atlas.test/?open=blocks"
    assert browser_page.get_attribute("main", "data-kept") == "the same document"
    assert browser_page.inner_text("#views") == "['blocks']"
    assert browser_page.evaluate("document.activeElement.dataset.toggle") == "blocks"
    browser_page.get_by_role("link", name="Close Transformer block").click()
    browser_page.wait_for_selector('[data-node="blocks/mid-residual"]', state="detached")
    assert browser_page.url == "http://atlas.test/?open="


def test_without_scripts_a_sign_is_a_link(llama: Graph) -> None:
    svg = svg_of(("", llama, "", "full", NONE))
    sign = next(a for a in svg.iter(f"{SVG}a") if a.get("data-toggle") == "blocks")
    assert (sign.get("href"), sign.get("aria-label")) == ("?open=blocks", "Open Transformer block here")
