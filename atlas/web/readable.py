"""Which models of the catalogue can be shown here: one whose sources are missing takes down no page but its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from atlas.catalog import Catalog, Model
from atlas.errors import AtlasError
from atlas.models.entry import ModelEntry

log = logging.getLogger(__name__)


def resolved(catalog: Catalog) -> Iterator[tuple[ModelEntry, Model | AtlasError]]:
    """Every entry with its model, or with what is in the way."""
    for entry in catalog:
        try:
            yield entry, catalog[entry.id]
        except AtlasError as error:
            log.error("%s cannot be shown: %s", entry.id, error)
            yield entry, error


def readable(catalog: Catalog) -> Iterator[Model]:
    """Every model that can be shown."""
    return (model for _, model in resolved(catalog) if isinstance(model, Model))
