"""The pages, in process: what each shows, where its links lead, and what a wrong address is answered."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from fastapi.testclient import TestClient

from atlas.catalog import Catalog
from atlas.graph.axes import VIEWS
from atlas.models.entry import ModelEntry
from atlas.settings import Settings
from atlas.web.app import create_app
from tests.web.html import Page

UPDATE = "/models/llama-3-8b/blocks/attention/attention-update"
SCALE = "/models/llama-3.1-8b/blocks/attention/scale-similarities"
ONE_OF_EACH = (
    "/",
    "/models/llama-3.1-8b",
    "/models/llama-3-8b/blocks",
    UPDATE,
    SCALE,
    "/models/smollm2-135m/blocks/attention/key-cache",
    "/models/smollm2-135m/blocks/attention/query-weight",
    "/how-to-read",
    "/walk",
    "/glossary",
    f"{UPDATE}?view=prefill&walk=13",
    "/compare",
    "/compare?a=llama-3-8b&b=llama-3.1-8b",
    "/search?q=softmax",
    "/search?q=qqqqqqqq",
    "/docs",
)


@pytest.fixture(scope="module")
def client(catalog: Catalog, data_dir: Path) -> Iterator[TestClient]:
    """Pages without anything that runs."""
    app = create_app(Settings(data_dir=data_dir), catalog=catalog)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def page(client: TestClient, address: str, status: int = 200) -> Page:
    answer = client.get(address)
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.text)


@pytest.mark.parametrize("address", ONE_OF_EACH)
def test_every_kind_of_page_has_a_title_one_heading_and_no_id_twice(client: TestClient, address: str) -> None:
    shown = page(client, address)
    assert shown.all("title")[0].text.endswith("OpenModelAtlas")
    assert shown.one("meta", name="description")["content"]
    assert len(shown.all("h1")) == 1
    assert len(shown.ids()) == len(set(shown.ids()))
    assert not shown.all("script", src="")
    assert all(script["src"].startswith("/static/") for script in shown.all("script"))
    assert not [one for one in shown.elements if any(name.startswith("on") for name in one.attributes)]


def test_a_tensor_page_says_all_that_is_known_of_it(client: TestClient) -> None:
    shown = page(client, UPDATE)
    assert shown.one("h1").text == "Attention update"
    assert "32 independent transformer blocks › Attention" in " › ".join(
        link.text for link in shown.all("a") if link["href"].startswith("/models/llama-3-8b/blocks")
    )
    text = shown.one("body").text
    for words in (
        "self.wo(output)",
        "[B batch, T positions, 4096 d]",
        "Pinned revision a0940f9cf706",
        "sku_list.py",
        "lines 19, 188–207",
        "Llama 3 Community License",
        "blocks.n.hook_attn_out",
        "atlas sources sync llama3",
    ):
        assert words in text, words
    assert [one["data-evidence"] for one in shown.all("article", data_evidence="*")][-1] == "config"
    assert {"views", "code", "sources", "live", "main"} <= set(shown.ids())


def test_equation_diagram_code_and_lists_mark_the_same_nodes(client: TestClient) -> None:
    markup = client.get(UPDATE).text
    equation = markup[markup.index('class="display"') : markup.index('class="flow"')]
    diagram = markup[markup.index("diagram-svg") : markup.index("</svg>", markup.index("diagram-svg"))]
    code = markup[markup.index('id="code"') : markup.index('id="sources"')]
    for path in ("blocks/attention/attention-update", "blocks/attention/merged-heads"):
        mark = f'data-node="{path}"'
        assert mark in equation
        assert mark in diagram
    assert 'data-node="blocks/attention/attention-update" data-this=""' in code
    assert 'data-node="blocks/attention/output-weight" data-kind="parameter"' in equation


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("full", "[B batch, 32 q heads, T queries, T keys]"),
        ("prefill", "[B batch, 32 q heads, P queries, P keys]"),
        ("decode", "[B batch, 32 q heads, 1 query, Tk keys]"),
    ],
)
def test_the_view_changes_shapes_and_is_marked(client: TestClient, view: str, words: str) -> None:
    shown = page(client, f"{SCALE}?view={view}&run=abc&layer=3")
    assert words in shown.one("body").text
    current = [one for one in shown.all("a", data_view="*") if one.attributes.get("aria-current") == "page"]
    assert [one["data-view"] for one in current] == [view]
    for link in shown.all("a", data_view="*"):
        query = dict(parse_qsl(urlsplit(link["href"]).query))
        assert query.pop("view", "full") == link["data-view"]
        assert query == {"run": "abc", "layer": "3"}


def test_state_goes_along_every_link_to_a_node(client: TestClient) -> None:
    shown = page(client, f"{UPDATE}?view=decode&layer=3&step=2&cell=0,1")
    nodes = {link for link in shown.links() if link.startswith("/models/llama-3-8b/")}
    for link in nodes:
        query = dict(parse_qsl(urlsplit(link).query))
        assert query.get("layer") in ("3", "2", "4"), link
    assert "/models/llama-3-8b/blocks/attention/softmax?view=decode&layer=3&step=2" in nodes
    assert f"{UPDATE}?layer=3&cell=0,1" in shown.links()  # another view of this page keeps what is this page's


def test_decode_without_a_mask_says_why_and_softmax_takes_what_is_there(client: TestClient) -> None:
    shown = page(client, "/models/llama-3-8b/blocks/attention/masked-similarities?view=decode")
    assert "Not in decode." in shown.one("body").text
    assert "more than one position" in shown.one("body").text
    softmax = client.get("/models/llama-3-8b/blocks/attention/softmax?view=decode").text
    display = softmax[softmax.index('class="display"') : softmax.index('class="flow"')]
    assert 'data-node="blocks/attention/scaled-similarities"' in display
    assert 'data-node="blocks/attention/masked-similarities"' not in display
    assert "in place of masked similarities" in softmax


def test_a_model_page_says_what_it_is_read_from(client: TestClient) -> None:
    text = " ".join(page(client, "/models/llama-3.1-8b").one("body").text.split())
    for words in (
        "Meta · Jul 2024",
        "Dense decoder · follows Llama 3 8B · Grouped-query attention",
        "meta-llama/llama-models @ 0e0b8c5",
        "meta-llama/llama3 @ a0940f9",
        "sku_list.py 19, 231–248",
        "8,030,261,248",
        "131,072 bytes a token in bfloat16",
        "Scale frequencies",
        "tensors of this model are not verified here",
    ):
        assert words in text, words


def test_each_model_says_what_it_is_in_five_sentences(client: TestClient, catalog: Catalog) -> None:
    for entry in catalog:
        said = catalog[entry.id].architecture.summary
        assert len(re.findall(r"[.](?=\s|$)", said)) == 5, (entry.id, said)
        assert len(said.split()) < 130, entry.id
    shown = page(client, "/models/mixtral-8x7b").one("p", class_="lede").text
    assert shown == catalog["mixtral-8x7b"].architecture.summary


def test_smollm2_counts_its_tied_matrix_once(client: TestClient) -> None:
    assert "134,515,008" in client.get("/models/smollm2-135m").text
    assert "the same matrix as the embedding" in client.get("/models/smollm2-135m/unembedding/weight").text


def test_the_same_as_a_list_names_every_node_of_the_diagram(client: TestClient, catalog: Catalog) -> None:
    shown = page(client, "/models/llama-3-8b")
    listed = {one["data-node"] for one in shown.all("a", class_="node")}
    assert listed >= set(catalog["llama-3-8b"].graph.nodes)


def test_list_and_legend_say_which_layers_where_they_differ(client: TestClient) -> None:
    text = " ".join(page(client, "/models/gemma-3-1b").one("aside", class_="map").text.split())
    assert "L only in local layers: 0-4, 6-10" in text
    assert "G only in global layers: 5, 11, 17, 23" in text
    contents = " ".join(page(client, "/models/gemma-3-1b").one("section", id="contents").text.split())
    assert "Build the causal mask operation, only in global layers: 5, 11, 17, 23" in contents
    listed = page(client, "/models/deepseek-v3/blocks/feed-forward/project-gate").one("aside", class_="map")
    assert "only in dense layers: 0-2" in " ".join(listed.text.split())
    assert not page(client, "/models/llama-3-8b").all("ul", class_="some-layers")


def test_a_part_that_differs_by_layer_counts_each_kind(client: TestClient) -> None:
    text = page(client, "/models/deepseek-v3/blocks/feed-forward").one("body").text
    assert "396,361,728 parameters a dense layer, 11,320,164,608 parameters a routed layer" in text
    gate = page(client, "/models/deepseek-v3/blocks/feed-forward/gate-weight").one("body").text
    assert "132,120,576 parameters a layer, 396,361,728 in 3" in gate


def test_without_a_backend_a_page_says_that_nothing_runs(client: TestClient) -> None:
    assert "This server runs no model" in client.get(UPDATE).text


@pytest.mark.parametrize("view", VIEWS)
def test_all_nodes_have_a_page_and_no_link_is_broken(client: TestClient, catalog: Catalog, view: str) -> None:
    known = {f"/models/{entry.id}" for entry in catalog}
    known |= {f"/models/{entry.id}/{path}" for entry in catalog for path in catalog[entry.id].graph.nodes}
    known |= {"/", "/how-to-read", "/walk", "/glossary", "/search", "/compare", "/docs", "/openapi.json"}
    addresses = [f"/models/llama-3.1-8b/{path}?view={view}" for path in catalog["llama-3.1-8b"].graph.nodes]
    assets: set[str] = set()
    for address in [*ONE_OF_EACH, *addresses]:
        shown = page(client, address)
        for link in shown.links():
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme == "https", link
            elif parts.path:
                assert parts.path in known, f"{address} links to {link}"
            else:
                assert parts.fragment in shown.ids(), f"{address} links to {link}"
        assets |= {one["href"] for one in shown.all("link", rel="stylesheet")}
        assets |= {one["src"] for one in shown.all("script", src="*")}
    assert [asset for asset in assets if client.get(asset).status_code != 200] == []


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/models/llama-3-8b/blocks/attention/atention-update", f'href="{UPDATE}"'),
        ("/models/llama-3-9b", "Llama 3 8B"),
        ("/models/llama-3-8b/rotary/scaled-frequencies", "Did you mean"),
        ("/nowhere", "There is nothing at /nowhere"),
        ("/compare?a=llama-3-8b&b=gpt", "There is no model"),
    ],
)
def test_an_unknown_page_is_a_404_that_suggests(client: TestClient, address: str, words: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 404
    assert words in answer.text
    assert 'content="noindex"' in answer.text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("view=sideways", "There is no view &#39;sideways&#39;"),
        ("layer=-1", "`layer` is"),
        ("step=two", "which is no count"),
        ("layer=99999999999999999999", "which is no count"),
        ("run=../../etc", "no id of a run"),
        ("open=<script>", "no list of components"),
    ],
)
def test_a_wrong_query_is_a_422_that_says_what_would_do(client: TestClient, query: str, words: str) -> None:
    answer = client.get(f"{UPDATE}?{query}")
    assert answer.status_code == 422
    assert words in answer.text


def test_markup_in_an_address_stays_text(client: TestClient) -> None:
    for address in (
        "/search?q=<script>alert(1)</script>",
        "/models/llama-3-8b/<script>alert(1)</script>",
        f"{UPDATE}?x=<b>",
    ):
        assert "<script>alert" not in client.get(address).text
        assert "=<b>" not in client.get(address).text


def test_a_slash_at_the_end_leads_to_the_page(client: TestClient) -> None:
    answer = client.get(f"{UPDATE}/?view=decode", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (308, f"{UPDATE}?view=decode")


def test_components_open_in_place_and_the_address_keeps_it(client: TestClient) -> None:
    closed = page(client, "/models/llama-3-8b/blocks?layer=2")
    toggle = next(link for link in closed.links() if "open=blocks/attention&" in f"{link}&")
    assert "layer=2" in toggle
    opened = page(client, toggle)
    drawn = {one["data-node"] for one in opened.all("g", data_node="*")}
    assert "blocks/attention/softmax" in drawn
    assert "/models/llama-3-8b/blocks?layer=2&open=" in opened.links()


def test_the_theme_is_what_the_reader_chose(client: TestClient) -> None:
    assert "data-theme" not in page(client, "/").one("html").attributes
    for theme, shown in (("dark", "dark"), ("light", "light"), ("neon", None)):
        html = Page(client.get("/", headers={"cookie": f"theme={theme}"}).text).one("html")
        assert html.attributes.get("data-theme") == shown


def test_the_same_page_again_is_not_sent_again(client: TestClient) -> None:
    first = client.get(UPDATE)
    again = client.get(UPDATE, headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    assert not again.content
    other = client.get(UPDATE, headers={"if-none-match": first.headers["etag"], "cookie": "theme=dark"})
    assert other.status_code == 200


def test_sitemap_and_robots(client: TestClient, catalog: Catalog) -> None:
    places = re.findall("<loc>(.*?)</loc>", client.get("/sitemap.xml").text)
    assert len(places) == len(set(places)) == 6 + sum(1 + len(catalog[entry.id].graph.nodes) for entry in catalog)
    assert f"http://testserver{UPDATE}" in places
    assert "Sitemap: http://testserver/sitemap.xml" in client.get("/robots.txt").text


def test_a_page_has_one_address_whatever_its_state(client: TestClient) -> None:
    for address in (UPDATE, f"{UPDATE}?view=decode&layer=3&step=2", f"{UPDATE}?walk=13"):
        shown = page(client, address)
        assert shown.one("link", rel="canonical")["href"] == f"http://testserver{UPDATE}"
        assert shown.one("meta", property="og:url")["content"] == f"http://testserver{UPDATE}"


def test_the_walk_leads_from_stop_to_stop(client: TestClient) -> None:
    shown = page(client, "/walk")
    begin = shown.one("a", class_="begin")["href"]
    visited = []
    while begin:
        stop = page(client, begin)
        assert "Walk, " in stop.one("body").text
        visited.append(stop.one("h2", id="walk-title").text)
        onward = [link for link in stop.all("a", class_="after") if "walk=" in link["href"]]
        begin = onward[0]["href"] if onward else ""
    assert len(visited) == len(set(visited)) == 23
    assert visited == [link.text for link in shown.all("a") if "walk=" in link["href"]][1:]


@pytest.mark.parametrize("asked", ["0", "99", "x", "-1", "12"])
def test_a_stop_of_another_page_is_not_shown(client: TestClient, asked: str) -> None:
    assert "Walk, " not in client.get(f"{UPDATE}?walk={asked}").text


def test_the_glossary_links_to_where_a_thing_can_be_seen(client: TestClient) -> None:
    shown = page(client, "/glossary")
    assert "/models/llama-3-8b/blocks/attention/key-cache" in shown.links()
    assert "residual-stream" in shown.ids()


def test_one_node_in_a_frame(client: TestClient) -> None:
    answer = client.get("/embed/llama-3-8b/blocks/attention/attention-update?view=decode&theme=dark")
    assert "frame-ancestors *" in answer.headers["content-security-policy"]
    shown = Page(answer.text)
    assert shown.one("html")["data-theme"] == "dark"
    assert "[B batch, 1 position, 4096 d]" in shown.one("body").text
    assert f"{UPDATE}?view=decode" in shown.links()
    assert shown.one("base")["target"] == "_blank"
    assert "diagram-svg" in client.get("/embed/llama-3-8b/blocks/attention").text
    assert client.get("/embed/llama-3-8b/nothing").status_code == 404


@pytest.mark.parametrize("path", ["", "/blocks/attention", "/blocks/attention/softmax"])
def test_a_diagram_as_a_picture(client: TestClient, path: str) -> None:
    shown = page(client, f"/models/llama-3-8b{path}")
    address = shown.one("meta", property="og:image")["content"].removeprefix("http://testserver")
    answer = client.get(address)
    assert answer.headers["content-type"] == "image/png"
    assert struct.unpack(">8x8xII", answer.content[:24]) == (1200, 630)
    assert len(answer.content) < 300_000
    drawing = client.get(f"{address.removesuffix('.png')}.svg")
    assert drawing.headers["content-type"] == "image/svg+xml"
    assert drawing.text.startswith("<svg ")
    assert "<style>" in drawing.text
    for ending in ("svg", "png"):
        assert client.get(f"/preview/llama-3-8b/nothing.{ending}").status_code == 404


@pytest.mark.parametrize("path", ["/", "/glossary"])
def test_pages_of_no_model_have_a_picture_of_the_site(client: TestClient, path: str) -> None:
    address = page(client, path).one("meta", property="og:image")["content"].removeprefix("http://testserver")
    answer = client.get(address)
    assert answer.headers["content-type"] == "image/png"
    assert struct.unpack(">8x8xII", answer.content[:24]) == (1200, 630)
    assert not page(client, "/search?q=x").all("meta", property="og:image")


def test_a_hundred_models_on_the_front_page(catalog: Catalog, data_dir: Path) -> None:
    many = Catalog(catalog.store)
    one = many.entry("llama-3-8b")
    for number in range(100):
        many.add(_made_up(one, number))
    with TestClient(create_app(Settings(data_dir=data_dir), catalog=many)) as client:
        answer = client.get("/", headers={"accept-encoding": "gzip"})
        assert answer.status_code == 200
        assert len(Page(answer.text).all("li", class_="card model-card")) == 100 + len(list(catalog))
        assert answer.headers["content-encoding"] == "gzip"
        assert int(answer.headers["content-length"]) < 40_000
        assert len(Page(client.get("/models/made-up-7").text).all("a", href="*")) < 400


def _made_up(entry: ModelEntry, number: int) -> ModelEntry:
    return entry.model_copy(
        update={
            "id": f"made-up-{number}",
            "name": f"Made up {number}",
            "released": date(2020 + number % 7, 1 + number % 12, 1),
            "rank": 200 + number,
        }
    )
