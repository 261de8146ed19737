"""What flowed into what: through views, casts, writes in place and calls nobody tells of, but not a lent shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from atlas.runtime.flow import Flow
from atlas.runtime.recorder import Recorder

Body = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def flow_of(body: Body) -> tuple[Flow, torch.Tensor, torch.Tensor, torch.Tensor]:
    flow = Flow()
    with FakeTensorMode():
        a, b = torch.zeros(4, 4), torch.zeros(4, 4)
        flow.name(a, "a", None)
        flow.name(b, "b", None)
        with Recorder((), observer=flow.called):
            out = body(a, b)
        flow.name(out, "out", None)
    return flow, a, b, out


def sources(flow: Flow, key: str = "out") -> set[str]:
    return {name for names in flow.made_of(key, None)[-1] for name, _ in names}


def written(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    cache = torch.zeros(8, 4)
    cache[:4] = a
    cache[4:].copy_(b)
    return cache[2:6]


def added(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    made = a.clone()
    made += b
    return made


def through_out(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    made = torch.empty(4, 4)
    torch.add(a, b, out=made)
    return made


class Same(torch.autograd.Function):
    """Gives its input as another object, of which no call tells."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(_: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


def handed_on(a: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    same: torch.Tensor = Same.apply(a)  # type: ignore[no-untyped-call]
    return same


@pytest.mark.parametrize(
    ("body", "made_of"),
    [
        (lambda a, b: a + b, {"a", "b"}),
        (lambda a, _: a.view(2, 8)[0].float().transpose(0, 0), {"a"}),
        (lambda a, b: torch.cat([a, b])[:2], {"a", "b"}),
        (lambda a, b: torch.where(a > 0, b, 0.0), {"a", "b"}),
        (lambda a, b: a[b.long()[0]], {"a", "b"}),
        (lambda a, b: torch.nn.functional.softmax(a.type_as(b), dim=-1), {"a"}),
        (lambda a, b: a.to(b), {"a"}),
        (lambda a, b: a.view_as(b).expand_as(b), {"a"}),
        (lambda a, b: torch.zeros_like(a) + b, {"b"}),
        (lambda a, b: a.new_ones(4) * b, {"b"}),
        (lambda a, b: torch.full(a.shape, 1.0) * b.shape[0], set()),
        (lambda a, _: a.T.real, {"a"}),
        (handed_on, {"a"}),
        (written, {"a", "b"}),
        (added, {"a", "b"}),
        (through_out, {"a", "b"}),
    ],
)
def test_what_a_value_is_made_of(body: Body, made_of: set[str]) -> None:
    assert sources(flow_of(body)[0]) == made_of


def test_what_was_captured_stands_for_what_it_was_made_of() -> None:
    flow = Flow()
    with FakeTensorMode():
        a = torch.zeros(4)
        flow.name(a, "a", None)
        with Recorder((), observer=flow.called):
            middle = a * 2
            flow.name(middle, "middle", None)
            out = middle.view(2, 2) + 1
        flow.name(out, "out", None)
    assert sources(flow, "middle") == {"a"}
    assert sources(flow) == {"middle"}


def test_a_value_that_is_handed_on_has_both_names() -> None:
    flow = Flow()
    with FakeTensorMode():
        a = torch.zeros(4)
        flow.name(a, "block output", 0)
        flow.name(a, "block input", 1)
        with Recorder((), observer=flow.called):
            out = a + 1
        flow.name(out, "out", 1)
    assert flow.made_of("block input", 1) == [(frozenset({("block output", 0)}),)]
    assert flow.made_of("out", 1) == [(frozenset({("block output", 0), ("block input", 1)}),)]


def test_what_is_written_later_is_no_part_of_what_was_read_before() -> None:
    flow = Flow()
    with FakeTensorMode():
        a, b = torch.zeros(4), torch.zeros(4)
        flow.name(a, "a", None)
        flow.name(b, "b", None)
        with Recorder((), observer=flow.called):
            cache = torch.zeros(8)
            cache[:4] = a
            early = cache[:4] * 1
            cache[4:] = b
            late = cache * 1
        flow.name(early, "early", None)
        flow.name(late, "late", None)
    assert sources(flow, "early") == {"a"}
    assert sources(flow, "late") == {"a", "b"}


def test_another_pass_knows_what_was_named_and_not_what_was_written() -> None:
    flow = Flow()
    with FakeTensorMode():
        a, cache = torch.zeros(4), torch.zeros(4)
        flow.name(a, "a", None)
        following = flow.following()
        with Recorder((), observer=flow.called):
            cache.copy_(a)
        with Recorder((), observer=following.called):
            out = cache * 1
            again = a * 1
        following.name(out, "out", None)
        following.name(again, "again", None)
    assert sources(following, "out") == set()
    assert sources(following, "again") == {"a"}
