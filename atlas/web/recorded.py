"""The API of recorded runs: a bundle that a reader drops on the page is checked, kept, and shown like any other run.

Owns the upload and its limits. Whether it is a bundle at all is `atlas.inspection.recorded`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from atlas.errors import NotReady
from atlas.web.problems import documented
from atlas.web.runs import Run, backend_of

if TYPE_CHECKING:
    from atlas.inspection.recorded.engine import OpenEngine

PATH = "/api/recorded"
router = APIRouter(prefix=PATH, tags=["runs"])
BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
NAME = "bundle.atlas"


def _engine(request: Request) -> OpenEngine:
    """Raises `NotReady` until it is there."""
    from atlas.inspection.recorded.engine import OpenEngine

    engine = backend_of(request).engine()
    if not isinstance(engine, OpenEngine) or not engine.status.ready:
        raise NotReady("This server is not ready to open bundles.", "GET /readyz tells how far it is.")
    return engine


@router.post(
    "", status_code=201, response_model=Run, openapi_extra=BODY, responses=documented(403, 413, 422, 429, 503, 507)
)
async def receive(request: Request, response: Response) -> Any:
    """Show the recorded run of a bundle, as `atlas bundle` writes it. The body is the file; nothing in it executes.

    It is checked before anything of it is used: its size, its table of contents, every hash. A bundle that is cut
    short, altered, too large or of a newer format is refused with the reason.
    """
    from atlas.runtime.files import storage_errors

    engine = _engine(request)
    folder = request.app.state.settings.data_dir
    with (
        storage_errors("receive the bundle", folder),
        tempfile.TemporaryDirectory(prefix=".received-", dir=folder) as at,
    ):
        part = Path(at) / NAME
        with part.open("wb") as file:
            async for chunk in request.stream():
                await to_thread.run_sync(file.write, chunk)
        view = await to_thread.run_sync(engine.keep_bundle, part)
    response.headers["Location"] = f"/api/runs/{view.id}"
    return view.model_dump()
