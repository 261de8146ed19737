"""Running from the command line: the tokens and the numbers are the model's own."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from atlas.runtime.engine import Engine

from .conftest import Atlas, Start, finish

PROMPT = ("run", "smollm2-135m", "--prompt", "The capital of France is", "--max-new-tokens", "3")


@pytest.fixture(autouse=True)
def fresh(own_data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with the default weights, in which nothing has been run."""
    path = tmp_path / "data"
    path.mkdir()
    for entry in own_data_dir.iterdir():
        if not entry.name.startswith("runs."):
            (path / entry.name).symlink_to(entry)
    monkeypatch.setenv("ATLAS_DATA_DIR", str(path))
    return path


def test_it_prints_tokens_and_statistics_and_writes_the_tensor(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out" / "weights.npy"
    out.parent.mkdir()
    node = ("--node", "blocks/attention/attention-weights", "--view", "decode", "--step", "2", "--layer", "3")
    said = finish(start(*PROMPT, *node, "--out", str(out)), 180)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].startswith("The capital of France is Paris")
    assert next(line.split()[1:3] for line in lines if " generated " in line) == ["7042", "generated"]
    assert "blocks/attention/attention-weights · smollm2-135m · decode · layer 3 · step 2" in lines
    assert "[1 batch, 9 q_heads, 1 queries, 7 keys] float32" in lines
    array = np.load(out)
    assert array.shape == (1, 9, 1, 7)
    np.testing.assert_allclose(array.sum(-1), 1, atol=1e-6)
    numbers = dict(line.split() for line in lines if line.startswith("  "))
    assert numbers["count"] == str(array.size)
    assert float(numbers["max"]) == float(array.max())
    assert float(numbers["mean"]) == float(array.astype(np.float64).mean())
    assert lines[-1] == f"Wrote {out}"
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    assert "Building the reference model of SmolLM2 135M" in said.err


def test_a_model_without_weights_says_which_stands_in(start: Start) -> None:
    said = finish(start("run", "llama-3-8b", "--prompt", "x"), 180)
    assert (said.code, said.out) == (2, "")
    last = said.err.splitlines()[-1]
    assert last.startswith("Error: The weights of Llama 3 8B are not here")
    assert "'smollm2-135m', whose values stand in" in last
    assert "Traceback" not in said.err


def test_a_chat_templates_tokens_are_told_apart(atlas: Atlas) -> None:
    said = atlas("run", "smollm2-135m", "--prompt", "Say two words", "--chat", "--max-new-tokens", "1")
    assert said.code == 0, said.err
    origins = [line.split()[2] for line in said.out.splitlines() if line[:1].isdigit()]
    assert origins.count("prompt") == 3
    assert origins[0] == "template"
    assert origins[-1] == "generated"
    refused = atlas("run", "smollm2-135m", "--prompt", "x", "--chat", "--add-bos")
    assert (refused.code, refused.out) == (2, "")
    assert "--chat leaves it to the template" in refused.err


def test_a_run_is_found_by_the_id_that_was_printed(
    atlas: Atlas, engine: Engine, own_data_dir: Path, tmp_path: Path
) -> None:
    """Beside an engine that has the same journal open, as a server does."""
    here = ("--data-dir", str(own_data_dir))
    said = atlas("run", "smollm2-135m", "--prompt", "One and one is", "--max-new-tokens", "2", *here)
    assert said.code == 0, said.err
    run = said.out.rpartition(" · run ")[2].split()[0]
    seen = engine.view(run)
    assert (seen.status, len(seen.tokens) - seen.prompt_length) == ("done", 2)
    again = atlas("run", "smollm2-135m", "--prompt", "One and one is", "--max-new-tokens", "2", *here)
    assert again.out == said.out, "its times as well: it is not computed twice"
    out = tmp_path / "run.atlas"
    bundled = atlas("bundle", run, str(out), "--node", "token-ids", *here)
    assert bundled.code == 0, bundled.err
    with zipfile.ZipFile(out) as archive:
        assert run.encode() in archive.read("run.json")
    assert engine.demonstration is not None
    assert engine.view(engine.demonstration).status == "done"
    engine.delete(run)
    assert atlas("bundle", run, str(out), *here).err.startswith(f"Error: There is no run '{run}' in")
