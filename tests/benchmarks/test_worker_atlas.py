"""What a pass allocates, counted by the recorder's observer."""

from __future__ import annotations

import torch

from atlas.runtime.recorder import Recorder
from benchmarks.worker_atlas import Allocated


def test_views_and_writes_in_place_allocate_nothing() -> None:
    allocated = Allocated()
    x = torch.ones(4, 6)
    with Recorder([], observer=allocated.called):
        y = x + 1  # 96 bytes
        y.view(24)
        y.transpose(0, 1)
        y.mul_(2)
        torch.cat([x, y])  # 192 bytes
        x.chunk(2)
    assert allocated.nbytes == 96 + 192
    assert allocated.with_views == 96 * 4 + 192 + 2 * 48
