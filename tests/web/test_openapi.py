"""The whole API against its own description: whatever is asked, no fault of the server and only documented answers."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import strategies
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from atlas.runtime.engine import Engine

POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
EXAMPLES = {POSITIVE: 9, NEGATIVE: 3}
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
PLANES = {
    "blocks/attention/attention-weights": "0,3,:,:",
    "blocks/block-output": "0,:,:",
    "final-norm/normalized": "0,:,:",
    "rotary/rotations": ":,:",
}
"""Some nodes, and for each a slice that leaves two axes."""
KNOWN: dict[str, list[Any]] = {
    "layer": [0, 7, 29],
    "step": [1, 3],
    "over": ["q_heads", "positions"],
    "along": ["keys", "d_model", "positions"],
    "stop": [3],
    "count": [3],
    **{name: [0] for name in ("row_level", "column_level", "tile_row", "tile_column", "start")},
    **{name: [None] for name in ("part", "against_run", "against_layer", "against_step", "pick")},
}
PLAIN: dict[str, Any] = {
    "q": "softmax",
    "view": "prefill",
    "layer": 0,
    "slice": "0,3,:,:",
    "over": "q_heads",
    "along": "keys",
    "cell": "0,3,0,0",
}
"""What anybody may ask of attention weights, whichever the call."""
PLAIN_OF: dict[str, dict[str, Any]] = {
    "thumbnails": {"slice": "0,:,:,:"},
    "cell": {"slice": "0,3,0,0", "along": None},
    "top": {"slice": "0,3,0,:"},
    "difference": {"against_layer": 1},
}
"""What is otherwise, by the last word of the call."""
BINARY = "post /api/recorded"
"""The call that takes a file."""
PLAIN_NODE = {"predictions": "blocks/block-output"}


@pytest.fixture(scope="module")
def described(live_app: FastAPI) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", live_app)


def test_every_call_answers_as_it_is_described(described: Any, engine: Engine) -> None:
    assert engine.demonstration is not None
    seen = set[str]()
    for found in described.get_all_operations():
        call = found.ok()
        # The demonstration is others' as well, files are opened only for programs of this machine, and a bundle is
        # not made by chance.
        asked = f"{call.method} {call.path}"
        if call.method != "delete" and asked not in ("post /api/checkpoints", BINARY):
            plain = plain_case(call, engine.demonstration)
            assert plain.call_and_validate(checks=CHECKS, timeout=60).status_code in (200, 202), plain
        seen.add(f"{call.method} {call.path}")
        ask_many(call, engine.demonstration, POSITIVE)
        if (call.query or call.body) and asked != BINARY:  # any bytes are of the kind that it takes
            ask_many(call, engine.demonstration, NEGATIVE)
    assert len(seen) > 20


def plain_case(call: Any, run: str) -> Any:
    """A request that must be answered, so that every call comes as far as its numbers whatever chance does."""
    word = call.path.rsplit("/", 1)[-1]
    good = {"run_id": run, "other_id": run, "model": "smollm2-135m"}
    good["node"] = PLAIN_NODE.get(word, "blocks/attention/attention-weights")
    query = {name: value for name, value in {**PLAIN, **PLAIN_OF.get(word, {})}.items() if value is not None}
    takes = {parameter.name for parameter in call.query}
    body = {"body": {"model": "smollm2-135m", "prompt": "Plain", "max_new_tokens": 1}} if call.body else {}
    return call.Case(
        path_parameters={parameter.name: good[parameter.name] for parameter in call.path_parameters},
        query={name: value for name, value in query.items() if name in takes},
        media_type="application/json" if body else None,
        **body,
    )


def ask_many(call: Any, run: str, mode: GenerationMode) -> None:
    """Some random requests, most of them about the demonstration run."""

    @hypothesis.settings(max_examples=EXAMPLES[mode], derandomize=True, database=None)
    @hypothesis.given(case=call.as_strategy(generation_mode=mode), data=strategies.data())
    def ask(case: Any, data: strategies.DataObject) -> None:
        if data.draw(strategies.integers(0, 3)):
            make_sensible(case, run, mode, data)
        if case.method == "DELETE":
            case.path_parameters["run_id"] = "0" * 20  # the demonstration is others' as well
        if isinstance(case.body, dict) and isinstance(case.body.get("max_new_tokens", 2), int):
            case.body["max_new_tokens"] = min(case.body.get("max_new_tokens", 2), 2)  # the engine is others' as well
        case.call_and_validate(checks=CHECKS, timeout=60)

    ask()


def make_sensible(case: Any, run: str, mode: GenerationMode, data: strategies.DataObject) -> None:
    """Put what is there in place of random values, so that a call comes as far as the numbers."""
    node = data.draw(strategies.sampled_from(sorted(PLANES)))
    for name, good in (("run_id", run), ("other_id", run), ("node", node), ("model", "smollm2-135m")):
        if name in case.path_parameters:
            case.path_parameters[name] = good
    if mode == NEGATIVE:
        return
    for name in sorted(set(KNOWN) & set(case.query)):
        case.query[name] = data.draw(strategies.sampled_from(KNOWN[name]))
        if case.query[name] is None:
            del case.query[name]
    if "cell" in case.query:
        case.query["cell"] = PLANES[node].replace(":", "0")
    if "slice" in case.query:
        keep = {"tile": 2, "thumbnails": 2, "top": 1, "cell": 0}.get(case.path.rsplit("/", 1)[-1], 2)
        plane = PLANES[node]
        case.query["slice"] = plane.replace(":", "0", plane.count(":") - keep)
    if case.method == "POST" and case.path != "/api/recorded":
        case.body = {"model": "smollm2-135m", "prompt": data.draw(strategies.text(min_size=1, max_size=20))}
