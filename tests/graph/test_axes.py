"""Axes: what each is called and how large it is in each view."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas.errors import DeclarationError
from atlas.graph.axes import STANDARD_AXES, VIEWS, Axes, Axis, View, in_words

SIZES = {
    "layers": 32, "d_model": 4096, "q_heads": 32, "kv_heads": 8, "head_dim": 128, "d_mlp": 14336, "vocab": 128256,
    "pairs": 64, "q_width": 4096, "kv_width": 1024, "one": 1,
}  # fmt: skip


def words(names: str, view: View) -> str:
    axes = Axes()
    return in_words(tuple(axes.extent(name, SIZES, view) for name in names.split()))


@pytest.mark.parametrize(
    ("names", "full", "prefill", "decode"),
    [
        ("batch", "[B batch]", "[B batch]", "[B batch]"),
        ("positions", "[T positions]", "[P positions]", "[1 position]"),
        ("queries", "[T queries]", "[P queries]", "[1 query]"),
        ("keys", "[T keys]", "[P keys]", "[T_k keys]"),
        ("layers", "[32 layers]", "[32 layers]", "[32 layers]"),
        ("d_model", "[4096 d]", "[4096 d]", "[4096 d]"),
        ("q_heads head_dim", "[32 q heads, 128 head dim]", "[32 q heads, 128 head dim]", "[32 q heads, 128 head dim]"),
        ("kv_heads", "[8 kv heads]", "[8 kv heads]", "[8 kv heads]"),
        ("d_mlp", "[14336 mlp]", "[14336 mlp]", "[14336 mlp]"),
        ("vocab", "[128256 vocab]", "[128256 vocab]", "[128256 vocab]"),
        ("pairs", "[64 pairs]", "[64 pairs]", "[64 pairs]"),
        ("q_width kv_width", *["[4096 q width, 1024 kv width]"] * 3),
        ("one", "[1 one]", "[1 one]", "[1 one]"),
        (
            "batch q_heads queries keys",
            "[B batch, 32 q heads, T queries, T keys]",
            "[B batch, 32 q heads, P queries, P keys]",
            "[B batch, 32 q heads, 1 query, T_k keys]",
        ),
        (
            "batch positions d_model",
            "[B batch, T positions, 4096 d]",
            "[B batch, P positions, 4096 d]",
            "[B batch, 1 position, 4096 d]",
        ),
    ],
)
def test_a_shape_is_said_in_words_in_each_view(names: str, full: str, prefill: str, decode: str) -> None:
    assert [words(names, view) for view in VIEWS] == [full, prefill, decode]


def test_a_fixed_axis_of_one_is_singular() -> None:
    axes = Axes()
    assert str(axes.extent("kv_heads", {"kv_heads": 1}, "full")) == "1 kv head"
    assert str(axes.extent("d_model", {"d_model": 1}, "full")) == "1 d"


@pytest.mark.parametrize(
    ("name", "near"), [("positoins", "'positions'"), ("heads", "'q_heads'"), ("qqq", "Declare it")]
)
def test_an_unknown_axis_is_named_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        Axes()[name]
    assert repr(name) in caught.value.detail
    assert near in caught.value.hint


def test_a_fixed_axis_without_a_size_is_named() -> None:
    with pytest.raises(DeclarationError, match="'d_mlp' has no size"):
        Axes().extent("d_mlp", {}, "full")


def test_an_architecture_adds_axes_of_its_own() -> None:
    experts = Axis(name="experts", symbol="E", words="experts", word="expert", meaning="Networks to choose from.")
    axes = Axes((experts,))
    assert axes["experts"] is experts
    assert str(axes.extent("experts", {"experts": 8}, "decode")) == "8 experts"


def test_an_axis_of_any_size_says_so() -> None:
    chunks = Axis(
        name="chunks",
        symbol="N",
        words="chunks",
        meaning="As many as it takes.",
        running=dict.fromkeys(VIEWS, "N"),
        free=True,
    )
    extent = Axes((chunks,)).extent("chunks", {}, "decode")
    assert (extent.free, extent.size, str(extent)) == (True, None, "N chunks")
    assert not Axes().extent("batch", {}, "decode").free


@given(
    st.lists(st.sampled_from(STANDARD_AXES), max_size=6),
    st.fixed_dictionaries({axis.name: st.integers(1, 10**9) for axis in STANDARD_AXES if axis.running is None}),
    st.sampled_from(VIEWS),
)
def test_every_shape_of_known_axes_has_extents(shape: list[Axis], sizes: dict[str, int], view: View) -> None:
    axes = Axes()
    extents = tuple(axes.extent(axis.name, sizes, view) for axis in shape)
    for axis, extent in zip(shape, extents, strict=True):
        assert extent.axis == axis.name
        if axis.running is None:
            assert (extent.size, extent.symbol) == (sizes[axis.name], axis.symbol)
        else:
            given_size = axis.running[view]
            assert extent.size == (given_size if isinstance(given_size, int) else None)
            assert extent.symbol == str(given_size)
        assert extent.words == (axis.word if extent.size == 1 and axis.word else axis.words)
    text = in_words(extents)
    assert text.startswith("[")
    assert text[1:-1].split(", ") == [str(extent) for extent in extents] or not extents
