"""Verdicts on locked files, and code compared with code."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from atlas.graph.anchors import at, parse
from atlas.graph.evidence import SourceRef
from atlas.provenance.locks import Locks
from atlas.provenance.store import SourceStore
from atlas.provenance.verification import definitions, same_syntax, verify
from atlas.render.assets import sources_dir

MakeStore = Callable[..., SourceStore]
EARLIER = '''\
class Attention:
    """Looks at other positions."""

    def forward(self, x, scale: float):
        scores = x @ x.T / scale  # scaled
        return scores

    def build(self, x: int):
        return x
'''
RUNNING = '''\
import math


class Attention:
    """Looks at other positions."""

    def forward(self, x, scale: float):
        scores = (
            x @ x.T
            / scale
        )
        return scores

    def build(self, x: "int"):
        return x


def softmax(x):
    return math.exp(x)
'''


def test_the_pinned_sources_of_this_machine_are_verified_or_pending() -> None:
    store = SourceStore(Locks.read(sources_dir()), sources_dir() / "nothing-is-cached-here")
    found = {f"{verdict.lock.id}:{verdict.locked.path}": verdict for verdict in verify(store)}
    for path in ("models/llama3/model.py", "models/sku_list.py"):
        assert (found[f"llama-models:{path}"].status, found[f"llama-models:{path}"].origin) == ("verified", "installed")
    earlier = found["llama3:llama/model.py"]
    assert (earlier.status, earlier.hint) == ("pending", "Run: atlas sources sync llama3")
    assert [verdict.lock.id for verdict in verify(store, ["llama3"])] == ["llama3"]


def test_a_file_with_its_kept_lines_is_verified(make_store: MakeStore) -> None:
    store = make_store({"Attention.forward.assigns(scores)": (5, 5)}, earlier={"model.py": EARLIER})
    [verdict] = verify(store)
    assert (verdict.status, verdict.origin, verdict.anchors, verdict.detail) == ("verified", "cache", 1, "")


def test_kept_lines_that_are_wrong_fail(make_store: MakeStore) -> None:
    store = make_store({"Attention.forward.assigns(scores)": (5, 6)}, earlier={"model.py": EARLIER})
    [verdict] = verify(store)
    assert verdict.status == "failed"
    assert verdict.detail == "Attention.forward.assigns(scores) is at 5-5, not 5-6."
    assert "sources/earlier.toml" in verdict.hint


def test_a_file_edited_by_hand_fails_and_both_hashes_are_named(make_store: MakeStore) -> None:
    store = make_store(earlier={"model.py": EARLIER})
    [before] = verify(store)
    store.cached_path(before.lock, "model.py").write_text(EARLIER.replace("scaled", "SCALED"))
    [verdict] = verify(store)
    assert verdict.status == "failed"
    assert verdict.locked.sha256 in verdict.detail
    assert verdict.hint == "Run: atlas sources sync earlier"


def test_a_file_that_is_gone_is_pending_again(make_store: MakeStore) -> None:
    store = make_store(earlier={"model.py": EARLIER})
    assert verify(store)[0].status == "verified"
    shutil.rmtree(store.cache_dir)
    assert verify(store)[0].status == "pending"


def test_a_file_that_is_no_python_fails(make_store: MakeStore) -> None:
    [verdict] = verify(make_store(earlier={"model.py": "def ("}))
    assert verdict.status == "failed"
    assert "cannot be parsed" in verdict.detail


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("Attention.forward", True),
        ("Attention.build", False),
        ("Attention", False),
        ("softmax", False),
        ("nowhere", False),
    ],
)
def test_code_is_compared_by_its_syntax(make_store: MakeStore, name: str, same: bool) -> None:
    store = make_store(earlier={"model.py": EARLIER}, running={"model.py": RUNNING})
    earlier, running = (store.read(SourceRef(source=source, path="model.py")) for source in ("earlier", "running"))
    assert same_syntax(earlier, running, [name]) == {name: same}


def test_definitions_are_those_in_which_anchors_lie() -> None:
    cited = [parse("f.returns"), at("A.g").through(at("A.h").returns()), at("").assigns("X"), at("f").assigns("y")]
    assert definitions(cited) == ("f", "A.g", "A.h")
