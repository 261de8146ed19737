"""Where the assets are, in a source tree and in a wheel; and the build hook that brings them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import hatch_build
from atlas.errors import AssetMissing
from atlas.render import assets

ROOT = Path(__file__).resolve().parents[2]
NOT_CLONED = (
    ".git",
    ".venv",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "build",
    "dist",
    "vendor",
    "*.egg-info",
)


def python(*arguments: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter where no other program can be found: no node, no npm."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PATH": "/nowhere", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def clone(target: Path) -> Path:
    """The source tree as a fresh clone has it."""
    return shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*NOT_CLONED))


def build(tree: Path, kind: str, out: Path) -> Path:
    done = python("-m", "hatchling", "build", "-t", kind, "-d", out, cwd=tree)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("wheel")
    return build(clone(base / "clone"), "wheel", base / "out")


def test_in_a_source_tree_the_folders_lie_beside_the_package() -> None:
    assert assets.templates_dir() == ROOT / "templates"
    assert assets.static_dir() == ROOT / "static"
    assert assets.sources_dir() == ROOT / "sources"
    assert assets.vendor_file("katex/katex.min.js") == ROOT / "static/vendor/katex/katex.min.js"


@pytest.mark.parametrize("name", ["katex/no-such.js", "elk", ""])
def test_a_missing_library_says_what_to_do(name: str) -> None:
    with pytest.raises(AssetMissing, match="make install"):
        assets.vendor_file(name)


def test_a_wheel_carries_what_the_pages_need(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    data = "atlas/_data/"
    for folder in hatch_build.DATA:
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and "vendor" not in file.parts:
                assert data + file.relative_to(ROOT).as_posix() in names
    vendored = {name.removeprefix(data + "static/vendor/") for name in names if "/vendor/" in name}
    assert {
        "katex/LICENSE",
        "katex/katex.min.js",
        "katex/katex.min.css",
        "katex/fonts/KaTeX_Main-Regular.woff2",
        "elk/LICENSE.md",
        "elk/elk.bundled.js",
    } <= vendored
    assert not [name for name in names if name.startswith(("tests/", "static/", "node_modules/"))]


def test_a_wheel_made_from_the_sdist_is_the_same(wheel: Path, tmp_path: Path) -> None:
    sdist = build(clone(tmp_path / "clone"), "sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "/vendor/" in name]
        archive.extractall(tmp_path / "unpacked", filter="data")
    (tree,) = (tmp_path / "unpacked").iterdir()
    again = build(tree, "wheel", tmp_path / "out")
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())


def test_an_installed_wheel_finds_its_own_assets(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    pip = python("-m", "pip", "install", "--no-deps", "--no-index", "--target", target, wheel, cwd=tmp_path)
    assert pip.returncode == 0, pip.stdout + pip.stderr
    code = """if True:
        import json, sys
        sys.path.insert(0, sys.argv[1])
        from atlas.render import assets, equations
        found = [assets.templates_dir(), assets.static_dir(), assets.sources_dir()]
        found.append(assets.vendor_file("elk/elk.bundled.js"))
        print(json.dumps({"found": [str(path) for path in found], "drawn": equations.render("x")}))
    """
    done = python("-c", code, target, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    data = target / "atlas" / "_data"
    places = ("templates", "static", "sources", "static/vendor/elk/elk.bundled.js")
    assert told["found"] == [str(data / place) for place in places]
    assert 'class="katex"' in told["drawn"]


# --- the hook itself


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the hook needs of a source tree, with the libraries installed."""
    for name in hatch_build.NPM_FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    assert hatch_build.install(tmp_path) is True
    return tmp_path


def test_the_hook_fetches_once_and_mends_what_changed(tree: Path) -> None:
    assert hatch_build.install(tree) is False
    script = tree / "static/vendor/katex/katex.min.js"
    whole = script.read_bytes()
    script.write_bytes(whole[:1000])
    assert hatch_build.install(tree) is True
    assert script.read_bytes() == whole
    assert not list((tree / "build").iterdir()), "scratch folders are cleared away"


def test_a_download_that_is_not_the_locked_one_is_refused(tree: Path) -> None:
    before = sorted((tree / "static/vendor").rglob("*"))
    lock = json.loads((tree / "package-lock.json").read_text())
    lock["packages"]["node_modules/katex"]["integrity"] = "sha512-" + "A" * 86 + "=="
    (tree / "package-lock.json").write_text(json.dumps(lock))
    with pytest.raises(hatch_build.AssetsNotInstalled, match="could not be fetched"):
        hatch_build.install(tree)
    assert sorted((tree / "static/vendor").rglob("*")) == before


def test_without_a_network_the_build_stops_with_one_message(tmp_path: Path) -> None:
    tree = clone(tmp_path / "clone")
    done = python(
        *("-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "out"),
        cwd=tree,
        npm_config_registry="http://127.0.0.1:9",
        npm_config_cache=str(tmp_path / "cache"),
        npm_config_fetch_retries="0",
    )
    assert done.returncode == 1
    told = done.stdout + done.stderr
    assert "could not be fetched from npm. This needs the network once" in told
    assert "Traceback" not in told
    assert not (tree / "static/vendor").exists()


def test_a_folder_that_cannot_be_written_is_named(tree: Path) -> None:
    shutil.rmtree(tree / "static")
    (tree / "static").write_text("a file where the folder should be")
    with pytest.raises(hatch_build.AssetsNotInstalled, match=r"could not be written to .*static/vendor"):
        hatch_build.install(tree)
