"""The state in an address: read, written, and put into kept markup."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas.errors import BadRequest
from atlas.graph.axes import VIEWS
from atlas.web.state import State, node_href, open_href, read_state

counts = st.one_of(st.none(), st.integers(0, 100_000))
paths = st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)*(/[a-z0-9]+)*", fullmatch=True).filter(
    lambda path: len(path) <= 100
)  # four of them are at most 600 characters
states = st.builds(
    State,
    view=st.sampled_from(VIEWS),
    run=st.one_of(st.none(), st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)),
    layer=counts,
    step=counts,
    head=counts,
    opened=st.one_of(st.none(), st.lists(paths, max_size=4).map(lambda parts: tuple(sorted(set(parts))))),
    others=st.lists(
        st.tuples(st.sampled_from(["cell", "rows", "zoom"]), st.text(min_size=1, max_size=20)), max_size=3
    ).map(lambda pairs: tuple(dict(pairs).items())),
)


@given(states)
def test_what_is_written_is_read_again(state: State) -> None:
    query = dict(parse_qsl(state.whole_query.removeprefix("?"), keep_blank_values=True))
    assert read_state(query) == state


@given(states)
def test_kept_links_take_any_state(state: State) -> None:
    markup = f'<a href="{node_href("m", "a/b")}">x</a><a href="{open_href("m", "", frozenset({"b", "a"}))}">y</a>'
    filled = state.fill(markup)
    assert f'href="/models/m/a/b{state.query.replace("&", "&amp;")}"' in filled
    opened = state.with_(opened=("a", "b"), others=()).query.replace("&", "&amp;")
    assert f'href="/models/m{opened}"' in filled


def test_nothing_chosen_is_no_query() -> None:
    assert State().query == State().whole_query == ""
    assert State(opened=()).query == "?open="


@pytest.mark.parametrize(
    "query", [{"view": "x"}, {"layer": "1.5"}, {"head": "²"}, {"step": "1e3"}, {"run": "a b"}, {"open": "A"}]
)
def test_what_is_not_understood_is_refused_by_name(query: dict[str, str]) -> None:
    with pytest.raises(BadRequest) as caught:
        read_state(query)
    assert next(iter(query)) in caught.value.detail
    assert caught.value.hint
