"""Anchors print as a lock keeps them, and are read back as they were."""

from __future__ import annotations

import ast
import keyword
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas.errors import DeclarationError
from atlas.graph.anchors import KINDS, Anchor, at, parse
from atlas.render.assets import sources_dir


@pytest.mark.parametrize(
    ("anchor", "text"),
    [
        (at(""), "module"),
        (at("").assigns("LLAMA3_VOCAB_SIZE"), "module.assigns(LLAMA3_VOCAB_SIZE)"),
        (at("Attention.forward"), "Attention.forward"),
        (at("Attention.forward").assigns("scores", nth=1).left, "Attention.forward.assigns(scores, 1).left"),
        (at("FeedForward.forward").returns().call("self.w1"), "FeedForward.forward.returns.call(self.w1)"),
        (at("f").returns(2)[0].receiver, "f.returns(2).index(0).receiver"),
        (at("f").call("g").arg(1).right, "f.call(g).arg(1).right"),
        (at("f").argument("x"), "f.argument(x)"),
        (at("f").loop(), "f.loop"),
        (at("f").assigns("c[:n, a:a + n]"), "f.assigns(c[:n, a:a + n])"),
        (at("f").entry("name", "'a) through b'").field("args"), "f.entry(name='a) through b').field(args)"),
        (at("f").inside(at("g").call("h")), "f inside g.call(h)"),
        (at("f").through(at("g").returns()), "f through g.returns"),
        (at("f").inside(at("g")).through(at("h")), "f inside g through h"),
        (at("f").returns().where("kind", "full-1.5"), "f.returns where kind=full-1.5"),
        (at("f").where("k", "v").inside(at("g").where("k", "w")), "f where k=v inside (g where k=w)"),
        (at("f").inside(at("g").through(at("h"))), "f inside (g through h)"),
        (at("f").inside(at("g").inside(at("h"))), "f inside (g inside h)"),
        (at("Tree.left").returns(), "'Tree.left'.returns"),
        (at("module"), "'module'"),
        (at("Größe.messen").returns(), "Größe.messen.returns"),
    ],
)
def test_an_anchor_prints_as_it_reads(anchor: Anchor, text: str) -> None:
    assert str(anchor) == text
    assert parse(text) == anchor


def test_every_anchor_that_a_lock_keeps_reads_back() -> None:
    kept = [
        text
        for lock in sources_dir().glob("*.toml")
        for file in tomllib.loads(lock.read_text("utf-8"))["files"]
        for text in file.get("lines", {})
    ]
    assert len(kept) > 30
    assert [str(parse(text)) for text in kept] == kept


@pytest.mark.parametrize(
    "text",
    [
        "", ".returns", "f.", "f.nosuch(x)", "f.assigns", "f.assigns()", "f.assigns(x", "f.returns(x)", "f.left(x)",
        "f.index", "f.arg(x)", "f.returns extra", "f through", "f inside (g", "f through g through h", "1f",
        "f.assigns('x)",
    ],
)  # fmt: skip
def test_what_is_no_anchor_is_named(text: str) -> None:
    with pytest.raises(DeclarationError, match="is no anchor"):
        parse(text)


def expressions() -> st.SearchStrategy[str]:
    """Python expressions as the syntax tree writes them: names, parts, calls, texts with brackets and quotes."""
    names = st.from_regex(r"[a-zé_][a-z0-9_]{0,5}", fullmatch=True).filter(lambda word: not keyword.iskeyword(word))
    texts = st.text("ab'\"()[]{}, .\\\n1", max_size=8).map(repr)
    atoms = names | texts | st.integers(0, 99).map(str)

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(names, names).map(".".join),
            st.tuples(names, inner, inner).map(lambda p: f"{p[0]}({p[1]}, k={p[2]})"),
            st.tuples(names, inner, inner).map(lambda p: f"{p[0]}[{p[1]}:, {p[2]}]"),
            st.tuples(inner, inner).map(lambda p: f"({p[0]}) + ({p[1]})"),
        )

    grown_once = st.recursive(atoms, grown, max_leaves=6)
    return grown_once.map(lambda text: ast.unparse(ast.parse(text, mode="eval")))


@st.composite
def anchors(draw: st.DrawFn, depth: int = 2) -> Anchor:
    words = st.from_regex(r"[A-Za-z_é][A-Za-z0-9_é]{0,6}", fullmatch=True) | st.sampled_from((*KINDS, "module"))
    anchor = at(".".join(draw(st.lists(words, max_size=3))))
    nth = st.none() | st.integers(-2, 12)
    for kind in draw(st.lists(st.sampled_from((*KINDS,)), max_size=4)):
        if kind in ("assigns", "call"):
            anchor = getattr(anchor, kind)(draw(expressions()), nth=draw(nth))
        elif kind in ("returns", "loop"):
            anchor = getattr(anchor, kind)(nth=draw(nth))
        elif kind in ("argument", "field"):
            anchor = getattr(anchor, kind)(draw(words))
        elif kind == "entry":
            anchor = anchor.entry(draw(words), draw(expressions()))
        elif kind == "index":
            anchor = anchor[draw(st.integers(-2, 12))]
        elif kind == "arg":
            anchor = anchor.arg(draw(st.integers(0, 12)))
        else:
            anchor = getattr(anchor, kind)
    if draw(st.booleans()):
        anchor = anchor.where(draw(words), draw(st.from_regex(r"[\w.-]{1,8}", fullmatch=True)))
    if depth and draw(st.booleans()):
        anchor = anchor.inside(draw(anchors(depth=depth - 1)))
    if depth and draw(st.booleans()):
        anchor = anchor.through(draw(anchors(depth=depth - 1)))
    return anchor


@given(anchors())
def test_any_anchor_comes_back_from_its_print(anchor: Anchor) -> None:
    assert parse(str(anchor)) == anchor
    assert parse(f"{at('f').through(anchor)}") == at("f").through(anchor)
