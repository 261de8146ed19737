"""What the command line says of ranks, before any of them computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from atlas.cli.ranks import check_shares, require_alone
from atlas.errors import CheckpointError, EnvironmentUnfit
from atlas.runtime.distributed.place import Place

if TYPE_CHECKING:
    from atlas.catalog import Catalog


def test_every_rank_is_checked(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    model = catalog["smollm2-135m"]
    assert check_shares([model], 3) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"SmolLM2 135M, rank {rank} of 3" for rank in range(3)]
    assert all(line.endswith(" shapes, as declared") for line in lines)
    with pytest.raises(CheckpointError, match="9 q heads, 3 kv heads cannot be divided by 2"):
        check_shares([model], 2)


def test_recorded_runs_are_not_split() -> None:
    require_alone(None)
    said = "Recorded runs are not computed, so they are not split over 3 ranks."
    with pytest.raises(EnvironmentUnfit, match=said) as refused:
        require_alone(Place(1, 3, "127.0.0.1", 29500))
    assert "atlas serve BUNDLE.atlas" in refused.value.hint
