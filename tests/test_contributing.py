"""CONTRIBUTING.md tells how to add an architecture: this does what it says, with the files that it prints.

They are written to a temporary directory; nothing else is edited, and there are pages, API, checks and live values.
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient

import atlas.architectures
import atlas.models
from atlas.catalog import Catalog
from atlas.inspection.checks import run_checks
from atlas.inspection.checks.result import Kind
from atlas.provenance.locks import Locks
from atlas.provenance.store import SourceStore
from atlas.render.assets import sources_dir
from atlas.runtime.references.base import Pass
from atlas.runtime.references.hugging_face import Runner
from atlas.runtime.untrained import untrained
from atlas.settings import Settings
from atlas.web.app import create_app

TEXT = (Path(__file__).resolve().parents[1] / "CONTRIBUTING.md").read_text("utf-8")


def printed() -> dict[str, str]:
    """The files that the text prints: each block begins with a comment that is its path."""
    blocks = re.findall(r"^```(?:toml|python)\n# (\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return dict(blocks)


@pytest.fixture(scope="module")
def contributed(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Iterator[Catalog]:
    """The catalogue of somebody who has followed the text."""
    root = tmp_path_factory.mktemp("contribution")
    shutil.copytree(sources_dir(), root / "sources")
    for name, text in printed().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((path.read_text("utf-8") if path.exists() else "") + text, "utf-8")
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        for package in (atlas.architectures, atlas.models):
            place = root / "atlas" / package.__name__.rpartition(".")[2]
            patch.setattr(package, "__path__", [*package.__path__, str(place)])
        importlib.invalidate_caches()
        yield Catalog(SourceStore(Locks.read(root / "sources"), data_dir / "sources"))
    for name in set(sys.modules) - before:
        if name in ("atlas.architectures.granite", "atlas.models.ibm"):
            del sys.modules[name]


def test_the_text_prints_a_lock_a_declaration_and_a_list_of_models() -> None:
    assert list(printed()) == ["sources/transformers.toml", "atlas/architectures/granite.py", "atlas/models/ibm.py"]


def test_the_model_is_found_beside_the_others(contributed: Catalog) -> None:
    assert "granite" in contributed
    assert {"llama", "granite"} <= set(contributed.architectures)
    model = contributed["granite"]
    assert (model.architecture.sizes["d_model"], model.architecture.settings["residual_multiplier"]) == (4096, 1.0)


def test_everything_that_it_says_is_checked(contributed: Catalog, data_dir: Path) -> None:
    kinds: tuple[Kind, ...] = ("sources", "shapes", "edges", "equations")
    (report,) = run_checks(contributed, Settings(data_dir=data_dir), ["granite"], kinds=kinds)
    failed = [result for result in report.results if result.status == "failed"]
    assert failed == []
    assert {result.kind for result in report.results} == set(kinds)
    assert len([result for result in report.results if result.kind == "equations"]) > 30


def test_it_has_pages_and_an_api(contributed: Catalog, data_dir: Path) -> None:
    client = TestClient(create_app(Settings(data_dir=data_dir), catalog=contributed), base_url="http://127.0.0.1")
    page = client.get("/models/granite")
    assert page.status_code == 200
    assert 'data-node="blocks/attention-residual"' in page.text
    for path in ("embedding/scale", "unembedding/divide", "blocks/attention/scaled-similarities"):
        page = client.get(f"/models/granite/{path}?view=decode")
        assert page.status_code == 200
        assert "modeling_granite.py" in page.text
    node = client.get("/api/models/granite/nodes/embedding/embedded").json()
    assert [axis["size"] for axis in node["shape"]["decode"]] == [None, 1, 4096]
    assert node["evidence"][0]["excerpt"][0]["code"].strip().startswith("inputs_embeds = inputs_embeds *")
    assert "granite" in [model["id"] for model in client.get("/api/models").json()]


def test_it_has_live_values(contributed: Catalog) -> None:
    model = contributed.small("granite")
    runner = Runner(model, untrained(model))
    memory = runner.memory(8)
    runner.forward(Pass((1, 2, 3, 4, 5), 0), memory)
    step = Pass((6,), 5)
    logits = runner.forward(step, memory)
    wanted = runner.sites(["unembedding/undivided-logits", "unembedding/logits"])
    found = runner.replay(step, memory, "after", None, wanted)
    whole, divided = found.last("unembedding/undivided-logits"), found.last("unembedding/logits")
    assert whole is not None
    assert divided is not None
    assert torch.equal(divided, logits)
    assert torch.allclose(whole / 3.0, divided)
