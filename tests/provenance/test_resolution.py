"""Anchors against syntax: the one place that each names, its lines, and the instructions that compute it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from atlas.errors import AnchorError
from atlas.graph.anchors import Anchor, at
from atlas.graph.evidence import SourceRef
from atlas.provenance.locks import Locks
from atlas.provenance.resolution import Module
from atlas.provenance.store import SourceStore
from atlas.render.assets import sources_dir
from atlas.runtime.watch import matching_offsets

TEXT = '''\
import torch

LIMIT = 8
ENTRIES = [
    Entry(name="small", args={"dim": 64}),
    Entry(name="large (two)", args={"dim": 128}),
]


class Layer:
    width: int = 4

    @torch.no_grad()
    def forward(self, x, y=None, *, größe: float = 1.0):
        """Text."""
        a, b = self.split(x)
        c, d = x * 2, x + 3
        h = self.norm(x) @ self.weight
        h = h / -1 if y is None else h / y
        if größe > 1 and (größe := self.scaled(größe)):
            h += größe
        self.cache[:1, 0:2] = a
        for step in range(3):
            h = self.layers[step](h)
        parts = [self.twice(p) for p in self.parts(h)]
        late = lambda: self.never(h)
        first, *rest, last = parts
        joined = (
            torch.cat(parts, dim=0)
            .transpose(0, 1)
            .contiguous()
        )

        def inner(z):
            return z * 5

        return joined, inner(self.w2(silu(self.w1(x)) * self.w3(x)))

    def left(self):
        if LIMIT:
            return self.width
        return LIMIT
'''
FORWARD = at("Layer.forward")


@pytest.fixture(scope="module")
def module() -> Module:
    return Module(TEXT, "made-up:layer.py")


@pytest.mark.parametrize(
    ("anchor", "text", "lines"),
    [
        (at("").assigns("LIMIT"), "8", (3, 3)),
        (at("").entry("name", "'large (two)'").field("args"), "{'dim': 128}".replace("'", '"'), (6, 6)),
        (at("Layer").field("width"), "width: int = 4", (11, 11)),
        (FORWARD.argument("x"), "x", (14, 14)),
        (FORWARD.argument("größe"), "größe: float", (14, 14)),
        (FORWARD.assigns("a"), "self.split(x)", (16, 16)),
        (FORWARD.assigns("d"), "x + 3", (17, 17)),
        (FORWARD.assigns("h", 1).left, "self.norm(x)", (18, 18)),
        (FORWARD.assigns("h", 1).right, "self.weight", (18, 18)),
        (FORWARD.assigns("h", 1).left.receiver, "self", (18, 18)),
        (FORWARD.assigns("h", 1).call("self.norm").arg(0), "x", (18, 18)),
        (FORWARD.call("self.scaled"), "self.scaled(größe)", (20, 20)),
        (FORWARD.assigns("h", 3), "h += größe", (21, 21)),
        (FORWARD.assigns("self.cache[:1, 0:2]"), "self.cache[:1, 0:2] = a", (22, 22)),
        (FORWARD.loop(), "for step in range(3):\n            h = self.layers[step](h)", (23, 24)),
        (FORWARD.loop().call("range"), "range(3)", (23, 23)),
        (FORWARD.call("self.parts"), "self.parts(h)", (25, 25)),
        (FORWARD.assigns("first"), "parts", (27, 27)),
        (FORWARD.returns()[0], "joined", (37, 37)),
        (FORWARD.returns()[1].call("self.w2").arg(0).left.call("self.w1"), "self.w1(x)", (37, 37)),
        (FORWARD.returns()[1].call("silu"), "silu(self.w1(x))", (37, 37)),
        (at("Layer.forward.inner").returns(), "z * 5", (35, 35)),
        (at("Layer.left").returns(2), "LIMIT", (42, 42)),
    ],
    ids=lambda value: str(value) if isinstance(value, Anchor) else "",
)
def test_an_anchor_names_one_place(module: Module, anchor: Anchor, text: str, lines: tuple[int, int]) -> None:
    place = module.resolve(anchor)
    assert (place.text, place.lines) == (text, lines)


def test_a_definition_begins_at_its_decorators(module: Module) -> None:
    assert module.resolve(FORWARD).lines == (13, 37)
    assert module.excerpt(13, 14) == "    @torch.no_grad()\n    def forward(self, x, y=None, *, größe: float = 1.0):"
    assert module.resolve(at("")).lines == (1, 42)


def test_a_stretch_goes_from_the_first_place_to_the_last(module: Module) -> None:
    assert module.resolve(FORWARD.assigns("a").through(at("Layer.left"))).lines == (16, 42)
    with pytest.raises(AnchorError, match="ends before it begins"):
        module.resolve(at("Layer.left").through(FORWARD))


def test_an_element_of_what_is_unpacked_is_counted(module: Module) -> None:
    assert module.resolve(FORWARD.assigns("b")).element == 1
    assert module.resolve(FORWARD.assigns("d")).element is None, "a tuple's own element is an expression by itself"
    assert module.resolve(FORWARD.returns()[1]).element is None


@pytest.mark.parametrize(
    ("anchor", "says"),
    [
        (at("Layer.backward"), "defines no 'Layer.backward'"),
        (FORWARD.assigns("h"), r"4 matches of assigns\(h\), where one was expected"),
        (FORWARD.assigns("h", 5), r"there are 4 matches of assigns\(h, 5\)"),
        (FORWARD.assigns("h", 0), "there are 4 matches"),
        (FORWARD.assigns("nothing"), "0 matches"),
        (FORWARD.assigns("last"), "0 matches"),
        (FORWARD.argument("z"), "there is no argument 'z'"),
        (at("").argument("x"), "there is no argument 'x'"),
        (FORWARD.argument("x").left, "nothing can follow an argument"),
        (FORWARD.assigns("b").left, "nothing can follow an argument or an unpacked element"),
        (FORWARD.returns()[2], r"0 matches of index\(2\)"),
        (FORWARD.assigns("h", 1).call("self.norm").arg(1), r"0 matches of arg\(1\)"),
        (FORWARD.returns().left, "0 matches of left"),
        (FORWARD.call("self.never"), "0 matches"),
        (FORWARD.call("self.twice"), "0 matches"),
        (at("Layer.left").returns(), "2 matches of returns"),
        (at("Layer.forward.inner").loop(), "0 matches of loop"),
    ],
)
def test_an_anchor_that_names_no_place_or_several_says_so(module: Module, anchor: Anchor, says: str) -> None:
    with pytest.raises(AnchorError, match=says) as caught:
        module.resolve(anchor)
    assert "made-up:layer.py" in caught.value.detail or "nothing can follow" in caught.value.detail


@pytest.mark.parametrize(
    "anchor",
    [
        FORWARD.returns(),
        FORWARD.returns()[0],
        FORWARD.assigns("first"),
        FORWARD.assigns("h", 2).call("self.norm"),
        at("Layer.forward.inner"),
        at("").assigns("LIMIT"),
        FORWARD.loop(),
        FORWARD.assigns("self.cache[:1, 0:2]"),
    ],
    ids=str,
)
def test_what_no_instruction_computes_cannot_be_hooked(module: Module, anchor: Anchor) -> None:
    with pytest.raises(AnchorError, match=r"no instruction computes it|matches of"):
        module.watchable(anchor)


def test_what_the_compiler_computes_cannot_be_hooked() -> None:
    module = Module("def f(x):\n    y = -1\n    z = 2 * -3\n    w = x is None\n    v = x < 1\n", "f.py")
    for name in ("y", "z", "w"):
        with pytest.raises(AnchorError, match="no instruction computes it"):
            module.watchable(at("f").assigns(name))
    assert module.watchable(at("f").assigns("v")).span is not None


def test_a_file_that_is_no_python_is_named() -> None:
    with pytest.raises(AnchorError, match=r"f\.py cannot be parsed"):
        Module("def (", "f.py")


def test_lines_are_counted_as_python_counts_them() -> None:
    module = Module("a = 1\n\x0c\nb = '\u2028'\r\nc = 3\rd = 4", "f.py")
    for name, line in (("a", 1), ("b", 3), ("c", 4), ("d", 5)):
        found = module.resolve(at("").assigns(name))
        assert found.lines == (line, line)
        assert module.excerpt(line, line).startswith(f"{name} = ")
    assert module.resolve(at("").assigns("b")).text == "'\u2028'"


def test_the_text_of_a_node_is_what_python_says_it_is(module: Module) -> None:
    nodes = [node for node in ast.walk(module.tree) if isinstance(node, ast.expr | ast.stmt | ast.arg)]
    assert len(nodes) > 150
    for node in nodes:
        assert module.segment(node) == ast.get_source_segment(TEXT, node)


# --- against what the compiler says


def codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """All code objects in one, by the qualified names that anchors use."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname.replace(".<locals>", ""), constant
            yield from codes(constant)


