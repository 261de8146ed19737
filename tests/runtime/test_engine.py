"""The engine on the real default model: runs as values, requests, refusals, cancelling, giving memory up."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from atlas.catalog import Catalog
from atlas.errors import (
    AtlasError,
    BadRequest,
    CheckpointError,
    Conflict,
    NoCheckpoint,
    NotComputed,
    NotFound,
    NotReady,
    TooLarge,
    TooMany,
)
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.engine import NICE, Engine
from atlas.runtime.journal import Journal
from atlas.runtime.runs import RunRequest, RunView
from atlas.settings import CheckpointChoice, Settings

from .conftest import TinyGguf

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


def test_one_client_has_so_many_unfinished_runs_and_others_still_have_theirs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.settings, "max_runs_per_client", 2)
    long = [engine.submit(order((*range(300 + at, 700 + at),), 50), "one") for at in range(2)]
    with pytest.raises(TooMany, match="2 runs of one are unfinished") as caught:
        engine.submit(order((21, 22, 23), 1), "one")
    assert "DELETE" in caught.value.hint
    assert engine.submit(order((*range(300, 700),), 50), "one").id == long[0].id  # no new run
    other = engine.submit(order((21, 22, 23), 1), "other")
    assert engine.submit(order((21, 22, 24), 1)).id
    for run in long:
        engine.delete(run.id)
    until(lambda: engine.view(other.id).status == "done")
    assert finish(engine, order((21, 22, 25), 1)).status == "done"


def test_runs_that_find_no_room_wait_for_those_that_have_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    size = engine.runner(MODEL).memory(300).nbytes
    monkeypatch.setattr(engine.settings, "memory_budget", 2 * size + size // 2)
    runs = [engine.submit(order((*range(400 + at, 600 + at),), 100)) for at in range(4)]
    most = waiting = 0

    def all_done() -> bool:
        nonlocal most, waiting
        with engine._lock:
            held = [run for run in engine._shelf if run.memory is not None and run.status == "running"]
            most = max(most, len(held))
        waiting = max(waiting, engine.view(runs[3].id).waiting)
        done = [engine.view(run.id) for run in runs[:2]]
        return all(len(run.tokens) > 205 for run in done)

    until(all_done)
    assert most == 2
    assert waiting >= 2
    assert engine.view(runs[3].id).status == "queued"
    for run in runs:
        engine.delete(run.id)


def test_a_tensor_is_the_same_while_another_run_decodes(engine: Engine) -> None:
    run = finish(engine, order((504, 3575, 282, 4649, 314), 5))
    places = [("blocks/attention/head-outputs", "decode", 11, 3), ("blocks/feed-forward/gated", "prefill", 28, None)]
    before = [get(engine, run.id, *place).clone() for place in places]
    other = engine.submit(order((77, 78, 79), 200))
    until(lambda: len(engine.view(other.id).tokens) > 4)
    engine._captures.forget()
    assert all(torch.equal(get(engine, run.id, *place), value) for place, value in zip(places, before, strict=True))
    assert engine.view(other.id).status == "running"
    engine.delete(other.id)


def test_a_pass_that_nobody_waits_for_any_more_is_given_up(engine: Engine) -> None:
    run = finish(engine, order((*range(500, 1100),), 1))
    waiting = engine.request(run.id, [UPDATE], "full", 0, None)
    inner = engine.run(run.id)
    until(lambda: bool(inner.waiting))
    waiting.cancel()
    until(lambda: not inner.full_wanted)
    assert inner.full is None
    assert get(engine, run.id, UPDATE, "full").shape == (1, 601, 576)
    engine.delete(run.id)


def test_where_the_journal_cannot_be_written_runs_say_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finish(engine, order((61, 62, 63), 1))
    assert run.note == ""
    monkeypatch.setattr(engine.journal, "trouble", "Runs are not written down at the moment (disk is full).")
    assert "disk is full" in engine.view(run.id).note


@pytest.fixture
def own_engine(catalog: Catalog, own_data_dir: Path, tmp_path: Path) -> Iterator[Engine]:
    """An engine that a test may stop."""
    engine = Engine(Settings(data_dir=own_data_dir), catalog, demonstrate=False, journal=tmp_path / "runs.sqlite3")
    engine.start()
    until(lambda: engine.status.ready)
    yield engine
    engine.close()


def test_draining_lets_the_step_end_takes_nothing_new_and_tells_who_follows(own_engine: Engine) -> None:
    engine = own_engine
    run = engine.submit(order((31, 41, 59), 200))

    async def watch() -> list[int]:
        seen = []
        async for view in engine.watch(run.id):
            seen.append(len(view.tokens))
            if len(seen) == 3:
                engine.drain()
        return seen

    seen = asyncio.run(asyncio.wait_for(watch(), 30))
    assert len(seen) <= 5
    with pytest.raises(NotReady, match="stopping"):
        engine.submit(order((31, 41, 60), 1))
    with pytest.raises(NotReady, match="stopping"):
        engine.request(run.id, [UPDATE], "prefill", 0, None)
    started = time.monotonic()
    engine.close()
    assert time.monotonic() - started < engine.settings.drain_seconds + 5
    assert not engine._thread.is_alive()
    kept = Journal(engine.journal.path)
    entry = kept.find(run.id)
    kept.close()
    assert entry is not None
    assert entry.status == "queued"  # as it was begun: not finished
    assert len(entry.generated) >= max(seen) - 3


def test_to_stop_while_it_starts_is_no_failure(
    catalog: Catalog, own_data_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(Settings(data_dir=own_data_dir), catalog, journal=tmp_path / "runs.sqlite3", stand_back=True)
    engine.start()
    number = engine._thread.native_id
    if sys.platform == "linux" and number is not None:  # there threads have priorities: this one lets pages go first
        until(lambda: os.getpriority(os.PRIO_PROCESS, number) >= NICE)
    engine.drain()
    engine.close(timeout=120)
    assert not engine._thread.is_alive()
    assert engine.status.error is None
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_long_pass_is_given_up_when_the_time_is_over(own_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = own_engine
    monkeypatch.setattr(engine.settings, "drain_seconds", 0)
    long = engine.submit(order(tuple(range(100, 2000)), 1))
    until(lambda: engine.view(long.id).status == "running")
    engine.close()
    assert not engine._thread.is_alive()
    assert len(engine.view(long.id).tokens) == 1900


@pytest.mark.parametrize("in_memory", [0, 1 << 30])
def test_weights_that_are_cut_short_while_they_are_in_use(
    catalog: Catalog,
    checkpoint: Checkpoint,
    own_data_dir: Path,
    tmp_path: Path,
    tiny_gguf: TinyGguf,
    in_memory: int,
) -> None:
    """Mapped ones are refused before they are read, which would end the process; those in memory go on."""
    data_dir = tmp_path / "data"
    (data_dir / "checkpoints").mkdir(parents=True)
    for name in ("weights", "hashes"):
        (data_dir / name).symlink_to(own_data_dir / name)
    copy = checkpoint.sha256[:16]
    (data_dir / "checkpoints" / copy).symlink_to(own_data_dir / "checkpoints" / copy)
    own = CheckpointChoice(model="tiny", path=tiny_gguf())
    settings = Settings(data_dir=data_dir, checkpoint=(own,), weights_in_memory=in_memory)
    engine = Engine(settings, Catalog(catalog.store), demonstrate=False)
    engine.start()
    try:
        until(lambda: engine.status.ready)
        first = finish(engine, order((5, 6, 7), 2, model="tiny"))
        assert first.status == "done", first
        (weights,) = (path for path in engine.runner("tiny").checkpoint.files if path.suffix == ".safetensors")
        weights.chmod(0o644)
        os.truncate(weights, 4096)
        engine._captures.forget()
        if in_memory:
            assert finish(engine, order((5, 6, 8), 2, model="tiny")).status == "done"
            assert get(engine, first.id, UPDATE, "prefill").isfinite().all()
            return
        failed = finish(engine, order((5, 6, 8), 2, model="tiny"))
        assert failed.status == "failed"
        assert failed.error is not None
        assert "changed while they are in use" in failed.error.detail
        for node in (UPDATE, "blocks/attention/output-weight"):
            with pytest.raises(CheckpointError, match="changed while they are in use"):
                get(engine, first.id, node, "prefill")
        assert finish(engine, order((504, 3575), 1)).status == "done"
    finally:
        engine.close()
