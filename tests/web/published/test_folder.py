"""The folder of a site: replaced when the new one is whole, and left alone by everything that goes wrong before."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from atlas.errors import BadRequest, Conflict, StorageError
from atlas.web.published.folder import Folder, built, is_published


def site(out: Path, text: bytes) -> None:
    with built(out) as folder:
        folder.write("a/page.html", text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail(error: BaseException) -> Callable[[Folder], None]:
    def begin(folder: Folder) -> None:
        folder.write("a/page.html", b"half")
        raise error

    return begin


def test_a_new_site_takes_the_place_of_the_old_one_whole(tmp_path: Path) -> None:
    out = tmp_path / "site"
    site(out, b"old")
    (out / "left-over.html").write_bytes(b"of an older version")
    site(out, b"new")
    assert (out / "a" / "page.html").read_bytes() == b"new"
    assert names(out) == ["a", "atlas.json"]
    assert is_published(out)
    assert names(tmp_path) == ["site"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), OSError(errno.EACCES, "no", "there")])
def test_a_build_that_ends_early_leaves_the_old_site(error: BaseException, tmp_path: Path) -> None:
    out = tmp_path / "site"
    site(out, b"old")
    with pytest.raises((type(error), StorageError)), built(out) as folder:
        fail(error)(folder)
    assert (out / "a" / "page.html").read_bytes() == b"old"
    assert names(tmp_path) == ["site"]


def test_what_a_killed_build_left_is_in_nobodys_way(tmp_path: Path) -> None:
    left = tmp_path / ".site.building"
    left.mkdir()
    (left / "half.html").write_bytes(b"half")
    (tmp_path / ".site.building.lock").touch()
    site(tmp_path / "site", b"new")
    assert names(tmp_path / "site") == ["a", "atlas.json"]
    assert names(tmp_path) == ["site"]


def test_no_room_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    out = tmp_path / "site"
    site(out, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(StorageError, match="There is no room for the site") as error:
            site(out, bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "--budget" in error.value.hint
    assert (out / "a" / "page.html").read_bytes() == b"old"


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    other = tmp_path / "documents"
    other.mkdir()
    (other / "letter.txt").write_bytes(b"mine")
    with pytest.raises(BadRequest, match="is no published atlas, so it is not replaced"):
        site(other, b"new")
    assert names(other) == ["letter.txt"]
    empty = tmp_path / "empty"
    empty.mkdir()
    site(empty, b"new")
    assert is_published(empty)


def test_two_builds_of_one_folder_do_not_meet(tmp_path: Path) -> None:
    out = tmp_path / "site"
    with built(out) as folder:
        folder.write("a/page.html", b"first")
        with pytest.raises(Conflict, match="under way"):
            site(out, b"second")
    assert (out / "a" / "page.html").read_bytes() == b"first"
