"""Which positions a pass covers, and the sizes that follow from it."""

from __future__ import annotations

import pytest

from atlas.catalog import Catalog
from atlas.inspection.frames import pass_of
from atlas.provenance.store import SourceStore
