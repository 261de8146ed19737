"""`atlas draft`: a skeleton on stdout, and what it is refused for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Atlas


def configured(directory: Path, **stated: Any) -> Path:
    (directory / "config.json").write_text(json.dumps(stated), "utf-8")
    return directory


def test_a_configuration_is_enough(atlas: Atlas, tmp_path: Path) -> None:
    small = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    said = atlas(
        "draft", str(configured(tmp_path, architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox", **small))
    )
    assert said.code == 0, said.err
    compile(said.out, "drafted.py", "exec")
    assert said.out.startswith('"""GPTNeoX: say in a sentence')
    assert 'CODE = Code("gpt_neox", "GPTNeoX", block="Layer")' in said.out


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, "which is described already. See atlas/architectures/qwen3.py"),
        ({"architectures": ["LlamaForCausalLM"]}, "which is described already. See atlas/architectures/llama.py"),
        ({"architectures": ["NobodyKnowsMe"]}, "is of NobodyKnowsMe, which transformers"),
        (
            {"architectures": ["OwnModel"], "auto_map": {"AutoModelForCausalLM": "modeling_own.OwnModel"}},
            "code of its own to be run (modeling_own.OwnModel)",
        ),
        (
            {"architectures": ["BertForMaskedLM"], "model_type": "bert"},
            "BertForMaskedLM, which is no model that continues",
        ),
    ],
    ids=lambda value: value.get("architectures", [""])[0] if isinstance(value, dict) else "",
)
def test_what_cannot_be_drafted_is_refused_by_name(
    atlas: Atlas, tmp_path: Path, stated: dict[str, Any], says: str
) -> None:
    said = atlas("draft", str(configured(tmp_path, **stated)))
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert said.err.count("\n") == 1


def test_a_path_that_is_not_there_is_named(atlas: Atlas, tmp_path: Path) -> None:
    said = atlas("draft", str(tmp_path / "nowhere"))
    assert said.code == 2
    assert "nowhere" in said.err
