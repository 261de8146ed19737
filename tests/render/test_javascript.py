"""The embedded engine: values, promises, failures, time-outs, threads and a quiet end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from atlas.errors import JavaScriptError
from atlas.render.assets import vendor_file
from atlas.render.javascript import JavaScript, shared

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def engine() -> Iterator[JavaScript]:
    engine = JavaScript(timeout=10)
    yield engine
    engine.close()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1.5,
        "",
        "é \u2028 </script> ' \" \\ 𝒳",
        [],
        [1, [2, None]],
        {"a": {"b": []}},
        {"__proto__": 1},
    ],
)
def test_values_go_in_and_come_out_unchanged(engine: JavaScript, value: Any) -> None:
    assert engine.call("value => value", value) == value


def test_undefined_is_none(engine: JavaScript) -> None:
    assert engine.call("() => undefined") is None


def test_a_promise_is_awaited(engine: JavaScript) -> None:
    assert engine.call("async (a, b) => (await a) + b", 1, 2) == 3


def test_timers_run_after_the_script_in_order_unless_cleared(engine: JavaScript) -> None:
    order = """() => new Promise(resolve => {
        const seen = [];
        setTimeout(value => seen.push(value), 1000, "first");
        const cleared = setTimeout(() => seen.push("cleared"), 0);
        setTimeout(() => { seen.push("last"); resolve(seen); });
        clearTimeout(cleared);
        seen.push("script");
    })"""
    assert engine.call(order) == ["script", "first", "last"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("() => { throw new Error('broken') }", "broken"),
        ("() => { throw null }", "null"),
        ("() => Promise.reject(new Error('refused'))", "refused"),
        ("async () => { throw 'words' }", "words"),
        ("noSuchFunction", "noSuchFunction is not defined"),
        ("() => 10n", "BigInt"),
        ("not JavaScript", "SyntaxError"),
    ],
)
def test_a_failure_carries_the_reason(engine: JavaScript, function: str, reason: str) -> None:
    with pytest.raises(JavaScriptError) as caught:
        engine.call(function)
    assert reason in caught.value.detail
    assert engine.call("() => 1") == 1


@pytest.mark.parametrize("function", ["() => { for (;;); }", "() => new Promise(() => {})"])
def test_time_runs_out_and_the_engine_lives_on(function: str) -> None:
    engine = JavaScript(timeout=0.3)
    started = time.monotonic()
    with pytest.raises(JavaScriptError, match=r"more than 0\.3 s"):
        engine.call(function)
    assert time.monotonic() - started < 5
    assert engine.call("() => 1") == 1
    engine.close()


def test_scripts_and_definitions_are_taken_once_and_again_after_close(tmp_path: Path) -> None:
    script = tmp_path / "count.js"
    script.write_text("globalThis.loads = (globalThis.loads ?? 0) + 1;")
    engine = JavaScript()
    for _ in range(2):
        engine.load(script)
        engine.load(script)
        engine.define("triple", "value => 3 * value")
        engine.define("triple", "value => 3 * value")
        assert engine.call("() => loads") == 1
        assert engine.call("triple", 2) == 6
        engine.close()
    with pytest.raises(JavaScriptError, match="loads"):
        engine.call("() => loads")
    engine.close()


def test_a_broken_script_is_named(tmp_path: Path, engine: JavaScript) -> None:
    script = tmp_path / "broken.js"
    script.write_text("function {")
    with pytest.raises(JavaScriptError, match=r"broken\.js"):
        engine.load(script)


def test_threads_take_turns(engine: JavaScript) -> None:
    engine.define("slowly", "async value => { for (let i = 0; i < 5; i++) await null; return value; }")

    def ask(value: int) -> Any:
        return engine.call("slowly", value)

    with ThreadPoolExecutor(max_workers=8) as threads:
        assert list(threads.map(ask, range(100))) == list(range(100))


def test_an_engine_first_used_inside_an_event_loop_does_not_live_on_it() -> None:
    engine = JavaScript(timeout=5)

    async def inside() -> Any:
        return engine.call("async () => 1")

    assert asyncio.run(inside()) == 1
    assert engine.call("async () => 2") == 2, "the loop has gone, the engine has not"
    engine.close()


def test_elk_lays_a_graph_out() -> None:
    engine = shared()
    engine.load(vendor_file("elk/elk.bundled.js"))
    box = {"width": 40, "height": 20}
    graph = {
        "id": "root",
        "layoutOptions": {"elk.algorithm": "layered", "elk.direction": "DOWN"},
        "children": [{"id": "above", **box}, {"id": "below", **box}],
        "edges": [{"id": "edge", "sources": ["above"], "targets": ["below"]}],
    }
    placed = engine.call("graph => new ELK().layout(graph)", graph)
    above, below = placed["children"]
    assert above["y"] + 20 < below["y"]
    assert placed["edges"][0]["sections"][0]["startPoint"]["y"] == above["y"] + 20


def test_a_process_that_never_closed_it_ends_quietly() -> None:
    code = "from atlas.render.javascript import shared; print(shared().call('() => 1'))"
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
