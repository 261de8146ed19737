"""Source code as HTML: highlighted, numbered, and marked where it computes a node.

Owns the markup of an excerpt, whose colours are in static/code.css. Knows nothing of files, anchors or nodes: it is
given text, spans as `ast` counts them, and where a line number should lead.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import accumulate, pairwise

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

_CLASSES = {
    Comment: "c",
    Keyword: "k",
    Keyword.Constant: "kc",
    Name.Builtin: "nb",
    Name.Builtin.Pseudo: "bp",
    Name.Class: "nc",
    Name.Decorator: "nd",
    Name.Exception: "nb",
    Name.Function: "nf",
    Number: "m",
    Operator.Word: "k",
    String: "s",
    String.Doc: "c",
}
_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class CodeSpan:
    """A stretch of code to mark.

    Lines are counted from 1 as in the file; columns are offsets in bytes of UTF-8 from the start of the line, the
    last one exclusive, as `ast` has them. `node` is the path of the node computed there, `expression` names the
    expression; a span with neither marks nothing.
    """

    first_line: int
    first_col: int
    last_line: int
    last_col: int
    node: str = ""
    expression: str = ""


@dataclass(frozen=True)
class _Stretch:
    """Characters `first` to `last` of the whole text (exclusive), with the attributes that they get."""

    first: int
    last: int
    attributes: str


def excerpt_html(
    code: str, start: int, *, spans: Sequence[CodeSpan] = (), line_link: Callable[[int], str] | None = None
) -> str:
    """Python code as a `<pre class="code">`, a `<span class="line">` for each line, with its number in the file.

    `start` is the number of the first line, `line_link` the address that a line's number leads to. Each span gives
    one `<span data-node data-expression>` on each of its lines, without the space at either end; what lies outside
    of the excerpt is left out. Spans may hold one another; of two that cross, one is divided. The numbers are not
    copied with the code.
    """
    lines = _NEWLINE.split(code)
    text = "\n".join(lines)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))[:-1]
    stretches = sorted(
        (stretch for span in sorted(spans, key=_outermost_first) for stretch in _stretches(span, lines, starts, start)),
        key=lambda stretch: (stretch.first, -stretch.last),
    )
    pieces: list[list[str]] = [[] for _ in lines]
    open_marks: list[_Stretch] = []
    for first, last, css in _cut(text, stretches):
        row = pieces[bisect_right(starts, first) - 1]
        wanted = [stretch for stretch in stretches if stretch.first <= first < stretch.last]
        kept = _common(open_marks, wanted)
        row.append("</span>" * (len(open_marks) - kept))
        row.extend(f"<span {mark.attributes}>" for mark in wanted[kept:])
        open_marks = wanted
        piece = escape(text[first:last], quote=False)
        row.append(f'<span class="{css}">{piece}</span>' if css else piece)
        # A mark ends on the line where it began: the next line has a stretch of its own.
        if last == len(text) or text[last] == "\n":
            row.append("</span>" * len(open_marks))
            open_marks = []
    width = len(str(start + len(lines) - 1))
    rows = "\n".join(
        f'<span class="line" data-line="{number}">{_number(number, width, line_link)}{"".join(row)}</span>'
        for number, row in enumerate(pieces, start)
    )
    label = f"Code, lines {start} to {start + len(lines) - 1}"
    return f'<pre class="code" tabindex="0" role="group" aria-label="{label}"><code>{rows}</code></pre>'


def _number(number: int, width: int, line_link: Callable[[int], str] | None) -> str:
    shown = str(number)
    if line_link is not None:
        # Not a stop of the Tab key: a page has hundreds, and each citation links to its lines.
        href = escape(line_link(number))
        shown = f'<a href="{href}" tabindex="-1" aria-label="Line {number}">{number}</a>'
    return f'<span class="ln">{" " * (width - len(str(number)))}{shown}  </span>'


def _outermost_first(span: CodeSpan) -> tuple[int, int, int, int]:
    return span.first_line, span.first_col, -span.last_line, -span.last_col


def _stretches(span: CodeSpan, lines: list[str], starts: list[int], start: int) -> Iterator[_Stretch]:
    """One for each line of the excerpt that the span touches, less the space around it."""
    names = (("data-node", span.node), ("data-expression", span.expression))
    attributes = " ".join(f'{name}="{escape(value)}"' for name, value in names if value)
    if not attributes:
        return
    for number in range(max(span.first_line, start), min(span.last_line, start + len(lines) - 1) + 1):
        line = lines[number - start]
        first = _characters(line, span.first_col) if number == span.first_line else 0
        last = _characters(line, span.last_col) if number == span.last_line else len(line)
        part = line[first:last]
        first += len(part) - len(part.lstrip())
        last = first + len(part.strip())
        if first < last:
            offset = starts[number - start]
            yield _Stretch(offset + first, offset + last, attributes)


def _characters(line: str, column: int) -> int:
    """How many characters the first `column` bytes of a line hold."""
    return len(line.encode("utf-8", "surrogatepass")[: max(column, 0)].decode("utf-8", "ignore"))


def _cut(text: str, stretches: Sequence[_Stretch]) -> Iterator[tuple[int, int, str]]:
    """The text in pieces of one class each, cut at every edge of a stretch; line ends belong to none."""
    edges = sorted({edge for stretch in stretches for edge in (stretch.first, stretch.last)})
    for first, last, css in _tokens(text):
        inner = edges[bisect_right(edges, first) : bisect_right(edges, last - 1)]
        cuts = [first, *inner, last]
        yield from ((a, b, css) for a, b in pairwise(cuts))


@lru_cache(maxsize=512)
def _tokens(text: str) -> tuple[tuple[int, int, str], ...]:
    """Pygments' tokens as (first, last, class), none across a line end, together all of the text but the line ends."""
    found: list[tuple[int, int, str]] = []
    done = 0
    for first, kind, value in PythonLexer().get_tokens_unprocessed(text):
        if first > done:
            found += _by_line(text, done, first, "")
        found += _by_line(text, first, first + len(value), _class(kind))
        done = first + len(value)
    return (*found, *_by_line(text, done, len(text), ""))


def _by_line(text: str, first: int, last: int, css: str) -> Iterator[tuple[int, int, str]]:
    for part in text[first:last].split("\n"):
        if part:
            yield first, first + len(part), "" if part.isspace() else css
        first += len(part) + 1


def _class(kind: _TokenType) -> str:
    """The class of a kind of token, or of the nearest kind above it that has one."""
    found: _TokenType | None = kind
    while found is not None:
        if found in _CLASSES:
            return _CLASSES[found]
        found = found.parent
    return ""


def _common(one: Sequence[_Stretch], other: Sequence[_Stretch]) -> int:
    """How many of the first elements are the very same."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a is not b:
            break
        count += 1
    return count
