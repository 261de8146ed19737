"""The catalogue: what is found by looking, and that every declaration in it holds together."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

import atlas.architectures
from atlas.catalog import Catalog, found_architectures, found_models, open_catalog
from atlas.errors import DeclarationError, NotFound
from atlas.graph.nodes import Tensor
from atlas.models.entry import ModelEntry, StatedConfiguration
from atlas.provenance.citations import locate
from atlas.provenance.store import SourceStore

MODELS = [entry.id for entry in found_models()]
META = (
    *("llama-3-8b", "llama-3.1-8b", "llama-3-70b", "llama-3.1-70b", "llama-3.1-405b", "llama-3.2-1b", "llama-3.2-3b"),
    "llama-3.3-70b",
)
ARCHITECTURE = '''\
"""A made-up architecture: it doubles."""

from atlas.graph.anchors import at
from atlas.graph.evidence import SourceRef
from atlas.graph.nodes import Architecture, Operation, Reference, Tensor

ID = "doubler"
FORWARD = at("apply_rotary_emb")


def declare(config):
    return Architecture(
        id=ID,
        name="Doubler",
        summary="Doubles.",
        kind="Toy",
        attention="None",
        reference=Reference(
            runner="none",
            file=SourceRef(source="llama-models", path="models/llama3/model.py"),
            block="TransformerBlock",
            forward="Transformer.forward",
        ),
        nodes=(
            Tensor(
                path="inward", name="Inward", symbol="x", shape=("positions", "d_model"), description="In.",
                hook=FORWARD.argument("xq"),
            ),
            Operation(
                path="double", name="Double", inputs=("inward",), outputs=("outward",), description="Doubles.",
                equation="<outward> = 2 <inward>", reference=lambda inward: 2 * inward,
            ),
            Tensor(
                path="outward", name="Outward", symbol="y", shape=("positions", "d_model"), description="Out.",
                hook=FORWARD.returns()[0],
            ),
        ),
        sizes={"d_model": config["width"]},
        settings={},
    )
'''


def entry(model: str = "doubler-1", architecture: str = "doubler", rank: int = 100) -> ModelEntry:
    return ModelEntry(
        id=model,
        name="Doubler 1",
        publisher="Nobody",
        released=date(2026, 1, 1),
        architecture=architecture,
        rank=rank,
        configuration=StatedConfiguration(
            values={"width": 3},
            claim="Stated.",
            repository="nobody/doubler",
            revision="v1",
            path="config",
            url="https://example.org/doubler",
            sha256="0" * 64,
            license="CC0-1.0",
            license_url="https://example.org/license",
        ),
    )


@pytest.fixture
def more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory where architectures are looked for too."""
    monkeypatch.setattr(atlas.architectures, "__path__", [*atlas.architectures.__path__, str(tmp_path)])
    yield tmp_path
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(f"atlas.architectures.{file.stem}", None)


# --- what is found


def test_an_architecture_is_one_file(more: Path, store: SourceStore) -> None:
    (more / "doubler.py").write_text(ARCHITECTURE)
    catalog = Catalog(store, [entry()])
    assert "doubler" in catalog.architectures
    model = catalog["doubler-1"]
    assert [node.path for node in model.graph.nodes.values()] == ["inward", "double", "outward"]
    assert model.graph["double"].plain_equation == "y = 2 x"
    assert model.code_name("outward") == "xq_out.type_as(xq)"
    assert model.configuration.repository == "nobody/doubler"


def test_files_that_declare_nothing_are_passed_over(more: Path) -> None:
    (more / "_numbers.py").write_text("raise RuntimeError('imported')\n")
    (more / "numbers_only.py").write_text("VALUE = 1\n")
    assert set(found_architectures()) >= {"llama"}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [("nameless", "", "has no ID"), ("second", "ID = 'llama'\n", "the id 'llama', as another does")],
)
def test_an_architecture_without_an_id_of_its_own_is_refused(more: Path, name: str, text: str, says: str) -> None:
    (more / f"{name}.py").write_text(f"{text}def declare(config): ...\n")
    with pytest.raises(DeclarationError, match=says):
        found_architectures()


