"""Bundles that are cut short, altered, too large, of a newer format, or lies: each is refused with its reason."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atlas.catalog import Catalog
from atlas.errors import BundleError, StorageError, TooLarge
from atlas.inspection.recorded.bundle import EPOCH, LARGEST_TEXT, Bundle, written
from atlas.inspection.recorded.layout import FORMAT, PLAIN
from atlas.inspection.recorded.reading import Recorded

LIMIT = 1 << 30
Members = dict[str, bytes]
RUN = "run.json"


def members_of(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(out: Path, members: Members, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content, compression)
    return out


def with_true_hashes(members: Members) -> Members:
    """The manifest says of every member what it is: as somebody would who means to mislead."""
    manifest = json.loads(members["manifest.json"])
    others = {name: content for name, content in members.items() if name != "manifest.json"}
    manifest["members"] = {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in others.items()
    }
    return others | {"manifest.json": json.dumps(manifest).encode()}


def changed(members: Members, name: str, change: Callable[[Any], object]) -> Members:
    found = json.loads(members[name])
    change(found)
    return members | {name: json.dumps(found).encode()}


def test_a_whole_bundle_opens(bundle: Path, catalog: Catalog) -> None:
    with Bundle(bundle, LIMIT) as opened:
        assert opened.manifest.format == PLAIN
        assert all(len(opened.read(name)) == member.size for name, member in opened.manifest.members.items())
    Recorded(bundle, catalog, LIMIT).close()


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.1, 0.5, 0.99, 0.9999])
def test_a_bundle_cut_short_is_refused(bundle: Path, tmp_path: Path, share: float) -> None:
    content = bundle.read_bytes()
    cut = tmp_path / "cut.atlas"
    cut.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(BundleError, match=r"cut\.atlas is refused: it"):
        Bundle(cut, LIMIT)


def test_something_behind_it_is_refused(bundle: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer.atlas"
    longer.write_bytes(bundle.read_bytes() + b"more")
    with pytest.raises(BundleError, match="something was put behind it"):
        Bundle(longer, LIMIT)


def test_one_changed_byte_anywhere_is_refused(bundle: Path, tmp_path: Path) -> None:
    content = bundle.read_bytes()
    other = tmp_path / "changed.atlas"
    with zipfile.ZipFile(bundle) as archive:
        places = [info.header_offset + 30 + len(info.filename) + info.file_size // 2 for info in archive.infolist()]
    for place in places[:: max(1, len(places) // 12)] + places[-2:]:
        other.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(BundleError, match="altered"):
            Bundle(other, LIMIT)


def test_more_bytes_than_are_opened_are_refused_before_they_are_read(tmp_path: Path) -> None:
    large = tmp_path / "large.atlas"
    with large.open("wb") as file:
        file.truncate(LIMIT + 1)
    with pytest.raises(TooLarge, match="at most 1,073,741,824 are opened"):
        Bundle(large, LIMIT)


def test_a_newer_format_is_refused_with_what_to_do(bundle: Path, tmp_path: Path) -> None:
    def newer(manifest: Any) -> None:
        manifest.update(format=FORMAT + 1, members="in another way")

    path = pack(tmp_path / "newer.atlas", changed(members_of(bundle), "manifest.json", newer))
    with pytest.raises(
        BundleError, match=f"is of format {FORMAT + 1}, and this version knows formats up to {FORMAT}"
    ) as error:
        Bundle(path, LIMIT)
    assert "newer" in error.value.hint


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "does not begin"),
        (b"not a bundle at all", "does not begin"),
        (b"PK\x03\x04" + bytes(40), "its end is missing"),
        (b"PK\x03\x04" + bytes(30) + b"PK\x05\x06" + b"\xff" * 16 + bytes(2), "table of contents"),
    ],
)
def test_other_files_are_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "other.atlas"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=reason):
        Bundle(path, LIMIT)


def test_another_zip_file_and_a_packed_one_are_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="another kind of file"):
        Bundle(pack(tmp_path / "zip.atlas", {"a.txt": b"a"}), LIMIT)
    bomb = pack(tmp_path / "bomb.atlas", members_of(bundle) | {RUN: bytes(10_000_000)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(BundleError, match="packed or encrypted"):
        Bundle(bomb, LIMIT)


def test_a_member_too_many_or_too_few_is_named(bundle: Path, tmp_path: Path) -> None:
    members = members_of(bundle)
    with pytest.raises(BundleError, match=r"'more\.py' is in it or in its manifest, but not in both"):
        Bundle(pack(tmp_path / "more.atlas", members | {"more.py": b"import os"}), LIMIT)
    with pytest.raises(BundleError, match=r"'run\.json' is in it or in its manifest"):
        Bundle(pack(tmp_path / "less.atlas", {name: members[name] for name in members if name != RUN}), LIMIT)


def test_a_member_that_is_there_twice_is_refused(bundle: Path, tmp_path: Path) -> None:
    twice = pack(tmp_path / "twice.atlas", members_of(bundle))
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(twice, "a") as archive,
    ):
        archive.writestr(zipfile.ZipInfo(RUN, EPOCH), b"{}")
    with pytest.raises(BundleError, match=r"'run\.json' is there twice"):
        Bundle(twice, LIMIT)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO])
def test_a_link_or_a_folder_inside_is_refused(kind: int, bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "link.atlas"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members_of(bundle).items():
            info = zipfile.ZipInfo(name, EPOCH)
            info.external_attr = (kind | 0o777) << 16 if name == RUN else 0
            archive.writestr(info, b"/etc/passwd" if name == RUN else content)
    with pytest.raises(BundleError, match=r"'run\.json' is a link or a folder, and no file"):
        Bundle(path, LIMIT)


def test_what_is_no_file_itself_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.atlas")
    for path in (tmp_path / "pipe.atlas", tmp_path):
        with pytest.raises(StorageError, match="it is no file"):
            Bundle(path, LIMIT)


def test_a_table_of_contents_that_says_other_sizes_or_names_is_refused(bundle: Path, tmp_path: Path) -> None:
    """What zip files say twice, at a member and in the table, said differently: as bombs do."""
    content = bundle.read_bytes()
    with zipfile.ZipFile(bundle) as archive:
        info = archive.getinfo(RUN)
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(RUN.encode()))
    lied = {
        "a member that is larger than the file": (entry + 20, struct.pack("<II", 1 << 31, 1 << 31)),
        "a member that is larger than it says": (entry + 20, struct.pack("<II", info.file_size, info.file_size * 1000)),
        "a packed member that says it is not": (entry + 10, struct.pack("<H", zipfile.ZIP_DEFLATED)),
        "one member inside another": (entry + 42, struct.pack("<I", info.header_offset + 1)),
        "another name": (info.header_offset + 30, b"RUN"),
    }
    for name, (at, other) in lied.items():
        path = tmp_path / f"{name}.atlas"
        path.write_bytes(content[:at] + other + content[at + len(other) :])
        with pytest.raises(BundleError, match=r"is refused: |its table of contents|larger than the file"):
            Bundle(path, LIMIT)


def test_a_name_that_leads_out_of_the_folder_is_refused(bundle: Path, tmp_path: Path) -> None:
    for name in (
        "index/full/../../x.json",
        "/etc/x.json",
        "..\\x.json",
        "sheets/full/..bin",
        "x/",
        "index/full/\u202e.json",
    ):
        members = with_true_hashes(members_of(bundle) | {name: b"{}"})
        with pytest.raises(BundleError, match=r"manifest\.json is not what it should be|no file"):
            Bundle(pack(tmp_path / "out.atlas", members), LIMIT)


def use_one_piece(tiles: list[dict[str, int]]) -> None:
    """The largest, for every tile: what a small file with a huge tensor would do."""
    largest = max(tiles, key=lambda tile: tile["size"])
    for tile in tiles:
        tile.update(largest)


LIES: dict[str, tuple[str, Callable[[Any], object], str]] = {
    "another prompt": (RUN, lambda run: run["tokens"][0].update(id=7), "id is not the hash"),
    "another temperature": (RUN, lambda run: run.update(temperature=0.5), "id is not the hash"),
    "a step more": (RUN, lambda run: run.update(steps=run["steps"] + 1), "contradict each other"),
    "another vocabulary": (RUN, lambda run: run.update(vocabulary=3), "vocabulary"),
    "an unknown model": (RUN, lambda run: run.update(model="no-such-model"), "cannot show"),
    "another depth": (RUN, lambda run: run.update(layers=31), "depth"),
    "expressions that are not here": (
        RUN,
        lambda run: run.update(expressions=[{"view": "full", "places": [[0, None]]}]),
        "says of other expressions",
    ),
    "expressions of no layer": (
        RUN,
        lambda run: run.update(expressions=[{"view": "decode", "places": [[30, 1]]}]),
        "expressions of a layer or step",
    ),
    "an unknown field": (RUN, lambda run: run.update(run_this="x"), "is not what it should be"),
    "a huge shape": (
        "index/full/final-norm.normalized.json",
        lambda index: index["tensors"][0].update(shape=[1, 1 << 30, 1 << 20]),
        "tiles of other sizes",
    ),
    "an unknown dtype": (
        "index/full/final-norm.normalized.json",
        lambda index: index["tensors"][0].update(dtype="object"),
        "'object'",
    ),
    "a layer outside the blocks": (
        "index/full/final-norm.normalized.json",
        lambda index: index["tensors"][0].update(layer=1),
        "a layer that the model does not have",
    ),
    "a piece outside its sheet": (
        "index/full/final-norm.normalized.json",
        lambda index: index["tensors"][0]["tiles"][0].update(at=1 << 40),
        "a piece outside its sheet",
    ),
    "a piece that is used for two tiles": (
        "index/full/unembedding.logits.json",
        lambda index: use_one_piece(index["tensors"][0]["tiles"][:-1]),
        "uses the same bytes more than once",
    ),
    "another node": (
        "index/full/final-norm.normalized.json",
        lambda index: index.update(node="final-norm/gain"),
        "another node than its name",
    ),
    "another pass": (
        "index/full/final-norm.normalized.json",
        lambda index: index.update(view="prefill"),
        "another node than its name",
    ),
    "other axes": ("index/full/final-norm.normalized.json", lambda index: index.update(axes=["a", "b", "c"]), "axes"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_bundle_that_lies_with_true_hashes_is_refused(
    name: str, bundle: Path, catalog: Catalog, tmp_path: Path
) -> None:
    member, lie, reason = LIES[name]
    members = with_true_hashes(changed(members_of(bundle), member, lie))
    with pytest.raises(BundleError, match=reason):
        Recorded(pack(tmp_path / "lie.atlas", members), catalog, LIMIT)


def test_numbers_that_inflate_to_more_are_refused_when_they_are_read(
    bundle: Path, catalog: Catalog, tmp_path: Path
) -> None:
    members = members_of(bundle)
    name = "index/full/final-norm.normalized.json"
    piece = json.loads(members[name])["tensors"][0]["tiles"][0]
    sheet = bytearray(members["sheets/full/final-norm.normalized.0.bin"])
    sheet[piece["at"] : piece["at"] + piece["size"]] = bytes(piece["size"])
    lied = with_true_hashes(members | {"sheets/full/final-norm.normalized.0.bin": bytes(sheet)})
    opened = Recorded(pack(tmp_path / "lie.atlas", lied), catalog, LIMIT)
    with pytest.raises(BundleError, match="cannot be read: it cannot be inflated"):
        opened.captured("final-norm/normalized", "full", None, None)
    opened.close()


def test_a_tensor_that_unpacks_to_more_than_is_opened_is_refused(
    bundle: Path, catalog: Catalog, tmp_path: Path
) -> None:
    """Nothing but zeros, a thousand times smaller packed: refused before there is memory for it."""
    members = members_of(bundle)
    name, sheet = "index/full/unembedding.logits.json", "sheets/full/unembedding.logits.0.bin"
    index = json.loads(members[name])
    (tensor,) = index["tensors"]
    packed = zlib.compress(bytes(256 * 256 * 4), 9)
    rows, columns = 1 << 13, 1 << 13
    count, begin = rows * columns // (256 * 256), len(members[sheet])
    tensor["shape"] = [1, rows, columns]
    tensor["tiles"] = [
        {"sheet": 0, "at": begin + at * len(packed), "size": len(packed), "full": 256 * 256 * 4} for at in range(count)
    ]
    lied = members | {name: json.dumps(index).encode(), sheet: members[sheet] + packed * count}
    path = pack(tmp_path / "zeros.atlas", with_true_hashes(lied))
    limit = path.stat().st_size
    assert rows * columns * 4 > limit
    opened = Recorded(path, catalog, limit)
    with pytest.raises(TooLarge, match=f"has {rows * columns * 4:,} bytes unpacked; at most {limit:,} are opened"):
        opened.captured("unembedding/logits", "full", None, None)
    opened.close()


def test_indexes_that_are_larger_than_text_may_be_are_refused(bundle: Path, catalog: Catalog, tmp_path: Path) -> None:
    members = members_of(bundle)
    indexes = [name for name in members if name.startswith("index/")]
    padded = {name: members[name] + b" " * (LARGEST_TEXT // len(indexes)) for name in indexes}
    path = pack(tmp_path / "long.atlas", with_true_hashes(members | padded))
    with pytest.raises(BundleError, match="its indexes are larger than"):
        Recorded(path, catalog, LIMIT)


def test_nothing_is_left_of_a_bundle_that_could_not_be_written(tmp_path: Path) -> None:
    def write() -> None:
        with written(tmp_path / "out.atlas") as sink:
            sink.add("run.json", bytes(1 << 20))

    (tmp_path / "out.atlas").write_bytes(b"the old one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(StorageError, match=r"Could not write .*out\.atlas"):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["out.atlas"]
    assert (tmp_path / "out.atlas").read_bytes() == b"the old one"
    with pytest.raises(StorageError, match="Could not write"), written(tmp_path / "nowhere" / "out.atlas"):
        pass
