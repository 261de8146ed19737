"""Slices mean what numpy means by them; what lies outside is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas.errors import BadRequest
from atlas.inspection.slices import parse_slice, remaining

AXES = ("batch", "q_heads", "queries", "keys", "extra")


@st.composite
def tensor_and_slice(draw: st.DrawFn) -> tuple[tuple[int, ...], str]:
    """A shape, and a slice that stays inside it."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    entries = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        at = draw(st.integers(-size, size - 1))
        start, stop = sorted((draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))))
        back = f"{start - size}:{'' if stop == size - 1 else stop + 1 - size}"
        entries.append(draw(st.sampled_from([str(at), ":", f"{start}:{stop + 1}", f"{start}:", f":{stop + 1}", back])))
    return tuple(shape), draw(st.sampled_from([",", " , "])).join(entries)


@settings(deadline=None)
@given(tensor_and_slice())
def test_a_slice_is_numpys(case: tuple[tuple[int, ...], str]) -> None:
    shape, text = case
    array = np.arange(np.prod(shape)).reshape(shape)
    index = parse_slice(text, AXES[: len(shape)], shape)
    expected = eval(f"array[{text or '...'}]", {"array": array})
    assert np.array_equal(array[index], expected)
    assert array[index].ndim == len(remaining(index, AXES[: len(shape)]))


@settings(deadline=None)
@given(st.text(alphabet="0123456789:-, xa.", max_size=12))
def test_any_text_is_a_slice_or_a_clear_refusal(text: str) -> None:
    shape = (3, 4)
    refused = None
    try:
        index = parse_slice(text, AXES[:2], shape)
    except BadRequest as error:
        refused = error
    if refused is None:
        assert np.zeros(shape)[index].size > 0
    else:
        assert refused.hint
        assert refused.status == 422


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0,9", "'q_heads', which has size 9"),
        ("0,-10", "'q_heads', which has size 9"),
        ("0,::", "not a number"),
        ("0,x", "axis 'q_heads', size 9"),
        ("0,3:3", "empty"),
        ("0,5:2", "empty"),
        ("0,0:10", "reaches outside the axis 'q_heads'"),
        ("0,1.5", "not a number"),
        ("0,,1", "not a number"),
        ("0,1,2,3,4", "5 entries, but the tensor has 4 axes"),
        ("9" * 40, "not a number"),
    ],
)
def test_what_is_outside_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_slice(text, AXES[:4], (1, 9, 5, 5))
    assert said in caught.value.detail
    assert caught.value.hint