def test_the_catalogue_has_the_models_of_the_contract() -> None:
    assert set(META) | {"smollm2-135m"} <= set(MODELS)
    catalog = open_catalog(Path("nowhere"))
    assert [found.id for found in catalog][:2] == ["llama-3-8b", "llama-3.1-8b"]
    assert catalog.default.id == "smollm2-135m"
    assert [found.rank for found in catalog] == sorted(found.rank for found in catalog)


def test_every_model_follows_one_that_exists_and_is_of_an_architecture_that_exists(catalog: Catalog) -> None:
    for found in catalog:
        assert found.follows is None or found.follows in catalog, found.id
        assert found.architecture in catalog.architectures, found.id
        assert found.released_words == found.released.strftime("%b %Y")


def test_two_models_with_one_id_are_refused(store: SourceStore) -> None:
    with pytest.raises(DeclarationError, match="Two models have the id 'doubler-1'"):
        Catalog(store, [entry(), entry(rank=1)])


def test_a_model_of_no_architecture_is_named_when_it_is_asked_for(store: SourceStore) -> None:
    catalog = Catalog(store, [entry(architecture="trebler")])
    with pytest.raises(DeclarationError, match="doubler-1 is of the architecture 'trebler', which nothing declares"):
        _ = catalog["doubler-1"]


@pytest.mark.parametrize(
    ("asked", "near"), [("llama-3-8B", "llama-3-8b"), ("smollm2", "smollm2-135m"), ("llama-3.1-400b", "llama-3.1-405b")]
)
def test_an_unknown_model_is_named_with_the_nearest(catalog: Catalog, asked: str, near: str) -> None:
    with pytest.raises(NotFound) as caught:
        _ = catalog[asked]
    assert caught.value.detail == f"There is no model {asked!r}."
    assert caught.value.facts["nearest"] == near
    assert asked not in catalog


def test_a_model_can_join_and_be_replaced(store: SourceStore) -> None:
    catalog = Catalog(store)
    catalog.add(catalog.entry("llama-3-8b").model_copy(update={"id": "mine", "name": "Mine"}))
    assert catalog["mine"].name == "Mine"
    catalog.add(catalog.entry("mine").model_copy(update={"name": "Mine again"}))
    assert catalog["mine"].name == "Mine again"


def test_a_model_is_resolved_once(catalog: Catalog) -> None:
    assert catalog["llama-3-8b"] is catalog["llama-3-8b"]


# --- that it holds together, for every model that exists


@pytest.mark.parametrize("model_id", MODELS)
def test_every_hook_leads_to_one_expression_that_an_instruction_computes(catalog: Catalog, model_id: str) -> None:
    model = catalog[model_id]
    module = model.reference_module
    places: dict[tuple[object, ...], str] = {}
    for path, found in model.graph.nodes.items():
        if not isinstance(found.node, Tensor):
            continue
        hook = found.node.hook
        place = module.watchable(hook)
        assert (place.span is None) == (place.argument is not None), path
        key = (place.function, place.span, place.element, place.argument, str(hook))
        assert key not in places, f"{path} and {places[key]} are hooked at the same place"
        places[key] = path
    assert places


@pytest.mark.parametrize("model_id", MODELS)
def test_every_anchor_of_every_piece_of_evidence_has_its_lines(catalog: Catalog, model_id: str) -> None:
    model = catalog[model_id]
    pieces = [*model.entry.errata, *(e for found in model.graph.nodes.values() for e in found.node.evidence)]
    assert pieces
    for piece in pieces:
        lock, locked = model.store.locks.locked(piece.file)
        module = model.store.read(piece.file).module if model.store.available(piece.file) else None
        for anchor in piece.anchors:
            first, last = locate(anchor, module, lock, locked)
            assert 1 <= first <= last, f"{piece.id}: {anchor}"


@pytest.mark.parametrize("model_id", MODELS)
def test_every_node_has_its_place_its_name_and_its_evidence(catalog: Catalog, model_id: str) -> None:
    model = catalog[model_id]
    for path in model.graph.nodes:
        model.place(path)
        model.code_name(path)
        assert model.evidence(path)[-1] == model.configuration
    for piece in model.errata:
        assert piece.kind == "erratum"
        assert piece.available
        assert piece.excerpt
