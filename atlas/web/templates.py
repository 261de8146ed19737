"""Templates: found, strict, escaping. A name that a template uses and its context lacks is an error, not a blank."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from atlas.graph.axes import VIEW_NAMES
from atlas.web.static_files import VersionedFiles

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

KINDS = {
    "component": "Component",
    "operation": "Operation",
    "tensor": "Tensor",
    "parameter": "Parameter",
    "cache": "Cache",
}
"""What a node's kind is called on a page."""


class Templates:
    """`render` takes the fields of a context as the template's names. `static(name)` is the address of a file."""

    def __init__(self, directory: Path, files: VersionedFiles) -> None:
        self.environment = Environment(
            loader=FileSystemLoader(directory),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.globals.update(static=files.address, kinds=KINDS, view_names=VIEW_NAMES)

    def render(self, name: str, context: DataclassInstance) -> str:
        """The page. Not deep: pieces keep their types, and `Markup` stays as it is."""
        given = {field.name: getattr(context, field.name) for field in fields(context)}
        return self.environment.get_template(name).render(given)
