"""Made-up pinned sources for the tests of this room."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from atlas.provenance.locks import Lock, Locks
from atlas.provenance.store import SourceStore

Lines = Mapping[str, tuple[int, int]]
MakeStore = Callable[..., SourceStore]


def made_up_lock(source: str, texts: Mapping[str, str], lines: Lines | None = None) -> Lock:
    """A lock of files with these texts; `lines` are kept for each."""
    return Lock.model_validate(
        {
            "id": source,
            "repository": f"somebody/{source}",
            "url": f"https://example.org/somebody/{source}",
            "revision": "0123456789" * 4,
            "license": "CC0-1.0",
            "license_url": "https://example.org/license",
            "files": [
                {"path": path, "sha256": hashlib.sha256(text.encode()).hexdigest(), "lines": lines or {}}
                for path, text in texts.items()
            ],
        }
    )


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    """Gives a store whose cache holds made-up sources: `make_store(source={"file.py": text})`."""

    def make(lines: Lines | None = None, **sources: Mapping[str, str]) -> SourceStore:
        locks = {name: made_up_lock(name, texts, lines) for name, texts in sources.items()}
        store = SourceStore(Locks(locks), tmp_path / "sources")
        for name, texts in sources.items():
            for path, text in texts.items():
                place = store.cached_path(locks[name], path)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(text.encode())
        return store

    return make
