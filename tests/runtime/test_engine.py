"""The engine on the real default model: runs as values, requests, refusals, cancelling, giving memory up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import torch

from atlas.errors import AtlasError, BadRequest, Conflict, NoCheckpoint, NotComputed, NotFound, TooLarge, TooMany
from atlas.runtime.engine import Engine
from atlas.runtime.runs import RunRequest, RunView

MODEL = "smollm2-135m"
UPDATE = "blocks/attention/attention-update"


def order(
    ids: tuple[int, ...], new: int = 3, temperature: float = 0.0, seed: int = 0, model: str = MODEL
) -> RunRequest:
    return RunRequest(model=model, token_ids=ids, max_new_tokens=new, temperature=temperature, seed=seed)


def finish(engine: Engine, request: RunRequest) -> RunView:
    view = engine.submit(request)
    deadline = time.monotonic() + 120
    while view.status in ("queued", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
        view = engine.view(view.id)
    return view


def get(engine: Engine, run: str, node: str, view: str, layer: int | None = 0, step: int | None = None) -> torch.Tensor:
    return engine.request(run, [node], view, layer, step).result(60)[node].tensor


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_demonstration_runs_by_itself(engine: Engine) -> None:
    assert engine.demonstration is not None
    view = engine.view(engine.demonstration)
    assert view.status == "done"
    assert view.tokens[5].text == " Paris"
    assert view.steps == sum(token.origin == "generated" for token in view.tokens) - 1


def test_the_same_request_is_the_same_run(engine: Engine) -> None:
    first = finish(engine, order((504, 3575, 282)))
    assert engine.submit(order((504, 3575, 282))).id == first.id
    assert engine.submit(order((504, 3575, 282), seed=1)).id != first.id
    assert engine.submit(order((504, 3575), 3)).id != first.id


def test_sampling_is_repeatable(engine: Engine) -> None:
    first = finish(engine, order((504, 3575, 282), 8, temperature=1.5, seed=7))
    engine.delete(first.id)
    again = finish(engine, order((504, 3575, 282), 8, temperature=1.5, seed=7))
    other = finish(engine, order((504, 3575, 282), 8, temperature=1.5, seed=8))
    assert [t.id for t in first.tokens] == [t.id for t in again.tokens]
    assert [t.id for t in first.tokens] != [t.id for t in other.tokens]


def test_shapes_in_each_view(engine: Engine) -> None:
    run = finish(engine, order((504, 3575, 282, 4649, 314), 4))
    assert get(engine, run.id, UPDATE, "prefill").shape == (1, 5, 576)
    assert get(engine, run.id, UPDATE, "decode", 29, 3).shape == (1, 1, 576)
    assert get(engine, run.id, UPDATE, "full").shape == (1, 9, 576)
    assert get(engine, run.id, "blocks/attention/key-cache", "decode", 0, 2).shape == (1, 7, 3, 64)
    assert get(engine, run.id, "rotary/rotations", "decode", None, 1).dtype == torch.complex64
    assert get(engine, run.id, "token-ids", "full", None).tolist() == [[token.id for token in run.tokens]]
    assert get(engine, run.id, "blocks/attention/output-weight", "full", 3).shape == (576, 576)
    assert get(engine, run.id, "rotary/inverse-frequencies", "full", None).shape == (32,)


def test_decode_equals_the_full_sequence_row_by_row(engine: Engine) -> None:
    run = finish(engine, order((504, 3575, 282, 4649, 314), 4))
    for layer in (0, 15, 29):
        full = get(engine, run.id, "blocks/block-output", "full", layer)[0].double()
        for step in range(1, run.steps + 1):
            row = get(engine, run.id, "blocks/block-output", "decode", layer, step)[0, 0].double()
            position = run.prompt_length + step - 1
            assert (row - full[position]).norm() / row.norm() < 5e-6


def test_a_run_that_gave_its_memory_up_gives_the_same_bytes(engine: Engine) -> None:
    run = finish(engine, order((504, 3575, 282, 4649, 314), 5, temperature=1.0))
    before = get(engine, run.id, "blocks/attention/head-outputs", "decode", 7, 3).clone()
    full = get(engine, run.id, UPDATE, "full", 7).clone()
    inner = engine.run(run.id)
    inner.memory = inner.full = None
    engine._captures.forget()
    assert torch.equal(get(engine, run.id, "blocks/attention/head-outputs", "decode", 7, 3), before)
    assert torch.equal(get(engine, run.id, UPDATE, "full", 7), full)
    assert [token.id for token in engine.view(run.id).tokens] == [token.id for token in run.tokens]


def test_memory_is_given_up_beyond_the_budget(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = finish(engine, order((1, 2, 3, 4), 2))
    monkeypatch.setattr(engine.settings, "memory_budget", 1)
    second = finish(engine, order((1, 2, 3, 5), 2))
    assert engine.run(first.id).memory is None
    monkeypatch.undo()
    assert get(engine, first.id, UPDATE, "prefill").shape == (1, 4, 576)
    assert get(engine, second.id, UPDATE, "prefill").shape == (1, 4, 576)


def test_a_tensor_is_served_while_a_long_pass_is_under_way(engine: Engine) -> None:
    short = finish(engine, order((504, 3575, 282), 2))
    before = get(engine, short.id, UPDATE, "prefill", 9).clone()
    engine._captures.forget()
    long = engine.submit(order(tuple(range(100, 700)), 0))
    until(lambda: engine.view(long.id).status == "running")
    assert torch.equal(get(engine, short.id, UPDATE, "prefill", 9), before)
    assert engine.view(long.id).status == "running"
    alone = finish(engine, order(tuple(range(100, 700)), 0))
    disturbed = get(engine, alone.id, "blocks/block-output", "prefill", 29).clone()
    engine.delete(alone.id)
    engine._captures.forget()
    undisturbed = get(engine, finish(engine, order(tuple(range(100, 700)), 0)).id, "blocks/block-output", "prefill", 29)
    assert torch.equal(disturbed, undisturbed)


def test_cancelling_frees_at_once_and_forgets(engine: Engine) -> None:
    long = engine.submit(order(tuple(range(100, 1100)), 200))
    until(lambda: engine.view(long.id).status == "running")
    waiting = engine.request(long.id, [UPDATE], "prefill", 0, None)
    engine.delete(long.id)
    started = time.monotonic()
    with pytest.raises(NotFound, match="cancelled"):
        waiting.result(30)
    assert finish(engine, order((9, 8, 7), 1)).status == "done"
    assert time.monotonic() - started < 15
    with pytest.raises(NotFound):
        engine.view(long.id)


def test_watching_tells_each_token_once_and_ends(engine: Engine) -> None:
    async def watch() -> list[tuple[str, int]]:
        view = engine.submit(order((31, 41, 59, 26), 5))
        return [(v.status, len(v.tokens)) async for v in engine.watch(view.id)]

    seen = asyncio.run(watch())
    assert seen[-1] == ("done", 9)
    assert [count for _, count in seen] == sorted(count for _, count in seen)
    run = finish(engine, order((31, 41, 59, 26), 5))
    assert not engine.run(run.id).listeners


def test_requests_before_a_run_has_come_that_far(engine: Engine) -> None:
    long = engine.submit(order(tuple(range(100, 600)), 50))
    with pytest.raises(Conflict, match="not finished"):
        engine.request(long.id, [UPDATE], "full", 0, None)
    with pytest.raises(Conflict, match="not computed yet"):
        engine.request(long.id, [UPDATE], "decode", 0, 49)
    assert get(engine, long.id, UPDATE, "prefill").shape == (1, 500, 576)
    engine.delete(long.id)


def test_a_prompt_of_one_token_has_no_mask(engine: Engine) -> None:
    run = finish(engine, order((504,), 2))
    for node in ("causal-mask", "blocks/attention/masked-similarities"):
        for view in ("prefill", "decode"):
            with pytest.raises(NotComputed, match="mask"):
                get(engine, run.id, node, view)
    assert get(engine, run.id, "blocks/attention/attention-weights", "prefill").tolist() == [[[[1.0]]] * 9]


@pytest.mark.parametrize(
    ("node", "view", "layer", "step", "error", "says"),
    [
        ("blocks/attention/nothing", "full", 0, None, NotFound, "There is no node"),
        ("blocks/attention/compare", "full", 0, None, BadRequest, "similarities"),
        ("blocks/attention", "full", 0, None, BadRequest, "component"),
        (UPDATE, "sideways", 0, None, BadRequest, "full, prefill, decode"),
        (UPDATE, "prefill", 30, None, NotFound, "layers 0 to 29"),
        (UPDATE, "prefill", -1, None, NotFound, "layers 0 to 29"),
        (UPDATE, "decode", 0, 99, NotFound, "1 to 7"),
        (UPDATE, "decode", 0, 0, NotFound, "1 to 7"),
        ("causal-mask", "decode", 0, 1, NotComputed, "mask"),
    ],
)
def test_what_cannot_be_is_refused_with_a_next_step(
    engine: Engine, node: str, view: str, layer: int, step: int | None, error: type[AtlasError], says: str
) -> None:
    assert engine.demonstration is not None
    with pytest.raises(error) as caught:
        get(engine, engine.demonstration, node, view, layer, step)
    assert says in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (order(()), BadRequest),
        (order((1,) * 3000), TooLarge),
        (order((1,), 10_000), BadRequest),
        (order((49152,)), BadRequest),
        (order((-1,)), BadRequest),
        (order((1,), model="nope"), NotFound),
        (order((1,), model="llama-3-8b"), NoCheckpoint),
    ],
)
def test_orders_that_are_refused(engine: Engine, request_: RunRequest, error: type[AtlasError]) -> None:
    with pytest.raises(error) as caught:
        engine.submit(request_)
    assert caught.value.hint


def test_a_full_queue_is_said(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.settings, "max_queue", 1)
    long = engine.submit(order(tuple(range(200, 900)), 1))
    until(lambda: engine.view(long.id).status == "running")
    waiting = engine.submit(order((5, 4, 3, 2), 1))
    with pytest.raises(TooMany):
        engine.submit(order((5, 4, 3, 1), 1))
    engine.delete(long.id)
    assert finish(engine, order((5, 4, 3, 2), 1)).id == waiting.id


def test_a_run_that_failed_does_not_take_others_with_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = engine.runner(MODEL)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "forward", fail)
        failed = finish(engine, order((12, 13, 14), 1))
    assert failed.status == "failed"
    assert failed.error is not None
    assert "out of memory" in failed.error.detail
    assert finish(engine, order((12, 13, 14), 1)).status == "done"
