"""The check of sources: it passes what is right, and each way of being wrong is caught where it is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from atlas.catalog import Catalog, Model
from atlas.graph.anchors import Anchor, at
from atlas.graph.evidence import SourceRef
from atlas.graph.nodes import Architecture, Declared, Operation, Tensor
from atlas.inspection.checks import Subject, found_checks, run_checks
from atlas.inspection.checks.result import Result
from atlas.inspection.checks.sources import check, cited_files
from atlas.provenance.locks import Lock, Locks
from atlas.provenance.store import SourceStore
from atlas.settings import Settings

UPDATE, SCALED = "blocks/attention/attention-update", "blocks/attention/scaled-similarities"
FORWARD = at("Attention.forward")
EARLIER = SourceRef(source="llama3", path="llama/model.py")
RUNNING = SourceRef(source="llama-models", path="models/llama3/model.py")


def results(model: Model) -> list[Result]:
    catalog = Catalog(model.store)
    return list(check(Subject(model, catalog, Settings(), lambda _message, _share: None)))


def failed(model: Model) -> list[Result]:
    return [result for result in results(model) if result.status == "failed"]


@pytest.fixture
def unsynced(store: SourceStore, tmp_path: Path) -> SourceStore:
    """The pinned sources with nothing fetched."""
    return SourceStore(store.locks, tmp_path / "nothing")


@pytest.fixture
def synced(store: SourceStore, tmp_path: Path) -> Callable[..., SourceStore]:
    """Gives a store in which the earlier file has been fetched: here it is made of the one that runs.

    `change` is what is replaced in its text, by what; `lines` are kept by its lock.
    """

    def make(change: tuple[str, str] = ("", ""), lines: dict[str, tuple[int, int]] | None = None) -> SourceStore:
        text = store.read(RUNNING).module.text.replace(*change, 1) if change[0] else store.read(RUNNING).module.text
        lock = store.locks["llama3"]
        file = lock.files[0].model_copy(
            update={"sha256": hashlib.sha256(text.encode()).hexdigest(), "lines": lines or {}}
        )
        locks: dict[str, Lock] = {known.id: known for known in store.locks}
        locks["llama3"] = lock.model_copy(update={"files": (file,)})
        made = SourceStore(Locks(locks), tmp_path / "sources")
        place = made.cached_path(locks["llama3"], EARLIER.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())
        return made

    return make


def changed(model: Model, change: Callable[[Declared], Declared]) -> Model:
    """The model with some nodes of its declaration changed."""
    nodes = tuple(change(node) for node in model.architecture.nodes)
    module = ModuleType("changed")
    architecture: Architecture = model.architecture.model_copy(update={"nodes": nodes})
    module.declare = lambda _config: architecture  # type: ignore[attr-defined]
    return Model(model.entry, module, model.store)


def hooked(path: str, anchor: Anchor) -> Callable[[Declared], Declared]:
    return lambda node: node.model_copy(update={"hook": anchor}) if node.path == path else node


def test_what_is_right_passes_and_what_is_not_here_is_pending(unsynced: SourceStore) -> None:
    model = Catalog(unsynced)["llama-3.1-8b"]
    found = results(model)
    assert {result.status for result in found} == {"passed", "pending"}
    assert {result.subject for result in found if result.status == "pending"} == {str(EARLIER)}
    assert all(result.hint == "Run: atlas sources sync llama3" for result in found if result.status == "pending")
    tensors = [path for path, node in model.graph.nodes.items() if isinstance(node.node, Tensor)]
    hooks = {result.node for result in found if result.what.endswith("leads to one expression")}
    assert hooks == set(tensors)
    of_update = {result.what: result.numbers for result in found if result.node == UPDATE}
    assert of_update["Attention.forward.returns leads to one expression"] == {"lines": "202", "code": "self.wo(output)"}
    assert {numbers.get("lines") for numbers in of_update.values()} >= {"202", "139–145, 201, 202", "236–248"}


def test_every_cited_file_is_looked_at(catalog: Catalog) -> None:
    assert [str(ref) for ref in cited_files(catalog["llama-3-8b"])] == [
        "llama-models:models/llama3/model.py",
        "llama-models:models/sku_list.py",
        "llama3:llama/model.py",
    ]


def test_once_fetched_the_earlier_code_is_compared_with_what_ran(synced: Callable[..., SourceStore]) -> None:
    found = results(Catalog(synced(lines={"Attention.forward.returns": (202, 202)}))["llama-3-8b"])
    assert {result.status for result in found} == {"passed"}
    compared = [result.what for result in found if "has the same syntax tree" in result.what]
    assert [what for what in compared if what.startswith("Attention.forward ")]
    assert len(compared) > 8


def test_other_code_is_said_to_differ(synced: Callable[..., SourceStore]) -> None:
    store = synced(("self.n_rep = self.n_local_heads", "self.n_rep = 1 * self.n_local_heads"))
    noted = [result for result in results(Catalog(store)["llama-3-8b"]) if result.status == "noted"]
    assert [result.detail.partition(":")[0] for result in noted] == ["Attention.__init__ differs"]


def test_a_line_off_by_one_is_caught(synced: Callable[..., SourceStore]) -> None:
    wrong = failed(Catalog(synced(lines={"Attention.forward.returns": (201, 201)}))["llama-3-8b"])
    assert any(result.detail == "Attention.forward.returns is at 202-202, not 201-201." for result in wrong)
    assert UPDATE in {result.node for result in wrong}


def test_a_file_edited_by_hand_is_caught_with_both_hashes(synced: Callable[..., SourceStore]) -> None:
    store = synced()
    path = store.cached_path(store.locks["llama3"], EARLIER.path)
    edited = path.read_bytes().replace(b"math.sqrt", b"math.cbrt")
    path.write_bytes(edited)
    wrong = failed(Catalog(store)["llama-3-8b"])
    assert hashlib.sha256(edited).hexdigest() in wrong[0].detail
    assert store.locks["llama3"].files[0].sha256 in wrong[0].detail
    assert {result.subject for result in wrong} == {str(EARLIER)}, "what still holds, holds"


@pytest.mark.parametrize(
    ("anchor", "says"),
    [
        (FORWARD.assigns("scores"), "3 matches of assigns(scores)"),
        (FORWARD.assigns("scores", 4), "there are 3 matches"),
        (FORWARD.assigns("scores", 2).right, "no instruction computes it"),
        (at("Attention.backward").returns(), "defines no 'Attention.backward'"),
        (FORWARD.assigns("scores", 1).inside(FORWARD.call("self.wv")), ""),
        (FORWARD.assigns("scores", 1).inside(FORWARD.call("self.wz")), "0 matches of call(self.wz)"),
    ],
    ids=str,
)
def test_a_hook_that_leads_nowhere_is_caught_at_its_node(catalog: Catalog, anchor: Anchor, says: str) -> None:
    wrong = failed(changed(catalog["llama-3-8b"], hooked(SCALED, anchor)))
    assert bool(wrong) == bool(says)
    if says:
        assert {result.node for result in wrong} <= {SCALED, "blocks/attention/scale-similarities"}
        assert any(says in result.detail for result in wrong)


def test_direct_evidence_that_does_not_hold_the_expression_is_caught(catalog: Catalog) -> None:
    wrong = failed(changed(catalog["llama-3-8b"], hooked(SCALED, FORWARD.assigns("scores", 3))))
    assert [(result.node, result.detail) for result in wrong] == [
        ("blocks/attention/scale-similarities", "It stands at 199, the evidence cites 196."),
        (SCALED, "It stands at 199, the evidence cites 196."),
    ]


def test_evidence_without_a_place_is_caught(catalog: Catalog) -> None:
    def misplaced(node: Declared) -> Declared:
        if node.path != UPDATE or isinstance(node, Operation):
            return node
        first = node.evidence[0].model_copy(update={"anchors": (FORWARD.call("self.wz"),)})
        return node.model_copy(update={"evidence": (first, *node.evidence[1:])})

    wrong = failed(changed(catalog["llama-3-8b"], misplaced))
    assert {result.node for result in wrong} == {UPDATE}
    assert any("0 matches of call(self.wz)" in result.detail for result in wrong)


def test_a_configuration_that_is_not_shown_is_caught(catalog: Catalog) -> None:
    model = catalog["llama-3-8b"]
    stated = model.entry.configuration.model_copy(update={"shown": (at("").assigns("LLAMA3_VOCAB_SIZE"),)})
    entry = model.entry.model_copy(update={"configuration": stated})
    wrong = failed(Model(entry, catalog.architectures["llama"], model.store))
    assert [result.what for result in wrong] == ["the configuration is read from the lines that are shown"]
    assert "which is not shown" in wrong[0].detail


def test_a_model_that_cannot_be_declared_fails_and_the_others_go_on(unsynced: SourceStore) -> None:
    entries = list(Catalog(unsynced))
    broken = entries[0].model_copy(update={"id": "broken", "architecture": "nowhere"})
    catalog = Catalog(unsynced, [broken, *entries[:1]])
    told: list[tuple[str, float | None]] = []
    reports = list(
        run_checks(catalog, Settings(), ["broken", entries[0].id], lambda *step: told.append(step), kinds=["sources"])
    )
    assert [report.ok for report in reports] == [False, True]
    assert "which nothing declares" in reports[0].results[0].detail
    assert [share for _, share in told] == sorted(share or 0 for _, share in told)
    assert reports[1].kinds == ("sources",)
    assert reports[1].counts()["failed"] == 0
    assert reports[1].about(UPDATE)


def test_checks_are_found_by_looking() -> None:
    found = [module.__name__.rpartition(".")[2] for module in found_checks(["sources"])]
    assert found == ["sources"]
    assert [module.ORDER for module in found_checks()] == sorted(module.ORDER for module in found_checks())
