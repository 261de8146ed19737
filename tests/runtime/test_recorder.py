"""The recorder on small functions of our own: what it sees, what it copies, and that it leaves nothing behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode

from atlas.errors import AnchorError
from atlas.graph.anchors import Anchor, at
from atlas.provenance.resolution import Module
from atlas.runtime.recorder import Recorder, Recording, storage_key
from atlas.runtime.watch import Loaded

SOURCE = """
import torch
from torch import nn
import torch.nn.functional as F

def give_back(x, times):
    if times == 1:
        return x
    return torch.cat([x] * times)

def spread(x):
    a = give_back(x, 1)
    b = give_back(x, 2)
    return a, b

def in_place(x):
    y = x * 2
    y += 1
    z = y[1:]
    y.zero_()
    return z

def norm(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))

def two_norms(x):
    first = norm(x)
    second = norm(first + 1)
    return second

def pair(x):
    left, right = x.chunk(2)
    return (
        left
        .exp()
        .sum(), right / F.silu(right)
    )

def loop(x):
    for _ in range(3):
        x = x + 1
    return x

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.linear(F.silu(x) * x)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    path = tmp_path_factory.mktemp("reference") / "small_reference.py"
    path.write_text(SOURCE)
    module = ModuleType("small_reference")
    module.__file__ = str(path)
    exec(compile(SOURCE, str(path), "exec"), module.__dict__)
    sys.modules["small_reference"] = module
    try:
        yield Loaded(module, Module(SOURCE, "small_reference.py"))
    finally:
        del sys.modules["small_reference"]


def record(loaded: Loaded, call: str, x: torch.Tensor, **anchors: Anchor) -> Recording:
    with Recorder([loaded.site(key, anchor) for key, anchor in anchors.items()]) as recorder:
        getattr(loaded.module, call)(x)
    return recorder.recording


def value(recording: Recording, key: str) -> torch.Tensor:
    found = recording.last(key)
    assert found is not None
    return found


def test_a_function_that_hands_its_argument_on_is_no_special_case(loaded: Loaded) -> None:
    x = torch.randn(3)
    seen = record(loaded, "spread", x, a=at("spread").assigns("a"), b=at("spread").assigns("b"))
    assert value(seen, "a") is x
    assert torch.equal(value(seen, "b"), torch.cat([x, x]))


def test_values_are_kept_as_they_were_before_an_in_place_write(loaded: Loaded) -> None:
    x = torch.randn(3)
    anchors = {"y": at("in_place").assigns("y", 1), "z": at("in_place").assigns("z")}
    seen = record(loaded, "in_place", x, **anchors)
    assert torch.equal(value(seen, "y"), x * 2)
    assert torch.equal(value(seen, "z"), (x * 2 + 1)[1:])


def test_volatile_storages_are_copied_when_the_recording_ends(loaded: Loaded) -> None:
    x = torch.randn(3)
    site = loaded.site("a", at("spread").assigns("a"))
    with Recorder([site], volatile=[storage_key(x)]) as recorder:
        loaded.module.spread(x)
    x.zero_()
    assert value(recorder.recording, "a").abs().sum() > 0


def test_one_function_called_from_two_places_is_told_apart(loaded: Loaded) -> None:
    x = torch.randn(2, 8)
    root = at("norm").returns().right
    seen = record(
        loaded,
        "two_norms",
        x,
        first=root.inside(at("two_norms").assigns("first")),
        second=root.inside(at("two_norms").assigns("second")),
        both=root,
    )
    assert len(seen.values[("both", None)]) == 2
    assert torch.equal(value(seen, "first"), torch.rsqrt(x.pow(2).mean(-1, keepdim=True)))
    assert not torch.equal(value(seen, "first"), value(seen, "second"))


def test_operands_elements_and_calls_that_span_lines(loaded: Loaded) -> None:
    x = torch.randn(4)
    returned = at("pair").returns()
    seen = record(
        loaded,
        "pair",
        x,
        right=at("pair").assigns("right"),
        total=returned[0],
        quotient=returned[1],
        silu=returned[1].right,
        exponential=returned[0].receiver,
    )
    left, right = x.chunk(2)
    assert torch.equal(value(seen, "right"), right)
    assert torch.equal(value(seen, "total"), left.exp().sum())
    assert torch.equal(value(seen, "exponential"), left.exp())
    assert torch.equal(value(seen, "silu"), nn.functional.silu(right))
    assert torch.equal(value(seen, "quotient"), right / nn.functional.silu(right))


def test_a_loop_gives_every_value(loaded: Loaded) -> None:
    seen = record(loaded, "loop", torch.zeros(1), total=at("loop").assigns("x"))
    assert [v.item() for v in seen.values[("total", None)]] == [1.0, 2.0, 3.0]


def test_arguments_are_taken_on_entry_and_modules_need_no_hook(loaded: Loaded) -> None:
    block = loaded.module.Block()
    x = torch.randn(2, 4)
    sites = [
        loaded.site("x", at("Block.forward").argument("x")),
        loaded.site("out", at("Block.forward").returns()),
        loaded.site("gated", at("Block.forward").returns().arg(0)),
    ]
    with Recorder(sites) as recorder:
        out = block(x)
    assert value(recorder.recording, "x") is x
    assert value(recorder.recording, "out") is out
    assert torch.equal(value(recorder.recording, "gated"), nn.functional.silu(x) * x)
    assert not block._forward_hooks
    assert not block._forward_pre_hooks


def test_nothing_is_left_behind_even_after_an_error() -> None:
    before = sys.gettrace()
    with pytest.raises(RuntimeError), Recorder([]):
        raise RuntimeError
    assert sys.gettrace() is before
    assert _get_current_function_mode() is None  # type: ignore[no-untyped-call]


def test_a_name_has_no_instruction_of_its_own(loaded: Loaded) -> None:
    with pytest.raises(AnchorError, match="no instruction computes it"):
        loaded.site("a", at("loop").returns())
