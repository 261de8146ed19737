"""Tracked arrays compute what plain ones do, and every element of a result knows what it was made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from atlas.architectures._numeric import contract, silu, softmax
from atlas.inspection.arrays import Array
from atlas.inspection.formulas import SHOWN, Applied, Constant, Formula, Gathered, Leaf
from atlas.inspection.tex import formula_tex, number_tex
from atlas.inspection.tracked import Tracked, Untraceable, track

RANDOM = np.random.default_rng(5)
X, Y, W = RANDOM.normal(size=(2, 3, 4)), RANDOM.normal(size=(2, 3, 4)), RANDOM.normal(size=(5, 4))
IDS = np.array([[3, 0, 4], [1, 1, 2]])

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum of products": lambda x, w: contract("b t d, w d -> b t w", x, w),
    "three factors": lambda x, y, w: contract("b t d, b t d, w d -> b w", x, y, w),
    "matmul": lambda x, w: x @ w.T,
    "elementwise": lambda x, y: (x * y - 2) / (1 + y**2),
    "broadcast": lambda x, w: x[:, :, None, :] + w,
    "softmax": lambda x: softmax(x),
    "silu": lambda x: silu(x),
    "root mean square": lambda x: (np.mean(x**2, axis=-1, keepdims=True) + 1e-5) ** -0.5,
    "layer norm": lambda x: (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.sum(axis=-1, keepdims=True) ** 2 + 1),
    "rotation": lambda x: np.stack([(x[..., 0::2] + 1j * x[..., 1::2]).real, x[..., 1::2]], axis=-1).reshape(x.shape),
    "unit circle": lambda x: np.exp(1j * np.outer(np.arange(3), x[0, 0])),
    "join": lambda x, y: np.concatenate([x, y], axis=1)[:, 1:5],
    "repeat": lambda x: np.repeat(x, 3, axis=2),
    "move": lambda x: np.moveaxis(x, 1, 2).reshape(2, -1),
    "split": lambda x: np.split(x, 2, axis=-1)[1],
    "choose": lambda x, y: np.where(x > 0, x, y),
    "triangle": lambda x: np.triu(x, k=1),
    "largest": lambda x: x.max(axis=-1) - x.min(axis=(0, 1))[:1],
    "take along": lambda x: np.take_along_axis(x, np.argsort(-x, axis=-1, kind="stable")[..., :2], axis=-1),
    "clip": lambda x: np.clip(x, -0.5, 0.5),
    "sorted": lambda x: np.sort(x, axis=-1)[..., -2:].sum(axis=-1),
    "masked rows": lambda x: np.concatenate([x[0][np.array([True, False, True])], x[1][x[1][:, 0] > 0]]),
}


def given(function: Callable[..., Any]) -> dict[str, Array]:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return {name: {"x": X, "y": Y, "w": W}[name] for name in names}


def again(formula: Formula, inputs: dict[str, Array]) -> complex:
    """A formula computed from its leaves alone, sums from their terms and rest."""
    match formula:
        case Leaf(name=name, index=index):
            return complex(inputs[name][index])
        case Constant(value=value):
            return value
        case Gathered(how=how, count=count, shown=shown, rest=rest):
            terms = [again(term, inputs) for term in shown]
            if how in ("max", "min"):
                return terms[0]
            total = sum(terms) + rest
            return total / count if how == "mean" else total
        case Applied(function=function, parts=parts):
            values = [again(part, inputs) for part in parts]
            if function == "pick":
                return values[0]
            if function in ("multiply", "add"):
                return complex(np.prod(values) if function == "multiply" else np.sum(values))
            numbers = [value.real if value.imag == 0 else value for value in values]
            return complex(getattr(np, function)(*numbers))
    raise AssertionError(formula)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_element_can_be_made_again_from_its_formula(name: str) -> None:
    function = FUNCTIONS[name]
    inputs = given(function)
    plain = np.asarray(function(**inputs))
    found = track(function(**{key: Tracked.given(key, value) for key, value in inputs.items()}))
    assert found.shape == plain.shape
    assert np.allclose(found.value, plain, rtol=1e-13)
    for index in np.ndindex(*plain.shape):
        formula = found.formula(index)
        assert np.isclose(formula.value, plain[index], rtol=1e-12)
        assert np.isclose(again(formula, inputs), plain[index], rtol=1e-9)
        assert formula_tex(formula, {"x": "x", "y": "y", "w": "w"})


def test_a_row_that_is_looked_up_names_the_row_and_what_chose_it() -> None:
    found = Tracked.given("weight", W)[Tracked.given("token_ids", IDS)]
    formula = found.formula((1, 2, 3))
    assert isinstance(formula, Applied)
    assert formula.function == "pick"
    assert formula.parts == (Leaf(float(W[2, 3]), "weight", (2, 3)), Leaf(2.0, "token_ids", (1, 2)))


def test_two_indices_choose_together() -> None:
    rows, columns = np.array([1, 0]), np.array([2, 0])
    found = Tracked.given("x", X[0])[Tracked.given("rows", rows), Tracked.given("columns", columns)][:, None]
    formula = found.formula((1, 0))
    assert isinstance(formula, Applied)
    assert formula.parts == (Leaf(float(X[0, 0, 0]), "x", (0, 0)), Leaf(0.0, "rows", (1,)), Leaf(0.0, "columns", (1,)))


def test_a_place_in_an_order_names_what_stands_there() -> None:
    found = track(np.argsort(Tracked.given("x", X), axis=-1)[..., -1])
    formula = found.formula((1, 2))
    best = int(np.argmax(X[1, 2]))
    assert formula == Applied(float(best), "place of", (Leaf(float(X[1, 2, best]), "x", (1, 2, best)),))


def test_a_row_of_a_matrix_that_fits_in_no_memory_is_found() -> None:
    vast = np.broadcast_to(np.float32(7), (1 << 20, 1 << 20))
    found = Tracked.given("weight", vast)[Tracked.given("ids", np.array([123_456]))]
    picked = found.formula((0, 654_321))
    assert isinstance(picked, Applied)
    assert picked.parts[0] == Leaf(7.0, "weight", (123_456, 654_321))


def test_the_largest_terms_of_a_long_sum_are_shown_and_the_rest_adds_up() -> None:
    a, b = RANDOM.normal(size=(1, 1, 500)), RANDOM.normal(size=(2, 500))
    found = track(contract("b t d, w d -> b t w", Tracked.given("a", a), Tracked.given("b", b)))  # type: ignore[arg-type]
    formula = found.formula((0, 0, 1))
    assert isinstance(formula, Gathered)
    assert (formula.how, formula.count, len(formula.shown)) == ("sum", 500, SHOWN[0])
    sizes = sorted(np.abs(a[0, 0] * b[1]), reverse=True)
    assert [abs(term.value) for term in formula.shown] == pytest.approx(sizes[: SHOWN[0]])
    assert sum(term.value for term in formula.shown) + formula.rest == pytest.approx(formula.value)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.asarray(x),
        lambda x: np.cumsum(x),
        lambda x: x.__setitem__(0, 1.0),
        lambda x: np.add(x, 1, out=np.empty(x.shape)),
        lambda x: W[:3, :3][x],
    ],
)
def test_what_is_not_followed_is_refused(function: Callable[[Any], Any]) -> None:
    with pytest.raises((Untraceable, IndexError)):
        function(Tracked.given("x", X))


@pytest.mark.parametrize(
    ("value", "tex"),
    [
        (1.5, "1.5"),
        (-2.0, "-2"),
        (1.25e-7, r"1.25 \cdot 10^{-7}"),
        (float("-inf"), r"-\infty"),
        (float("nan"), r"\mathrm{nan}"),
        (1j, r"\mathrm i"),
        (0.5 - 2j, r"0.5 - 2\,\mathrm i"),
    ],
)
def test_a_number_as_tex(value: complex, tex: str) -> None:
    assert number_tex(value) == tex
