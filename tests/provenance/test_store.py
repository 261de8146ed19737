"""The store: verified files, from the installed distribution first, then from the cache."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from atlas.errors import SourceMismatch, SourceUnavailable
from atlas.graph.evidence import SourceRef
from atlas.provenance.locks import Carrier, Lock, Locks
from atlas.provenance.store import SourceStore
from atlas.render.assets import sources_dir

MakeStore = Callable[..., SourceStore]
TEXT = "def f(x):\n    return x + 1\n"
OTHER = "def f(x):\n    return x - 1\n"
REF = SourceRef(source="made-up", path="model.py")


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a distribution `made-up-carrier`, installed for this test; its file is still to be written."""
    site = tmp_path / "site"
    (site / "made_up_carrier-1.2.dist-info").mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: made-up-carrier\nVersion: 1.2\n"
    (site / "made_up_carrier-1.2.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(site)
    return site


def carried(store: SourceStore) -> SourceStore:
    """The same store with a lock that names a carrier."""
    lock = store.locks["made-up"]
    file = lock.files[0].model_copy(update={"carried_as": "made_up/model.py"})
    carrier = Carrier(distribution="made-up-carrier", version="1.2")
    changed = lock.model_copy(update={"carrier": carrier, "files": (file,)})
    return SourceStore(Locks({"made-up": changed}), store.cache_dir)


def install(site: Path, text: str) -> Path:
    (site / "made_up").mkdir(exist_ok=True)
    (site / "made_up" / "model.py").write_text(text)
    return site / "made_up" / "model.py"


def test_the_reference_code_of_the_atlas_is_read_from_the_installed_package_without_importing_it() -> None:
    imported = set(sys.modules)
    file = SourceStore(Locks.read(sources_dir()), Path("nowhere")).read(
        SourceRef(source="llama-models", path="models/llama3/model.py")
    )
    assert file.origin == "installed"
    assert file.path.as_posix().endswith("llama_models/llama3/model.py")
    assert hashlib.sha256(file.path.read_bytes()).hexdigest() == file.locked.sha256
    assert not {name for name in set(sys.modules) - imported if name.startswith("llama_models")}


def test_the_installed_copy_comes_before_the_cached_one(make_store: MakeStore, distribution: Path) -> None:
    store = carried(make_store(**{"made-up": {"model.py": TEXT}}))
    path = install(distribution, TEXT)
    file = store.read(REF)
    assert (file.origin, file.path) == ("installed", path)


def test_another_installed_version_is_passed_over_for_a_cached_copy(make_store: MakeStore, distribution: Path) -> None:
    store = carried(make_store(**{"made-up": {"model.py": TEXT}}))
    install(distribution, OTHER)
    assert store.read(REF).origin == "cache"


def test_another_installed_version_alone_is_an_error_with_both_hashes(
    make_store: MakeStore, distribution: Path
) -> None:
    store = carried(make_store(**{"made-up": {"model.py": TEXT}}))
    store.cached_path(store.locks["made-up"], "model.py").unlink()
    install(distribution, OTHER)
    with pytest.raises(SourceMismatch) as caught:
        store.read(REF)
    for text in (TEXT, OTHER):
        assert hashlib.sha256(text.encode()).hexdigest() in caught.value.detail
    assert "Install made-up-carrier==1.2 again" in caught.value.hint
    assert not store.available(REF)


def test_a_file_that_is_nowhere_says_how_to_get_it(make_store: MakeStore) -> None:
    store = make_store(**{"made-up": {"model.py": TEXT}})
    store.cached_path(store.locks["made-up"], "model.py").unlink()
    with pytest.raises(SourceUnavailable) as caught:
        store.read(REF)
    assert caught.value.hint == "Run: atlas sources sync made-up"
    with pytest.raises(SourceUnavailable) as caught:
        carried(store).read(REF)
    assert caught.value.hint == "Install made-up-carrier==1.2, or run: atlas sources sync made-up"


def test_a_file_is_read_once_and_verified_again_when_it_changes(make_store: MakeStore) -> None:
    store = make_store(**{"made-up": {"model.py": TEXT}})
    first = store.read(REF)
    assert store.read(REF) is first
    stat = first.path.stat()
    first.path.write_text(OTHER)
    os.utime(first.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as large and as old as before
    with pytest.raises(SourceMismatch):
        store.read(REF)
    first.path.write_text(TEXT)
    assert store.read(REF).module.text == TEXT


def test_a_folder_in_its_place_is_no_file(make_store: MakeStore) -> None:
    store = make_store(**{"made-up": {"model.py": TEXT}})
    path = store.cached_path(store.locks["made-up"], "model.py")
    path.unlink()
    path.mkdir()
    assert not store.available(REF)


def test_a_file_that_cannot_be_read_says_so(make_store: MakeStore) -> None:
    store = make_store(**{"made-up": {"model.py": TEXT}})
    path = store.cached_path(store.locks["made-up"], "model.py")
    path.unlink()
    path.symlink_to("/proc/self/mem")  # a file that may be opened, and whose first byte nobody can read, root neither
    with pytest.raises(SourceUnavailable, match="cannot be read: Input/output error"):
        store.read(REF)


def test_revisions_do_not_share_a_cached_file(make_store: MakeStore) -> None:
    store = make_store(**{"made-up": {"model.py": TEXT}})
    lock: Lock = store.locks["made-up"]
    other = lock.model_copy(update={"revision": "v2.0"})
    assert store.cached_path(lock, "model.py") != store.cached_path(other, "model.py")
