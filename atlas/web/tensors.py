"""The API of tensors: a tensor as a whole, its numbers as a file, and pieces of it as a viewer needs them.

Owns queries, media types and limits. What the numbers mean is `atlas.inspection`, which is imported on the first
request, since it brings torch.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from atlas.errors import TooLarge
from atlas.graph.axes import View
from atlas.inspection.answers import Cell, Measure, Part, Reduction
from atlas.web.backend import Backend
from atlas.web.problems import documented

if TYPE_CHECKING:
    from atlas.inspection.numbers import Numbers
    from atlas.inspection.viewing import Place, Viewer
    from atlas.runtime.captures import Captured
    from atlas.runtime.engine import Engine

router = APIRouter(prefix="/api/runs/{run_id}/tensors", tags=["tensors"])
PROBLEMS = documented(404, 409, 413, 422, 503)
MEDIA = {"npy": "application/x-npy", "safetensors": "application/vnd.safetensors", "csv": "text/csv; charset=utf-8"}
PIECE = 1 << 18
"""Bytes that are sent at a time: what a slow client has not taken yet stays in the tensor, not in its connection."""
KEEP = "private, max-age=3600"
"""A run's id is a hash of all that determines its numbers, so they never change."""

RunId = Annotated[str, InPath(description="The id of a run.", max_length=64)]
NodePath = Annotated[
    str, InPath(description="A node's path.", examples=["blocks/attention/attention-update"], max_length=300)
]
BINARY: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"application/octet-stream": {}},
        "description": "Little-endian numbers in row order, then one byte of flags for each: 1 nan, 2 +inf, 4 -inf, "
        "8 the dtype's lowest number, 16 a finite number. `Atlas-Shape` and `Atlas-Dtype` say how to read them.",
    }
}
FILES: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind: {} for kind in MEDIA.values()}, "description": "The numbers."}
}


class At(BaseModel):
    """Which pass and layer of the run; `layer` counts those of the model that ran. A parameter has no view or step."""

    model_config = ConfigDict(extra="forbid")

    view: View = "full"
    layer: int | None = Field(None, description="0 unless given; means nothing outside the blocks.")
    step: int | None = Field(None, description="The decode step, from 1; 1 unless given.")
    rank: int | None = Field(
        None, ge=0, description="Of a model that is split over several processes, one rank's share alone."
    )


class AtSummary(At):
    """A tensor as a whole."""

    checks: Literal["all", "shape"] = Field("all", description="`shape` leaves out what takes time to check.")


class AtData(At):
    """A tensor's numbers."""

    format: Literal["npy", "safetensors", "csv"] = "npy"
    slice: str = Field("", max_length=200, description="An entry an axis: `0,3,:,2:8`.", examples=["0,3,:,:"])


class AtNumbers(At):
    """Real numbers: of a complex tensor one part; with `against_...`, the difference to another pass or run."""

    part: Part | None = None
    slice: str = Field("", max_length=200, description="An entry an axis: `0,3,:,:`.")
    against_run: str | None = Field(None, max_length=64)
    against_view: View | None = None
    against_layer: int | None = None
    against_step: int | None = None


class AtPlane(AtNumbers):
    """Two axes of it as rows and columns."""

    transpose: bool = Field(False, description="Rows are the later of the two axes.")
    reduce: Reduction = "absmax"


class AtTile(AtPlane):
    """One tile of a plane. A cell at level l stands for 2**l elements along that direction."""

    row_level: int = 0
    column_level: int = 0
    tile_row: int = 0
    tile_column: int = 0


class AtThumbnails(AtPlane):
    """A small picture for each index along one axis."""

    over: str = Field(max_length=60)
    side: int = Field(32, ge=1, le=128)


class AtProfile(AtNumbers):
    """One number for each index along one axis."""

    along: str = Field(max_length=60)
    measure: Measure = "rms"


class AtCell(AtNumbers):
    """One element, or the one that a reduced cell stands for."""

    pick: Reduction | None = None
    along: str | None = Field(None, max_length=60, description="The axis of the row that it is ranked in.")


def engine_of(request: Request) -> Engine:
    """Raises `NotReady`."""
    backend: Backend = request.app.state.backend
    return backend.engine()


def viewer_of(request: Request) -> Viewer:
    """The app's viewer, made on first use: one for each event loop that serves it, since tasks belong to a loop."""
    state = request.app.state
    if not hasattr(state, "viewers"):
        state.viewers = WeakKeyDictionary()
    loop = asyncio.get_running_loop()
    if loop not in state.viewers:
        from atlas.inspection.viewing import Viewer

        state.viewers[loop] = Viewer()
    viewer: Viewer = state.viewers[loop]
    return viewer


def place_of(run_id: str, node: str, at: At) -> Place:
    """What the query means."""
    from atlas.inspection.viewing import Place

    return Place(run_id, node, at.view, at.layer, at.step, at.rank)


def against_of(place: Place, at: AtNumbers) -> Place | None:
    """What to subtract: what is not said is as in the place itself. None if nothing is said."""
    from atlas.inspection.viewing import Place

    said = (at.against_run, at.against_view, at.against_layer, at.against_step)
    if all(one is None for one in said):
        return None
    return Place(
        at.against_run or place.run,
        place.node,
        at.against_view or place.view,
        place.layer if at.against_layer is None else at.against_layer,
        place.step if at.against_step is None else at.against_step,
        place.rank,
    )


async def numbers_of(request: Request, run_id: str, node: str, at: AtNumbers) -> Numbers:
    """The real numbers that the query asks for."""
    place, engine, viewer = place_of(run_id, node, at), engine_of(request), viewer_of(request)
    other = against_of(place, at)
    if other is None:
        return (await viewer.look(engine, place)).numbers(at.part)
    from atlas.inspection.meanings import difference

    return (await difference(viewer, engine, place, other, at.part))[0]


