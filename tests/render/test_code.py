"""Code as HTML: its text is the code, its marks nest, and its colours can be read."""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas.render.assets import static_dir
from atlas.render.code import _CLASSES, CodeSpan, excerpt_html

SAMPLE = '''\
def scaled(x, width):  # Größe
    """One docstring
    of two lines."""
    if x is None and width < 3:
        raise ValueError(f"é & <{width}>")
    return (
        f(x, "ß") / math.sqrt(width)
        + 1.5
    )
'''
PAPER, CARD = ("#faf9f6", "#17181a"), ("#ffffff", "#212327")


class Page(HTMLParser):
    """What a browser makes of an excerpt: its text, and the code inside each mark."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.numbers = ""
        self.links: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.marked: list[tuple[dict[str, str | None], str]] = []
        self._open: list[tuple[str, dict[str, str | None], int]] = []
        self.feed(html)
        self.close()
        assert self._open == [], "tags are left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert len({name for name, _ in attrs}) == len(attrs)
        assert {name for name, _ in attrs}.isdisjoint({"style", "onclick"})
        self._open.append((tag, dict(attrs), len(self.text)))

    def handle_endtag(self, tag: str) -> None:
        opened, attributes, began = self._open.pop()
        assert opened == tag, f"</{tag}> closes <{opened}>"
        if "data-node" in attributes or "data-expression" in attributes:
            self.marked.append((attributes, self.text[began:]))

    def handle_data(self, data: str) -> None:
        numbered = [tag for tag, attributes, _ in self._open if attributes.get("class") == "ln"]
        if not numbered:
            self.text += data
            return
        self.numbers += data
        if self._open[-1][0] == "a":
            self.links.append((data, self._open[-1][1]["href"] or ""))

    def marks(self, name: str, value: str) -> list[str]:
        return [text for attributes, text in self.marked if attributes.get(name) == value]


def span_of(code: str, start: int, text: str, node: str = "", expression: str = "") -> CodeSpan:
    """The span that `ast` gives to the expression that reads `text`."""
    for found in ast.walk(ast.parse(code)):
        if isinstance(found, ast.expr) and ast.get_source_segment(code, found) == text:
            first, last = found.lineno + start - 1, (found.end_lineno or 0) + start - 1
            return CodeSpan(first, found.col_offset, last, found.end_col_offset or 0, node, expression)
    raise AssertionError(text)


def test_each_line_has_its_number_in_the_file_and_the_number_is_a_link() -> None:
    page = Page(excerpt_html("a = 1\n\nb = 2", 99, line_link=lambda line: f"https://example.org/f.py?x=1&y=2#L{line}"))
    assert page.text == "a = 1\n\nb = 2"
    assert page.numbers.split() == ["99", "100", "101"]
    assert page.links == [(n, f"https://example.org/f.py?x=1&y=2#L{n}") for n in ("99", "100", "101")]


def test_numbers_stand_without_links_too() -> None:
    page = Page(excerpt_html("a\nb", 9))
    assert page.numbers == " 9  10  "
    assert "a" not in page.tags


def test_numbers_are_not_copied() -> None:
    rule = re.search(r"\.code \.ln \{[^}]*\}", (static_dir() / "code.css").read_text("utf-8"))
    assert rule is not None
    assert "user-select: none" in rule.group()


def test_code_is_escaped_everywhere() -> None:
    html = excerpt_html('x = "</code><script>&amp;"', 1, spans=[CodeSpan(1, 4, 1, 26, '"><b>', "'<i>&")])
    page = Page(html)
    assert page.text == 'x = "</code><script>&amp;"'
    assert set(page.tags) == {"pre", "code", "span"}
    assert page.marked == [({"data-node": '"><b>', "data-expression": "'<i>&"}, '"</code><script>&amp;"')]


def test_a_span_inside_a_span_is_marked_inside_it() -> None:
    whole = 'f(x, "ß") / math.sqrt(width)\n        + 1.5'
    spans = [
        span_of(SAMPLE, 40, 'f(x, "ß") / math.sqrt(width)', node="blocks/attention/scaled"),
        span_of(SAMPLE, 40, 'f(x, "ß")', node="blocks/attention/product", expression="f:46:8"),
        span_of(SAMPLE, 40, whole, expression="f:46:8-47"),
    ]
    html = excerpt_html(SAMPLE, 40, spans=spans)
    page = Page(html)
    assert page.text == SAMPLE
    assert page.marks("data-node", "blocks/attention/product") == ['f(x, "ß")']
    assert page.marks("data-node", "blocks/attention/scaled") == ['f(x, "ß") / math.sqrt(width)']
    assert page.marks("data-expression", "f:46:8-47") == ['f(x, "ß") / math.sqrt(width)', "+ 1.5"]
    order = [
        'data-expression="f:46:8-47"',
        'data-node="blocks/attention/scaled"',
        'data-node="blocks/attention/product"',
    ]
    assert [html.index(mark) for mark in order] == sorted(html.index(mark) for mark in order)


def test_a_span_over_several_lines_is_marked_on_each_without_the_indentation() -> None:
    code = "h = (\n    a +\n\n    # é\n    b\n)"
    page = Page(excerpt_html(code, 1, spans=[CodeSpan(2, 4, 5, 5, "sum")]))
    assert page.marks("data-node", "sum") == ["a +", "# é", "b"]


def test_columns_are_bytes_of_utf_8() -> None:
    code = 'é = "äöü𝄞" + s'
    column = len('é = "äöü𝄞" + '.encode())
    page = Page(excerpt_html(code, 7, spans=[CodeSpan(7, column, 7, column + 1, "s")]))
    assert page.marks("data-node", "s") == ["s"]


@pytest.mark.parametrize(
    "span",
    [
        CodeSpan(1, 0, 4, 3, "n"),
        CodeSpan(8, 0, 9, 2, "n"),
        CodeSpan(5, 99, 5, 120, "n"),
        CodeSpan(5, 3, 5, 3, "n"),
        CodeSpan(5, 0, 5, 3),
    ],
    ids=["before", "after", "right of it", "empty", "of nothing"],
)
def test_a_span_without_code_in_the_excerpt_marks_nothing(span: CodeSpan) -> None:
    assert Page(excerpt_html("abc\n  def\nghi", 5, spans=[span])).marked == []


def test_what_sticks_out_of_the_excerpt_is_left_out() -> None:
    page = Page(excerpt_html("abc\n  def\nghi", 5, spans=[CodeSpan(1, 0, 6, 4, "up"), CodeSpan(6, 4, 30, 1, "down")]))
    assert page.marks("data-node", "up") == ["abc", "de"]
    assert page.marks("data-node", "down") == ["f", "ghi"]


def test_every_kind_of_token_has_its_class() -> None:
    html = excerpt_html(SAMPLE, 1)
    for css, text in (("k", "def"), ("nf", "scaled"), ("kc", "None"), ("k", "and"), ("m", "3"), ("c", "# Größe")):
        assert f'<span class="{css}">{text}</span>' in html
    assert '<span class="nb">ValueError</span>' in html


def test_an_excerpt_that_begins_or_ends_inside_a_construct_keeps_its_text() -> None:
    lines = SAMPLE.splitlines()
    for first in range(len(lines)):
        for last in range(first, len(lines)):
            code = "\n".join(lines[first : last + 1])
            assert Page(excerpt_html(code, first + 1)).text == code


def test_every_class_has_a_readable_colour_in_both_themes() -> None:
    css = (static_dir() / "code.css").read_text("utf-8")
    rules = re.findall(r"([^{}]+)\{([^}]*)\}", re.sub(r"/\*.*?\*/", "", css, flags=re.S))
    coloured = {
        selector.strip(): re.findall(r"#[0-9a-f]{6}", body)
        for selectors, body in rules
        if "light-dark(" in body
        for selector in selectors.split(",")
    }
    assert {f".code .{css_class}" for css_class in _CLASSES.values()} | {".code", ".code .ln"} == set(coloured)
    for selector, colours in coloured.items():
        for colour, *grounds in zip(colours, PAPER, CARD, strict=True):
            for ground in grounds:
                assert contrast(colour, ground) >= 4.5, f"{selector}: {colour} on {ground}"


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2) of `#rrggbb`."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio (WCAG 2.2) of two colours."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


# Lone surrogates are no text: no file decoded from UTF-8 has one. A carriage return ends a line, as in Python.
LINES = st.lists(
    st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=12), min_size=1
)


@st.composite
def nested(draw: st.DrawFn) -> tuple[str, int, list[CodeSpan]]:
    """Some lines and spans in them, each inside, outside or across the others, in any order."""
    lines = draw(LINES)
    start = draw(st.integers(1, 1000))
    places = [
        (number, len(line[:column].encode()))
        for number, line in enumerate(lines, start)
        for column in range(len(line) + 1)
    ]
    spans = []
    for index in range(draw(st.integers(0, 6))):
        first, last = sorted(draw(st.tuples(st.sampled_from(places), st.sampled_from(places))))
        spans.append(CodeSpan(first[0], first[1], last[0], last[1], f"n/{index}", f"e{index}"))
    return "\n".join(lines), start, spans


@given(nested())
def test_the_text_is_the_code_and_every_mark_holds_its_span(sample: tuple[str, int, list[CodeSpan]]) -> None:
    code, start, spans = sample
    page = Page(excerpt_html(code, start, spans=spans, line_link=str))
    assert page.text == code
    for span in spans:
        parts = []
        for number, line in enumerate(code.split("\n"), start):
            if span.first_line <= number <= span.last_line:
                raw = line.encode()
                last = span.last_col if number == span.last_line else len(raw)
                first = span.first_col if number == span.first_line else 0
                parts.append(raw[first:last].decode().strip())
        # A crossing span is divided, so only the whole of its pieces is certain.
        assert "".join(page.marks("data-node", span.node)) == "".join(parts)


@given(LINES, st.integers(0, 5))
def test_any_python_like_text_comes_back(lines: list[str], cut: int) -> None:
    code = "\n".join([*SAMPLE.split("\n")[cut:], *lines])
    assert Page(excerpt_html(code, 1)).text == code
