"""Where a file makes values: found in a module of our own, loaded as a reference is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from atlas.provenance.resolution import Module
from atlas.runtime.derivation.statements import Statement, calls, codes, lengths, statements
from atlas.runtime.watch import Loaded

TEXT = """\
class Part:
    def __init__(self, w):
        self.w = w * 2

    def forward(self, x, flag=False):
        y = x * 2
        if flag:
            return y, x + 1
        y += self.inner(x)
        z: int = y - 1
        a, *b, c = self.pair(y, x)
        return [help_it(each) for each in a]

    def inner(self, x):
        return help_it(x) + help_it(-x)

    def pair(self, y, x):
        def nested():
            hidden = y * x
            return hidden
        _ = nested()
        return y


def help_it(x):
    return x
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    path = tmp_path / "made_up_modeling.py"
    path.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("made_up_modeling", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Loaded(module, Module(TEXT, "made_up_modeling.py"))


def test_every_place_that_makes_a_value_is_found_in_order(loaded: Loaded) -> None:
    def told(one: Statement) -> tuple[str, str, int, int | None, str]:
        return one.function, one.name, one.nth, one.element, str(one.anchor)

    assert [told(one) for one in statements(loaded).values()] == [
        ("Part.forward", "y", 1, None, "Part.forward.assigns(y, 1)"),
        ("Part.forward", "returned", 1, 1, "Part.forward.returns(1).index(1)"),
        ("Part.forward", "y", 2, None, "Part.forward.assigns(y, 2)"),
        ("Part.forward", "inner()", 0, None, "Part.forward.call(self.inner)"),
        ("Part.forward", "z", 0, None, "Part.forward.assigns(z)"),
        ("Part.forward", "a", 0, None, "Part.forward.assigns(a)"),
        ("Part.forward", "pair()", 0, None, "Part.forward.call(self.pair)"),
        ("Part.inner", "returned", 0, None, "Part.inner.returns"),
    ]


def test_a_statement_is_the_place_that_its_anchor_leads_to(loaded: Loaded) -> None:
    for one in statements(loaded).values():
        assert loaded.syntax.resolve(one.anchor).text == one.text
        assert one.site.at.offsets


def test_calls_are_known_by_their_instructions(loaded: Loaded) -> None:
    known = calls(loaded)
    inner = loaded.code("Part.inner")
    found = {str(anchor) for (code, _), anchor in known.items() if code == id(inner)}
    assert found == {"Part.inner.call(help_it, 1)", "Part.inner.call(help_it, 2)"}
    assert codes(loaded)[id(inner)] is inner


def test_lines_of_functions(loaded: Loaded) -> None:
    found = lengths(loaded)
    assert (found["Part.inner"], found["help_it"], found["Part.forward"]) == (2, 2, 8)
