"""Where templates, static files, source locks and browser libraries are: in a source tree, or in a wheel.

Owns the two layouts. In a source tree the folders lie beside the package, in an installed wheel inside it,
under `_data`. Knows nothing of what the files hold, and of the libraries only that a build installs them.
"""

from __future__ import annotations

from pathlib import Path

from atlas.errors import AssetMissing

_PACKAGE = Path(__file__).resolve().parents[1]
_PLACES = (_PACKAGE / "_data", _PACKAGE.parent)
_REINSTALL = "Run `make install` in a source tree, or install openmodelatlas again with pip."


def templates_dir() -> Path:
    """The page templates. Raises AssetMissing."""
    return _folder("templates")


def static_dir() -> Path:
    """What is served under /static. Raises AssetMissing."""
    return _folder("static")


def sources_dir() -> Path:
    """The locks of the pinned sources, one .toml a repository. Raises AssetMissing."""
    return _folder("sources")


def vendor_file(name: str) -> Path:
    """One file of a browser library, by its path under static/vendor ("katex/katex.min.js").

    Raises AssetMissing where it was never installed.
    """
    path = static_dir() / "vendor" / name
    if not path.is_file():
        raise AssetMissing(f"The browser library file {name} is not installed (no {path}).", _REINSTALL)
    return path


def _folder(name: str) -> Path:
    for place in _PLACES:
        if (place / name).is_dir():
            return place / name
    looked = " and ".join(str(place / name) for place in _PLACES)
    raise AssetMissing(f"The folder {name} is not installed (looked for {looked}).", _REINSTALL)
