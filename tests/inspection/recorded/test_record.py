"""A recorded run says what the engine says: bit for bit, in every view, within its budget, and the same each time."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from atlas.catalog import Catalog
from atlas.errors import BadRequest, NotRecorded, StorageError
from atlas.inspection.explain import explain
from atlas.inspection.explained import Explained
from atlas.inspection.recorded.bundle import written
from atlas.inspection.recorded.glances import glances
from atlas.inspection.recorded.layout import RecordedRun
from atlas.inspection.recorded.reading import Recorded
from atlas.inspection.recorded.record import Choice, record
from atlas.inspection.recorded.selection import chosen_nodes
from atlas.runtime.engine import Engine

BLOCK = "blocks/attention"
WEIGHTS = f"{BLOCK}/attention-weights"
LIMIT = 1 << 30


def recorded(engine: Engine, out: Path, choice: Choice) -> RecordedRun:
    assert engine.demonstration is not None
    with written(out) as sink:
        return asyncio.run(record(engine, engine.demonstration, choice, sink))


@pytest.mark.parametrize(
    ("node", "view", "layer", "step"),
    [
        (WEIGHTS, "full", 0, None),
        (WEIGHTS, "prefill", 29, None),
        (WEIGHTS, "decode", 17, 7),
        ("final-norm/normalized", "decode", None, 3),
        ("final-norm/reciprocal-rms", "full", None, None),
        ("rotary/rotations", "prefill", None, None),
        ("token-ids", "full", None, None),
        ("final-norm/gain", "parameter", None, None),
    ],
)
def test_a_recorded_tensor_is_the_engines_own(
    node: str, view: str, layer: int | None, step: int | None, bundle: Path, engine: Engine, catalog: Catalog
) -> None:
    opened = Recorded(bundle, catalog, LIMIT)
    found = opened.captured(node, view, layer, step)  # type: ignore[arg-type]
    asked = "prefill" if view == "parameter" else view
    live = engine.request(opened.id, [node], asked, layer, step).result()[node]
    assert (found.tensor.dtype, found.axes) == (live.tensor.dtype, live.axes)
    assert found.tensor.equal(live.tensor)
    assert (found.view, found.layer, found.step) == (live.view, live.layer, live.step)
    opened.close()


def test_the_run_and_its_labels_are_the_engines_own(bundle: Path, engine: Engine, catalog: Catalog) -> None:
    opened = Recorded(bundle, catalog, LIMIT)
    live = engine.view(opened.id)
    assert (opened.view.tokens, opened.view.steps) == (live.tokens, live.steps)
    tokenizer = engine.runner(live.model).checkpoint.tokenizer
    assert [opened.label(token) for token in range(0, 49152, 501)] == [
        tokenizer.label(token) for token in range(0, 49152, 501)
    ]
    opened.close()


def test_what_is_not_held_says_why(bundle: Path, catalog: Catalog) -> None:
    opened = Recorded(bundle, catalog, LIMIT)
    with pytest.raises(NotRecorded, match="does not hold blocks/attention/queries in full, layer 3: it was not chosen"):
        opened.captured("blocks/attention/queries", "full", 3, None)
    opened.close()


def test_the_same_run_gives_the_same_bytes(engine: Engine, tmp_path: Path) -> None:
    choice = Choice(("final-norm", "token-ids", "rotary/rotations"))
    for name in ("one", "two"):
        recorded(engine, tmp_path / name, choice)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_budget_is_kept_and_what_was_left_out_is_said(engine: Engine, catalog: Catalog, tmp_path: Path) -> None:
    out = tmp_path / "small.atlas"
    run = recorded(engine, out, Choice((WEIGHTS, "unembedding/logits"), 500_000))
    assert out.stat().st_size <= 500_000
    held = {(one.node, one.view): one for one in run.held}
    weights, logits = held[WEIGHTS, "full"], held["unembedding/logits", "full"]
    assert 0 < weights.held < weights.of == 30
    assert weights.words == f"layers 0 to {weights.held - 1}"
    assert (logits.held, logits.words, logits.why) == (0, "nothing", "the rest was left out to keep within 500 kB")
    opened = Recorded(out, catalog, LIMIT)
    with pytest.raises(NotRecorded, match="left out to keep within 500 kB") as error:
        opened.captured(WEIGHTS, "full", 29, None)
    assert error.value.hint == f"Of it are held: {weights.words}."
    opened.close()


def test_what_expressions_gave_is_the_engines_own(engine: Engine, catalog: Catalog, tmp_path: Path) -> None:
    out = tmp_path / "small.atlas"
    run = recorded(engine, out, Choice((f"{BLOCK}/similarities", "final-norm"), 600_000))
    assert out.stat().st_size <= 600_000
    places = {one.view: one.places for one in run.expressions}
    opened = Recorded(out, catalog, LIMIT)
    assert opened.bundle.manifest.format == 2
    for view, layer, step in (("full", None, None), ("prefill", 0, None), ("decode", 0, 1), ("decode", None, 1)):
        assert (layer, step) in places[view]  # type: ignore[index]
        runner, seen = asyncio.run(engine.expressions(opened.id, view, layer, step))
        found = opened.glances(view, layer, step)  # type: ignore[arg-type]
        assert found == glances(runner, seen)
        assert found.path == "models/llama3/model.py"
        assert found.expressions
    assert (29, None) not in places["full"]
    with pytest.raises(NotRecorded, match="does not hold what expressions gave in full, layer 29"):
        opened.glances("full", 29, None)
    opened.close()


def test_the_number_that_a_page_opens_with_is_explained(engine: Engine, catalog: Catalog, tmp_path: Path) -> None:
    out = tmp_path / "explained.atlas"
    recorded(engine, out, Choice(("final-norm", "unembedding/logits"), expressions=False))
    opened = Recorded(out, catalog, LIMIT)
    assert opened.bundle.manifest.format == 2
    for node, view, step, cell in (
        ("unembedding/logits", "full", None, (0, 12, 0)),
        ("unembedding/logits", "decode", 1, (0, 0, 0)),
        ("final-norm/normalized", "prefill", None, (0, 0, 0)),
    ):
        content = opened.answer("explanation", node, view, None, step)  # type: ignore[arg-type]
        assert content is not None
        live = asyncio.run(explain(engine, opened.id, node, view, None, step, cell))
        found = Explained.model_validate_json(content)
        assert found.model_dump(exclude={"html"}) == live.model_dump()
        assert "katex" in found.html
    assert opened.answer("explanation", "unembedding/logits", "decode", None, 2) is None
    opened.close()


def test_tensors_alone_are_of_the_plain_format(bundle: Path, catalog: Catalog) -> None:
    opened = Recorded(bundle, catalog, LIMIT)
    assert opened.bundle.manifest.format == 1
    assert b"expressions" not in opened.bundle.read("run.json")
    opened.close()


def test_a_budget_without_room_for_the_tokens_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="does not hold the run's tokens and labels"):
        recorded(engine, tmp_path / "none.atlas", Choice((), 1000))
    assert not (tmp_path / "none.atlas").exists()


def test_no_room_for_what_is_being_recorded_is_said(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run.atlas"
    out.write_bytes(b"the old one")
    monkeypatch.setattr("tempfile.TemporaryFile", partial(Path("/dev/full").open, "r+b"))
    with pytest.raises(StorageError, match=r"in a file in .*: No space left on device") as error:
        recorded(engine, out, Choice(("token-ids",)))
    assert "TMPDIR" in error.value.hint
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("run.atlas", b"the old one")]


def test_a_component_means_all_that_is_in_it(catalog: Catalog) -> None:
    graph = catalog["smollm2-135m"].graph
    inside = {"final-norm/gain", "final-norm/reciprocal-rms", "final-norm/normalized"}
    assert set(chosen_nodes(graph, ["final-norm"])) == inside
    with pytest.raises(BadRequest, match="is a operation"):
        chosen_nodes(graph, ["blocks/attention/softmax"])
