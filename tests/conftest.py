"""What tests of several rooms share: the real default checkpoint, opened once for the whole run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from atlas.settings import Settings

if TYPE_CHECKING:
    from atlas.runtime.checkpoints import Checkpoint


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The user's own data directory (ATLAS_DATA_DIR, or the default): weights are fetched into it once."""
    return Settings().data_dir


@pytest.fixture(scope="session")
def checkpoint(data_dir: Path) -> Checkpoint:
    """SmolLM2-135M-Instruct, fetched and converted if it is not there yet."""
    from atlas.runtime.checkpoints import open_checkpoint
    from atlas.runtime.weights import fetch_default

    return open_checkpoint(fetch_default(data_dir), data_dir)