# Node paths contain slashes, so the addresses that go on after them come first.


@router.get(
    "/{node:path}/data",
    response_class=Response,
    responses=FILES | PROBLEMS,
)
async def get_data(request: Request, run_id: RunId, node: NodePath, at: Annotated[AtData, Query()]) -> Response:
    """The numbers themselves, whole or sliced. bfloat16 leaves as float32 in .npy; .csv is one line an element."""
    from atlas.inspection import export
    from atlas.inspection.slices import parse_slice, remaining

    engine, viewer = engine_of(request), viewer_of(request)
    place = place_of(run_id, node, at)
    if at.slice and engine.run(run_id).runner.splitting is not None:
        viewed, index = await viewer.part(engine, place, at.slice)  # other processes have it: no more than is asked
        captured = viewed.captured
        tensor = captured.tensor
    else:
        viewed = await viewer.look(engine, place)
        captured = viewed.captured
        index = parse_slice(at.slice, captured.axes, captured.tensor.shape)
        tensor = captured.tensor[index]
    limit = request.app.state.settings.max_response_bytes
    size = export.npy_size(tensor)
    if size > limit:
        raise TooLarge(
            f"{tensor.numel():,} numbers are {size:,} bytes; at most {limit:,} are given at once.",
            "Take a slice, or raise ATLAS_MAX_RESPONSE_BYTES.",
            limit=limit,
        )
    headers = {
        "Content-Disposition": f'attachment; filename="{_file_name(viewed.model.id, captured)}.{at.format}"',
        "Cache-Control": KEEP,
    }
    if at.format == "safetensors":
        facts = {
            "model": viewed.model.id,
            "run": run_id,
            "view": captured.view or "",
            "layer": "" if captured.layer is None else str(captured.layer),
            "step": "" if captured.step is None else str(captured.step),
            "axes": ",".join(remaining(index, captured.axes)),
            "slice": at.slice,
        }
        content = await viewer.work(lambda: export.safetensors_file(tensor, captured.node, facts))
        headers["Content-Length"] = str(len(content))
        parts = (content[start : start + PIECE] for start in range(0, len(content), PIECE))
        return StreamingResponse(parts, media_type=MEDIA["safetensors"], headers=headers)
    if at.format == "csv":
        starts = [
            (entry.start if isinstance(entry, slice) else entry) + (start or 0)
            for entry, start in zip(index, viewed.first, strict=True)
            if isinstance(entry, slice)
        ]
        lines = export.csv_rows(tensor, remaining(index, captured.axes), starts)
        return StreamingResponse(lines, media_type=MEDIA["csv"], headers=headers)
    length, pieces = export.npy(tensor)
    return StreamingResponse(pieces, media_type=MEDIA["npy"], headers=headers | {"Content-Length": str(length)})


@router.get("/{node:path}/tile", response_class=Response, responses=BINARY | PROBLEMS)
async def get_tile(request: Request, run_id: RunId, node: NodePath, at: Annotated[AtTile, Query()]) -> Response:
    """256 x 256 cells of a plane, each an honest reduction of all its elements; at level 0 the elements themselves."""
    numbers = await numbers_of(request, run_id, node, at)
    levels, where = (at.row_level, at.column_level), (at.tile_row, at.tile_column)
    found = await viewer_of(request).work(lambda: numbers.tile(at.slice, at.transpose, at.reduce, levels, where))
    return _binary(found.to_bytes(), found.values.shape, str(found.values.dtype))


@router.get("/{node:path}/thumbnails", response_class=Response, responses=BINARY | PROBLEMS)
async def get_thumbnails(
    request: Request, run_id: RunId, node: NodePath, at: Annotated[AtThumbnails, Query()]
) -> Response:
    """Small multiples: one reduced picture for each index along an axis, such as all heads."""
    numbers = await numbers_of(request, run_id, node, at)
    found = await viewer_of(request).work(
        lambda: numbers.thumbnails(at.slice, at.over, at.transpose, at.side, at.reduce)
    )
    return _binary(found.to_bytes(), found.values.shape, str(found.values.dtype))


@router.get("/{node:path}/profile", response_model=list[float | None], responses=PROBLEMS)
async def get_profile(
    request: Request, run_id: RunId, node: NodePath, at: Annotated[AtProfile, Query()]
) -> list[float | None]:
    """One number for each index along an axis, over all other axes: rms by position, say. Null: no finite element."""
    numbers = await numbers_of(request, run_id, node, at)
    found = await viewer_of(request).work(lambda: numbers.profile(at.along, at.measure).tolist())
    return [value if value == value else None for value in found]


@router.get("/{node:path}/cell", responses=PROBLEMS)
async def get_cell(request: Request, run_id: RunId, node: NodePath, at: Annotated[AtCell, Query()]) -> Cell:
    """One element: its value in full, and its rank in its row."""
    numbers = await numbers_of(request, run_id, node, at)
    return await viewer_of(request).work(lambda: numbers.cell(at.slice, at.pick, at.along))


def _binary(content: bytes, shape: tuple[int, ...], dtype: str) -> Response:
    headers = {"Atlas-Shape": ",".join(map(str, shape)), "Atlas-Dtype": dtype, "Cache-Control": KEEP}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _file_name(model: str, captured: Captured) -> str:
    parts = [model, captured.node.replace("/", "."), captured.view or ""]
    parts += [
        f"{name}{value}" for name, value in (("layer", captured.layer), ("step", captured.step)) if value is not None
    ]
    # Letters of a header that need no quoting: a name of an expression of the reference code has others.
    return re.sub(r"[^A-Za-z0-9._+-]", "-", "_".join(part for part in parts if part))
