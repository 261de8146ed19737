"""The whole API against its own description: whatever is asked, no fault of the server and only documented answers."""

from __future__ import annotations

from collections import Counter
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


@pytest.fixture(scope="module")
def described(live_app: FastAPI) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", live_app)


def test_every_call_answers_as_it_is_described(described: Any, engine: Engine) -> None:
    assert engine.demonstration is not None
    seen = dict[str, Counter[int]]()
    for found in described.get_all_operations():
        call = found.ok()
        seen[f"{call.method} {call.path}"] = answers(call, engine.demonstration, POSITIVE)
        if call.query or call.body:
            answers(call, engine.demonstration, NEGATIVE)
    assert len(seen) > 20
    never = {name: counts for name, counts in seen.items() if not set(counts) & {200, 202} and "delete" not in name}
    assert never == {}


def answers(call: Any, run: str, mode: GenerationMode) -> Counter[int]:
    """Some requests, most of them about the demonstration run; how often each status was the answer."""
    statuses = Counter[int]()

    @hypothesis.settings(max_examples=EXAMPLES[mode], derandomize=True, database=None)
    @hypothesis.given(case=call.as_strategy(generation_mode=mode), data=strategies.data())
    def ask(case: Any, data: strategies.DataObject) -> None:
        if data.draw(strategies.integers(0, 3)):
            make_sensible(case, run, mode, data)
        if case.method == "DELETE":
            case.path_parameters["run_id"] = "0" * 20  # the demonstration is others' as well
        if isinstance(case.body, dict) and isinstance(case.body.get("max_new_tokens"), int):
            case.body["max_new_tokens"] = min(case.body["max_new_tokens"], 2)
        statuses[case.call_and_validate(checks=CHECKS, timeout=60).status_code] += 1

    ask()
    return statuses


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
    if case.method == "POST":
        case.body = {"model": "smollm2-135m", "prompt": data.draw(strategies.text(min_size=1, max_size=20))}
