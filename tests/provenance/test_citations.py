"""Citations: the lines, links, excerpts and licence that a page prints for a piece of evidence."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas.errors import AnchorError
from atlas.graph.anchors import Anchor, at
from atlas.graph.evidence import Evidence, SourceRef
from atlas.provenance.citations import Piece, _merged, cite, constants
from atlas.provenance.store import SourceStore

MakeStore = Callable[..., SourceStore]
TEXT = """\
SIZE = 128


def build(
    width: int = 4,
):
    first = width * 2
    second = first + 1

    return first, second


CONFIG = dict(
    values={"dim": 64, "vocab": SIZE, "eps": 1e-05, "scaled": False, "factor": None},
    names={"dim": "sixty-four"},
    sums={"dim": 32 * 2},
)
"""
REF = SourceRef(source="made-up", path="model.py")
FIRST, SECOND = at("build").assigns("first"), at("build").assigns("second")


def evidence(*anchors: Anchor) -> Evidence:
    return Evidence(id="e", kind="direct", claim="It is doubled.", file=REF, anchors=anchors)


def test_a_citation_has_lines_links_licence_and_excerpt(make_store: MakeStore) -> None:
    store = make_store(**{"made-up": {"model.py": TEXT}})
    citation = cite(evidence(at("build").returns(), FIRST), store)
    base = f"https://example.org/somebody/made-up/blob/{'0123456789' * 4}/model.py"
    assert citation.lines == ((7, 7), (10, 10))
    assert citation.url == f"{base}#L7-L7"
    assert citation.links == (f"{base}#L7-L7", f"{base}#L10-L10")
    assert citation.excerpt == (
        Piece(start=7, end=7, code="    first = width * 2"),
        Piece(start=10, end=10, code="    return first, second"),
    )
    assert (citation.available, citation.missing) == (True, "")
    assert (citation.license, citation.license_url) == ("CC0-1.0", "https://example.org/license")
    assert citation.short_revision == "012345678901"
    assert citation.sha256 == store.locks["made-up"].files[0].sha256


def test_lines_that_touch_are_one_piece(make_store: MakeStore) -> None:
    store = make_store(**{"made-up": {"model.py": TEXT}})
    assert cite(evidence(SECOND, FIRST), store).lines == ((7, 8),)
    assert cite(evidence(FIRST, at("build")), store).lines == ((4, 10),)


def test_an_argument_is_cited_with_the_head_of_its_function(make_store: MakeStore) -> None:
    store = make_store(**{"made-up": {"model.py": TEXT}})
    citation = cite(evidence(at("build").argument("width")), store)
    assert citation.lines == ((4, 5),)
    assert citation.excerpt[0].code == "def build(\n    width: int = 4,"


def test_without_the_file_the_lines_of_the_lock_stand_and_the_reason_is_given(make_store: MakeStore) -> None:
    store = make_store({str(FIRST): (7, 7)}, **{"made-up": {"model.py": TEXT}})
    store.cached_path(store.locks["made-up"], "model.py").unlink()
    citation = cite(evidence(FIRST), store)
    assert (citation.lines, citation.available, citation.excerpt) == (((7, 7),), False, ())
    assert citation.missing == "somebody/made-up model.py is not on this machine. Run: atlas sources sync made-up"


def test_without_the_file_and_without_a_line_in_the_lock_there_is_no_citation(make_store: MakeStore) -> None:
    store = make_store({str(FIRST): (7, 7)}, **{"made-up": {"model.py": TEXT}})
    store.cached_path(store.locks["made-up"], "model.py").unlink()
    with pytest.raises(AnchorError, match=r"does not keep the lines of build.assigns\(second\)"):
        cite(evidence(FIRST, SECOND), store)


def test_a_file_that_disagrees_with_its_lock_is_an_error_that_names_both(make_store: MakeStore) -> None:
    store = make_store({str(FIRST): (8, 9)}, **{"made-up": {"model.py": TEXT}})
    with pytest.raises(AnchorError, match=r"build.assigns\(first\) is at lines 7-7, the lock says 8-9"):
        cite(evidence(FIRST), store)


def test_a_configuration_is_read_from_the_source_with_its_constants(make_store: MakeStore) -> None:
    store = make_store(**{"made-up": {"model.py": TEXT}})
    found = constants(REF, at("").assigns("CONFIG").field("values"), store)
    assert dict(found) == {"dim": 64, "vocab": 128, "eps": 1e-05, "scaled": False, "factor": None}
    assert [type(value) for value in found.values()] == [int, int, float, bool, type(None)]


@pytest.mark.parametrize(
    ("anchor", "says"),
    [
        (at("").assigns("CONFIG").field("names"), "'sixty-four' is no number"),
        (at("").assigns("CONFIG").field("sums"), r"32 \* 2 is no plain value"),
        (at("").assigns("SIZE"), "is no dictionary"),
        (at("").assigns("CONFIG").field("nothing"), r"0 matches of field\(nothing\)"),
    ],
)
def test_what_is_no_plain_configuration_is_refused(make_store: MakeStore, anchor: Anchor, says: str) -> None:
    store = make_store(**{"made-up": {"model.py": TEXT}})
    with pytest.raises(AnchorError, match=says):
        constants(REF, anchor, store)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair)))))
def test_merged_lines_are_the_same_lines_in_fewest_pieces(ranges: list[tuple[int, int]]) -> None:
    merged = _merged(ranges)
    assert {n for a, b in merged for n in range(a, b + 1)} == {n for a, b in ranges for n in range(a, b + 1)}
    assert all(before[1] + 1 < after[0] for before, after in pairwise(merged))
