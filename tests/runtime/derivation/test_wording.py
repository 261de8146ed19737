"""Words for what was seen, in the names of the code."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas.graph.anchors import at
from atlas.graph.resolve import PATH
from atlas.runtime.derivation.observation import BLOCK_INPUT, Value
from atlas.runtime.derivation.wording import ancestors, free, kebab, leaf_of, sentence, symbol_of, title, titled, what


def value(function: str, name: str, nth: int = 0, **facts: Any) -> Value:
    given_facts = {
        "key": "k",
        "element": None,
        "anchor": at(function).returns(),
        "text": "f(x)",
        "module": "m",
        **facts,
    }
    return Value(function=function, name=name, nth=nth, **given_facts)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torch.matmul(q, k.transpose(2, 3)) * scaling", "matmul, multiply"),
        ("nn.functional.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype)", "softmax"),
        ("hidden_states.pow(2).mean(-1, keepdim=True)", "pow, mean"),
        ("self.q_norm(self.q_proj(x))", "q_norm"),
        ("x.view(shape).transpose(1, 2)", "transpose"),
        ("x[:, None].expand(4, 4)", "take, expand"),
        ("x[..., :3]", "take"),
        ("-torch.exp(a.float())", "exp, negate"),
        ("ACT2FN[act](out)", "ACT2FN[act]"),
        ("residual +\n    x", "add"),
        ("x += update", "add"),
        ("a @ b / c ** 2", "matmul, divide"),
        ("(q * cos) + (rotate_half(q) * sin)", "multiply, add"),
        ("a > 0", "compare"),
        ("x", "compute"),
    ],
)
def test_an_expression_is_said_in_the_words_of_the_code(text: str, words: str) -> None:
    assert what(text) == words


@pytest.mark.parametrize(
    ("name", "path"), [("Olmo2RMSNorm", "olmo2-rms-norm"), ("q_proj", "q-proj"), ("A_log", "a-log"), ("_", "value")]
)
def test_names_become_paths(name: str, path: str) -> None:
    assert kebab(name) == path


@given(st.text(max_size=20))
def test_any_name_becomes_a_path(name: str) -> None:
    assert PATH.fullmatch(kebab(name))


def test_a_path_that_is_taken_is_numbered() -> None:
    assert free("a/x", {"a/x", "a/x-2"}) == "a/x-3"
    assert free("a/x", ()) == "a/x"
    assert ancestors("a/b/c") == ["a", "a/b", "a/b/c"]
    assert ancestors("") == []
    assert (titled("self_attn"), titled("A_log")) == ("Self attn", "A log")


def test_an_assignment_has_the_name_and_number_of_its_variable() -> None:
    second = value("eager_attention_forward", "attn_weights", 2)
    assert title(second) == "attn_weights (2)"
    assert symbol_of(second) == r"\mathtt{attn\_weights}_{2}"
    assert leaf_of(second) == "eager-attention-forward-attn-weights-2"
    assert sentence(second) == "What eager_attention_forward assigns to attn_weights, the 2nd time."
    assert leaf_of(value("Attention.forward", "qkv")) == "qkv"
    assert sentence(value("f", "x", 11)).endswith("the 11th time.")


def test_what_is_returned_has_the_name_of_its_function_or_module() -> None:
    norm, half = value("RMSNorm.forward", "returned"), value("rotate_half", "returned", element=1)
    assert (title(norm), title(half)) == ("result of RMSNorm", "result of rotate_half, part 2")
    assert (symbol_of(norm), leaf_of(half)) == (r"\mathtt{RMSNorm}", "rotate-half-returned-2")
    assert sentence(norm) == "What RMSNorm.forward returns."


def test_the_call_of_a_module_has_the_name_of_the_module() -> None:
    called = value("MLP.forward", "up_proj()")
    assert (title(called), leaf_of(called)) == ("output of up_proj", "up-proj-output")
    assert sentence(called) == "What the module up_proj gives in MLP.forward."
    assert sentence(value("Layer.forward", "x", key=BLOCK_INPUT)) == (
        "What a block is given: the argument x of Layer.forward."
    )
