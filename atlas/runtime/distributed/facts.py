"""What must be the same on all ranks: versions, code, options and weights; compared by hash, the difference named.

Knows what to compare, not how ranks reach each other.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import atlas
from atlas.catalog import Catalog
from atlas.errors import EnvironmentUnfit
from atlas.runtime.placement import chosen_placement
from atlas.settings import Settings

LIBRARIES = ("torch", "llama-models", "fairscale", "transformers", "safetensors", "numpy")
DEVICE = "the device"
OPTIONS = ("untrained", "max_prompt_tokens", "max_new_tokens", "rank_seconds", "dtype", "device")


class RanksDiffer(EnvironmentUnfit):
    """Ranks were started with different weights, versions or options."""

    code = "ranks-differ"


def facts(settings: Settings, catalog: Catalog) -> dict[str, str]:
    """What this rank was started with, its weights aside: a value for each name. Raises `EnvironmentUnfit` where it
    cannot run as it was told.
    """
    found = {"atlas": f"{atlas.__version__} ({_code()[:12]})", "Python": platform.python_version()}
    found["processor"] = platform.machine()
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            found[library] = "absent"
    locks = hashlib.sha256(repr([repr(lock) for lock in catalog.store.locks]).encode()).hexdigest()
    found["pinned sources"] = locks[:12]
    for option in OPTIONS:
        found[f"--{option.replace('_', '-')}"] = str(getattr(settings, option))
    found[DEVICE] = chosen_placement(settings).device.type  # `auto` finds what each machine has
    found["--checkpoint"] = ", ".join(sorted(choice.model for choice in settings.checkpoint)) or "none"
    return found


def hash_of(found: Mapping[str, str]) -> str:
    """One hash of all facts."""
    return hashlib.sha256(json.dumps(dict(found), sort_keys=True).encode()).hexdigest()


def compare(rank: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """Raises `RanksDiffer` that names what differs between a rank and rank 0 (`ours`)."""
    if hash_of(theirs) == hash_of(ours):
        return
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    said = [
        f"{name} is {theirs.get(name, 'missing')} there and {ours.get(name, 'missing')} on rank 0" for name in names
    ]
    raise RanksDiffer(
        f"{rank} differs from rank 0: {'; '.join(said)}.",
        "Start all ranks with the same installation, the same weights and the same options.",
        differs=names,
    )


def _code() -> str:
    """A hash of all of this program's code."""
    root = Path(atlas.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
