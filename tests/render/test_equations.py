"""Equations as markup, symbols as plain text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser

import pytest

from atlas.errors import EquationError
from atlas.render import equations


class Markup(HTMLParser):
    """The elements of a piece of HTML, with their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_an_equation_is_html_to_see_and_mathml_to_hear() -> None:
    elements = Markup(equations.render(r"A = \operatorname{softmax}(S)")).elements
    assert ("span", {"class": "katex-html", "aria-hidden": "true"}) in elements
    assert any(tag == "math" for tag, _ in elements)


def test_display_is_a_block_of_its_own() -> None:
    assert "katex-display" in equations.render("x", display=True)
    assert "katex-display" not in equations.render("x")


def test_a_light_marks_its_symbol_with_the_node() -> None:
    tex = r"\htmlData{node=blocks/attention/similarities}{S} = \htmlData{node=rotary/queries}{Q} K^\top"
    marks = [attributes.get("data-node") for _, attributes in Markup(equations.render(tex)).elements]
    nodes = [mark for mark in marks if mark is not None]
    assert nodes == ["blocks/attention/similarities", "rotary/queries"]


def test_a_light_cannot_break_out_of_its_attribute() -> None:
    elements = Markup(equations.render(r"\htmlData{node=a\" onclick=\"x()}{Q}<y>")).elements
    assert {tag for tag, _ in elements} <= {"span", "math", "semantics", "mrow", "mi", "mo", "annotation"}
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]


@pytest.mark.parametrize(
    "tex",
    [
        r"\frac{a}",
        r"\nosuch{x}",
        r"\href{javascript:alert(1)}{x}",
        r"\url{x}",
        r"\includegraphics{x.png}",
        r"\htmlClass{a}{x}",
        r"\htmlId{a}{x}",
        r"\htmlStyle{color:red}{x}",
        "é",
        r"\text{a # b}",
    ],
)
def test_what_cannot_or_may_not_be_drawn_is_an_error_that_names_it(tex: str) -> None:
    for draw in (equations.render, equations.text, equations.tspans):
        with pytest.raises(EquationError, match=re.escape(repr(tex))):
            draw(tex)


@pytest.mark.parametrize("tex", ["", "  "])
def test_an_empty_equation_is_an_error(tex: str) -> None:
    with pytest.raises(EquationError, match="empty"):
        equations.render(tex)


def test_threads_draw_what_one_draws() -> None:
    many = [rf"x_{{{n}}} + \sqrt{{y^{{{n}}}}}" for n in range(40)]
    with ThreadPoolExecutor(max_workers=4) as threads:
        drawn = list(threads.map(equations.render, many))
    equations.render.cache_clear()
    assert drawn == [equations.render(tex) for tex in many]


@pytest.mark.parametrize(
    ("tex", "plain"),
    [
        ("x", "x"),
        (r"\Delta_{\mathrm{attn}}", "Δ_attn"),
        ("x_{n+1}", "x_n+1"),
        (r"\tilde{S}", "S̃"),
        (r"\hat{\mathbf{x}}_1", "x̂_1"),
        (r"\bar{x}", "x̄"),
        (r"x'_i", "x′_i"),
        (r"W_Q^{\top}", "W_Q^⊤"),
        (r"K_{\le t}^{(\ell)}", "K_≤t^(ℓ)"),
        (r"\omega_i'", "ω′_i"),
        (r"d_{\text{model}}", "d_model"),
        (r"x_{d_1}", "x_d_1"),
        (r"\sqrt{h}", "√h"),
        (r"\sqrt{d_h}", "√(d_h)"),
        (r"\frac{1}{\sqrt{h}}", "1/(√h)"),
        (r"\frac{a+b}{c}", "(a+b)/c"),
        (r"\operatorname{SiLU}(g)", "SiLU(g)"),
        (r"\text{token ids}", "token ids"),
        (r"a\,b\quad c", "a b c"),
        (r"\htmlData{node=blocks/attention/queries}{Q}_{\mathrm{rot}}", "Q_rot"),
    ],
)
def test_a_symbol_reads_as_plain_text(tex: str, plain: str) -> None:
    assert equations.text(tex) == plain


def test_an_svg_label_comes_back_to_the_line() -> None:
    label = equations.svg_label(r"W_Q^\top < x_i")
    spans = list(ET.fromstring(f"<text>{label}</text>"))
    assert [span.text for span in spans] == ["W", "Q", "⊤", "<", "x", "i", "\u200b"]
    sizes = [float(span.get("font-size", "100%").removesuffix("%")) / 100 for span in spans]
    moves = [float(span.get("dy", "0em").removesuffix("em")) * size for span, size in zip(spans, sizes, strict=True)]
    assert moves[1] > 0 > moves[2], "a subscript goes down, a superscript up"
    assert sum(moves) == pytest.approx(0, abs=0.01)
    assert sum(moves[:4]) == pytest.approx(0, abs=0.01)
    assert sizes[0] == sizes[3] == 1 > sizes[1] == sizes[2]


@pytest.mark.parametrize(
    ("tex", "letters"),
    [
        ("x_{n+1}", ["x", "n"]),
        (r"\Delta_{\mathrm{attn}}", []),
        (r"\bar K", ["K\u0304"]),
        (r"\omega'", ["ω"]),
        ("T_k", ["T", "k"]),
        ("2i", ["i"]),
    ],
)
def test_letters_that_stand_alone_are_marked(tex: str, letters: list[str]) -> None:
    spans = ET.fromstring(f"<text>{equations.svg_label(tex)}</text>")
    assert [span.text for span in spans if span.get("class") == "letter"] == letters


@pytest.mark.parametrize(
    ("tex", "runs"),
    [
        ("x", [("x", "base")]),
        (r"\Delta_{\mathrm{attn}}", [("Δ", "base"), ("attn", "sub")]),
        (r"W_Q^\top x", [("W", "base"), ("Q", "sub"), ("⊤", "sup"), ("x", "base")]),
        (r"x_{d_{\mathrm{mlp}}}", [("x", "base"), ("d_mlp", "sub")]),
        (r"x_1 + y", [("x", "base"), ("1", "sub"), ("+y", "base")]),
    ],
)
def test_a_label_has_one_run_for_each_change_of_level(tex: str, runs: list[tuple[str, str]]) -> None:
    assert list(equations.tspans(tex)) == runs
