"""`atlas bundle` over three processes: what they record together is opened where there is one, or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from atlas.catalog import Catalog
from atlas.inspection.answers import TensorSummary
from atlas.inspection.recorded.reading import Recorded
from atlas.runtime.engine import Engine

from .conftest import StartRanks

LOGITS, NORMALIZED = "unembedding/logits", "final-norm/normalized"
DEADLINE = 240


@pytest.fixture(scope="module")
def split(
    start_ranks: StartRanks, engine: Engine, own_data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The demonstration, recorded by three ranks beside an engine that has the same data directory."""
    out = tmp_path_factory.mktemp("split") / "split.atlas"
    command = ["-m", "atlas", "bundle", str(engine.demonstration), str(out), "--data-dir", str(own_data_dir)]
    ranks = start_ranks([*command, "--node", LOGITS, "--node", NORMALIZED])
    for process in ranks:
        said = process.communicate(timeout=DEADLINE)[0]
        assert process.returncode == 0, said
    return out


def test_what_ranks_record_together_is_the_whole(split: Path, engine: Engine, catalog: Catalog) -> None:
    opened = Recorded(split, catalog, 1 << 30)
    assert opened.id == engine.demonstration
    for node in (LOGITS, NORMALIZED):  # of one each rank has a part, of the other all
        theirs = opened.captured(node, "prefill", None, None).tensor.numpy()
        ours = engine.request(opened.id, [node], "prefill", None, None).result()[node].tensor.numpy()
        assert theirs.shape == ours.shape
        assert np.abs(theirs - ours).max() <= 1e-4 * np.abs(ours).max()
        summary = TensorSummary.model_validate_json(opened.answer("summary", node, "prefill", None, None) or b"")
        assert summary.split is None, "whoever opens it has one process"
        assert summary.checks.equation.ok
    opened.close()
