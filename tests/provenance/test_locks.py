"""Locks: what they say, and what a bad one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlas.errors import DeclarationError
from atlas.graph.anchors import at
from atlas.graph.evidence import SourceRef
from atlas.provenance.locks import Locks
from atlas.render.assets import sources_dir

GOOD = f"""\
id = "made-up"
repository = "somebody/made-up"
url = "https://example.org/somebody/made-up"
revision = "{"0123456789" * 4}"
license = "CC0-1.0"
license_url = "https://example.org/license"

[carrier]
distribution = "made-up"
version = "1.2"

[[files]]
path = "code/model.py"
sha256 = "{"ab" * 32}"
carried_as = "made_up/model.py"

[files.lines]
"f.assigns(x, 1)" = [3, 4]
"""


def read(tmp_path: Path, *texts: str) -> Locks:
    for index, text in enumerate(texts):
        (tmp_path / f"lock{index}.toml").write_text(text)
    return Locks.read(tmp_path)


def test_a_lock_says_what_is_pinned_and_where(tmp_path: Path) -> None:
    locks = read(tmp_path, GOOD)
    lock, file = locks.locked(SourceRef(source="made-up", path="code/model.py"))
    assert lock.short_revision == "012345678901"
    assert lock.carrier is not None
    assert (lock.carrier.distribution, lock.carrier.version) == ("made-up", "1.2")
    assert file.kept == {at("f").assigns("x", 1): (3, 4)}
    base = f"https://example.org/somebody/made-up/blob/{'0123456789' * 4}/code/model.py"
    assert lock.link("code/model.py") == base
    assert lock.link("code/model.py", (121, 127)) == f"{base}#L121-L127"
    assert "made-up" in locks
    assert "other" not in locks
    assert [lock.id for lock in locks] == ["made-up"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"ab' * 1, '"zz', "files.0.sha256"),
        ('revision = "0123', 'revision = "main', "revision"),
        ('license = "CC0-1.0"', "", "license: Field required"),
        ('id = "made-up"', 'id = "../up"', "id"),
        ('path = "code/', 'path = "../code/', "leads out of the repository"),
        ('path = "code/', 'path = "/code/', "leads out of the repository"),
        ('carried_as = "made_up/', 'carried_as = "../made_up/', "leads out of the repository"),
        ("f.assigns(x, 1)", "f.assigned(x)", "'f.assigned(x)' is no anchor"),
        ("[3, 4]", "[4, 3]", "has the lines 4 to 3"),
        ("[3, 4]", "[0, 3]", "has the lines 0 to 3"),
        ("[3, 4]", "[3]", "files.0.lines"),
        ("[carrier]", "licence = 1\n[carrier]", "licence: Extra inputs are not permitted"),
        ("[carrier]", "[carrier", "lock0.toml is no good lock"),
    ],
)
def test_what_is_wrong_with_a_lock_is_named_with_its_file(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(DeclarationError) as caught:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert says in caught.value.detail
    assert "lock0.toml" in caught.value.detail
    assert "\n" not in caught.value.detail


def test_what_is_no_text_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "lock0.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DeclarationError, match=r"lock0\.toml is no good lock"):
        Locks.read(tmp_path)


def test_two_locks_with_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"lock1\.toml gives itself the id 'made-up'"):
        read(tmp_path, GOOD, GOOD)


def test_what_is_not_locked_is_named(tmp_path: Path) -> None:
    locks = read(tmp_path, GOOD)
    with pytest.raises(DeclarationError, match="no lock 'mad-up'"):
        locks["mad-up"]
    with pytest.raises(DeclarationError, match=r"'made-up' has no file 'model\.py'"):
        locks.locked(SourceRef(source="made-up", path="model.py"))


def test_the_locks_of_the_atlas_are_good() -> None:
    locks = {lock.id: lock for lock in Locks.read(sources_dir())}
    assert locks["llama-models"].short_revision == "0e0b8c519242"
    assert locks["llama3"].short_revision == "a0940f9cf706"
    assert locks["llama3"].carrier is None
    for lock in locks.values():
        assert lock.license_url.startswith(f"{lock.url}/blob/{lock.revision}/")


def test_a_lock_that_was_added_is_found_and_not_listed() -> None:
    locks = Locks.read(sources_dir())
    listed = [lock.id for lock in locks]
    made = locks["transformers"].model_copy(update={"id": "made-since"})
    locks.add(made)
    assert "made-since" in locks
    assert locks["made-since"] is made
    assert [lock.id for lock in locks] == listed
