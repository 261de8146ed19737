"""Skeletons of declarations: each loads, declares the graph that was derived, and is formatted as all code here."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

import atlas.architectures
from atlas.architectures._code import Code
from atlas.catalog import Catalog
from atlas.graph.anchors import at
from atlas.graph.axes import VIEWS
from atlas.graph.nodes import Operation, Parameter
from atlas.graph.resolve import Graph
from atlas.provenance.locks import Locks
from atlas.provenance.store import SourceStore
from atlas.render.assets import sources_dir
from atlas.runtime.adoption import adopt
from atlas.runtime.checkpoints import open_checkpoint
from atlas.runtime.derivation.draft import draft
from atlas.runtime.references.base import Pass
from atlas.runtime.references.hugging_face import Runner
from tests.derived import SMALL, Opened

ROOT = Path(__file__).resolve().parents[3]

Open = Callable[[str], Opened]


def text_of(subject: Opened) -> str:
    assert subject.checkpoint.derived is not None
    return draft(subject.checkpoint.derived)


def loaded(text: str, directory: Path) -> ModuleType:
    path = directory / "drafted.py"
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location("drafted", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(SMALL))
def test_it_loads_and_declares_the_graph_that_was_derived(name: str, opened: Open, tmp_path: Path) -> None:
    subject = opened(name)
    module = loaded(text_of(subject), tmp_path)
    declared, derived = Graph(module.declare(module.SMALL)), subject.graph
    assert list(declared.nodes) == list(derived.nodes)
    for path, node in derived.nodes.items():
        other = declared[path]
        assert [other.shape[view] for view in VIEWS] == [node.shape[view] for view in VIEWS], path
        assert (other.name, other.symbol, other.layers) == (node.name, node.symbol, node.layers)
        assert (other.inputs, other.outputs, other.plain_equation) == (node.inputs, node.outputs, node.plain_equation)
        if isinstance(node.node, Parameter):
            assert other.node == node.node
    assert declared.edges == derived.edges
    assert declared.architecture.sizes == derived.architecture.sizes
    assert declared.architecture.derived
    assert declared.architecture.reference.block == derived.architecture.reference.block
    assert declared.architecture.reference.model == name


def test_sizes_follow_the_configuration(opened: Open, tmp_path: Path) -> None:
    module = loaded(text_of(opened("Olmo2ForCausalLM")), tmp_path)
    other = module.declare({**module.SMALL, "hidden_size": 48, "num_hidden_layers": 5, "intermediate_size": 96})
    assert {"d_model": 48, "layers": 5, "d_mlp": 96}.items() <= other.sizes.items()


def test_it_says_what_its_author_does_next(opened: Open, tmp_path: Path) -> None:
    subject = opened("Mamba2ForCausalLM")
    module = loaded(text_of(subject), tmp_path)
    lock = subject.checkpoint.derived.lock if subject.checkpoint.derived else None
    assert lock is not None
    assert module.ID == "mamba2"
    code = module.CODE
    assert code == Code("mamba2", "Mamba2", block="Block")
    said = " ".join((module.__doc__ or "").split())
    assert f'sha256 = "{lock.files[0].sha256}"' in said
    assert "Replace each `step` by an `Operation`" in said
    assert "/transformers/models/mamba2/modeling_mamba2.py" in said


def test_a_step_cites_where_it_was_seen(opened: Open, tmp_path: Path) -> None:
    module = loaded(text_of(opened("Olmo2ForCausalLM")), tmp_path)
    graph = Graph(module.declare(module.SMALL))
    step = graph["blocks/self-attn/make-eager-attention-forward-attn-weights-3"].node
    assert isinstance(step, Operation)
    assert (step.name, step.evidence[0].kind) == ("softmax", "direct")
    assert step.evidence[0].anchors == (at("eager_attention_forward").assigns("attn_weights", 3),)


def test_it_is_formatted_and_free_of_faults(opened: Open, tmp_path: Path) -> None:
    for name in SMALL:
        (tmp_path / f"{name.lower()}.py").write_text(text_of(opened(name)), "utf-8")
    for command in (["format", "--check"], ["check", "--ignore", "E501"]):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "ruff",
                *command,
                "--no-cache",
                "--config",
                str(ROOT / "pyproject.toml"),
                str(tmp_path),
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout


def test_put_in_its_place_it_describes_the_checkpoint(
    opened: Open, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the lines for the lock that it prints, which its author puts there: nothing is derived any more."""
    subject = opened("Olmo2ForCausalLM")
    text = text_of(subject)
    (tmp_path / "architectures").mkdir()
    (tmp_path / "architectures" / "olmo2.py").write_text(text, "utf-8")
    monkeypatch.setattr(
        atlas.architectures, "__path__", [*atlas.architectures.__path__, str(tmp_path / "architectures")]
    )
    shutil.copytree(sources_dir(), tmp_path / "sources")
    lines = textwrap.dedent(text[text.index("    [[files]]") : text.index("2. Give nodes")])
    with (tmp_path / "sources" / "transformers.toml").open("a", encoding="utf-8") as lock:
        lock.write(f"\n{lines}")
    try:
        checkpoint = open_checkpoint(subject.directory, tmp_path / "data")
        catalog = Catalog(SourceStore(Locks.read(tmp_path / "sources"), data_dir / "sources"))
        model = adopt(catalog, "mine", checkpoint)
    finally:
        sys.modules.pop("atlas.architectures.olmo2", None)
    assert (checkpoint.architecture, checkpoint.derived) == ("olmo2", None)
    runner, work = Runner(model, checkpoint), Pass((5, 100, 42, 7), 0)
    assert torch.equal(runner.forward(work, runner.memory(4)), subject.runner.forward(work, subject.runner.memory(4)))
