"""Static files under addresses that hold their version, so that a browser asks for each once.

Owns `/static/{version}/...`: the version is a hash of everything in the folder, and relative links between style
sheets, fonts and modules stay inside it. Without a version the same files are served, to be asked for again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOREVER = "public, max-age=31536000, immutable"


def version_of(folder: Path) -> str:
    """A short hash of the names, sizes and times of all files under `folder`."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        stat = path.stat()
        digest.update(f"{path.relative_to(folder)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:12]


class VersionedFiles(StaticFiles):
    """Serves the folder with and without its version in front."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory=directory)
        self.version = version_of(directory)

    def address(self, name: str) -> str:
        """Where a page finds the file `name` ("site.css")."""
        return f"/static/{self.version}/{name}"

    async def get_response(self, path: str, scope: Scope) -> Response:
        head, _, rest = path.partition("/")
        versioned = head == self.version
        response = await super().get_response(rest if versioned else path, scope)
        response.headers["Cache-Control"] = FOREVER if versioned else "no-cache"
        return response
