"""Running from the command line: the tokens and the numbers are the model's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .conftest import Atlas, Start, finish

PROMPT = ("run", "smollm2-135m", "--prompt", "The capital of France is", "--max-new-tokens", "3")


def test_it_prints_tokens_and_statistics_and_writes_the_tensor(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "weights.npy"
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
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
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
