"""Each template and its context: a template uses what its context has, and the context has nothing that none uses."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest
from jinja2 import meta, nodes

from atlas.render.assets import static_dir, templates_dir
from atlas.web import contexts
from atlas.web.static_files import VersionedFiles
from atlas.web.templates import Templates

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TEMPLATES: dict[str, type[DataclassInstance]] = {
    "home.html": contexts.HomeContext,
    "model.html": contexts.ModelContext,
    "node.html": contexts.NodeContext,
    "embed.html": contexts.EmbedContext,
    "walk.html": contexts.WalkContext,
    "glossary.html": contexts.GlossaryContext,
    "how-to-read.html": contexts.HowToReadContext,
    "compare.html": contexts.CompareContext,
    "search.html": contexts.SearchContext,
    "problem.html": contexts.ProblemContext,
    "api.html": contexts.ApiContext,
    "published.html": contexts.PublishedContext,
    "missing.html": contexts.MissingContext,
}
SET_WHERE_INCLUDED = {"_map.html": {"current"}}
"""Names that a page sets around an include, with `with`."""


@pytest.fixture(scope="module")
def templates() -> Templates:
    return Templates(templates_dir(), VersionedFiles(static_dir()))


def used(templates: Templates, name: str) -> set[str]:
    """The names that a template and all that it extends, includes or imports need from outside."""
    assert templates.environment.loader is not None
    source = templates.environment.loader.get_source(templates.environment, name)[0]
    tree = templates.environment.parse(source)
    names = (
        meta.find_undeclared_variables(tree) - set(templates.environment.globals) - SET_WHERE_INCLUDED.get(name, set())
    )
    names -= {one.target for one in tree.find_all(nodes.Import)} | {one.name for one in tree.find_all(nodes.Macro)}
    for other in meta.find_referenced_templates(tree):
        assert other is not None
        names |= used(templates, other)
    return names


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_uses_what_its_context_has(templates: Templates, name: str) -> None:
    assert used(templates, name) == {field.name for field in fields(TEMPLATES[name])}


def test_every_template_has_a_context_or_is_a_part(templates: Templates) -> None:
    pages = {name for name in templates.environment.list_templates() if not name.startswith("_")}
    assert pages - {"base.html", "live.html"} == set(TEMPLATES)
