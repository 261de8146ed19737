"""What computes: software and hardware that may change the last bits of a result."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

import torch


@functools.cache
def fingerprint() -> str:
    """One line that names torch, the processor, its vector instructions, and the number of threads."""
    return (
        f"torch {torch.__version__}, {_processor()}, {torch.backends.cpu.get_cpu_capability()}, "
        f"{torch.get_num_threads()} threads{_ranks()}"
    )


def _ranks() -> str:
    """Several processes add in another order than one."""
    world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    return "" if world == 1 else f", split over {world} ranks"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