def reference() -> Module:
    store = SourceStore(Locks.read(sources_dir()), Path("nowhere"))
    return store.read(SourceRef(source="llama-models", path="models/llama3/model.py")).module


@pytest.mark.parametrize("name", ["made-up", "reference"])
def test_every_expression_has_instructions_that_no_other_has(name: str, module: Module) -> None:
    checked = module if name == "made-up" else reference()
    compiled = dict(codes(compile(checked.text, checked.name, "exec")))
    count, owners = 0, dict[tuple[str, int], str]()
    for function in checked.functions():
        for place in checked.expressions(function):
            offsets = matching_offsets(compiled[function], place)
            assert offsets, f"line {place.lines[0]}: {place.text}"
            for offset in offsets:
                other = owners.setdefault((function, offset), place.text)
                assert other == place.text, f"line {place.lines[0]}: {place.text} and {other}"
            count += 1
    assert count == {"made-up": 38, "reference": 365}[name]


def test_expressions_of_other_code_objects_are_left_to_them(module: Module) -> None:
    texts = {place.text for place in module.expressions("Layer.forward")}
    assert {"self.parts(h)", "inner(self.w2(silu(self.w1(x)) * self.w3(x)))"} <= texts
    assert texts.isdisjoint({"self.twice(p)", "self.never(h)", "z * 5"})
