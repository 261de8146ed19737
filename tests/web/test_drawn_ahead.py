"""Drawing ahead: every diagram that a page begins with is there before it is asked for, and that is then known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atlas.catalog import Catalog
from atlas.graph.axes import VIEWS
from atlas.provenance.store import SourceStore
from atlas.render.javascript import JavaScript, shared
from atlas.render.kept import KeptAnswers
from atlas.web.drawing import diagram, preview
from atlas.web.drawn_ahead import draw_ahead, is_drawn

MODELS = ("gpt2-124m",)


@pytest.fixture(autouse=True)
def _own_answers(tmp_path: Path) -> Iterator[None]:
    """The shared engine keeps its answers in a file of this test."""
    before, shared().kept = shared().kept, KeptAnswers(tmp_path / "kept.sqlite3")
    yield
    shared().kept.close()
    shared().kept = before


def afresh(store: SourceStore, catalog: Catalog, *models: str) -> Catalog:
    """A catalogue of which nothing has been drawn in this process."""
    return Catalog(store, [catalog.entry(model) for model in models])


def test_what_was_drawn_ahead_is_not_drawn_again(
    catalog: Catalog, store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    first = afresh(store, catalog, *MODELS)
    assert not is_drawn(first)
    count = draw_ahead(first, lambda *at: told.append(at))
    components = [(model, path) for model in MODELS for path, node in first[model].graph.nodes.items()
                  if node.kind == "component"]  # fmt: skip
    assert count == len(told) == (len(MODELS) + len(components)) * len(VIEWS)
    assert told[-1] == (count, count)
    assert is_drawn(first)

    def call(_: JavaScript, function: str, *arguments: Any) -> None:
        raise AssertionError(f"{function[:40]} is asked {str(arguments)[:80]}")

    monkeypatch.setattr(JavaScript, "call", call)
    later = afresh(store, catalog, *MODELS)
    for model in MODELS:
        assert preview(later[model])
        assert diagram(later[model], "", "full", "", ())
    for model, path in components:
        for view in VIEWS:
            assert diagram(later[model], path, view, path, ()) == diagram(first[model], path, view, path, ())


def test_another_catalogue_is_not_drawn_yet(catalog: Catalog, store: SourceStore) -> None:
    draw_ahead(afresh(store, catalog))
    assert is_drawn(afresh(store, catalog))
    assert not is_drawn(afresh(store, catalog, *MODELS))
