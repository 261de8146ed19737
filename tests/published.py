"""A published site made of recorded bundles: what `atlas build` writes, without recording the runs again."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import zipfile
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from atlas.catalog import Catalog
from atlas.inspection.recorded.bundle import written
from atlas.inspection.recorded.layout import RUN, RecordedRun
from atlas.inspection.recorded.record import Choice, record
from atlas.runtime.engine import Engine
from atlas.settings import Settings
from atlas.web.published.building import SiteBuilder
from atlas.web.published.folder import built
from atlas.web.published.listing import ChosenModels

T = TypeVar("T")


def publish(
    out: Path,
    bundle: Path,
    catalog: Catalog,
    data_dir: Path,
    models: tuple[str, ...],
    part: tuple[str, ...],
    url: str = "",
    others: tuple[Path, ...] = (),
    most_open: int = 2,
) -> RecordedRun:
    """Build the pages of these models and nodes into a folder, with the bundle's run, which it gives; and `others`.

    Few diagrams are drawn with parts open: it is the drawing that takes time.
    """
    found = []
    for path in (bundle, *others):
        with zipfile.ZipFile(path) as archive:
            found.append({name: archive.read(name) for name in archive.namelist()})
    runs = tuple(RecordedRun.model_validate_json(members[RUN]) for members in found)
    sizes: dict[str, int] = {}
    shown = ChosenModels(catalog.store, tuple(catalog.entry(entry.id) for entry in catalog), frozenset(models))
    with built(out) as folder:
        for run, members in zip(runs, found, strict=True):
            place = folder.inside(f"runs/{run.id}")
            for name, content in members.items():
                place.add(name, content)
            sizes[run.id] = place.bytes
        builder = SiteBuilder(
            Settings(data_dir=data_dir), shown, models, part, runs, sizes, runs[0].budget, url, most_open
        )
        apart(builder.build(folder, lambda *_: None))
    return runs[0]


@contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """The address of a server of files that knows nothing of the atlas: `python -m http.server`."""
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    port = re.search(r"port (\d+)", server.stdout.readline())
    assert port is not None
    yield f"http://127.0.0.1:{port[1]}"
    server.terminate()
    server.wait(10)
    server.stdout.close()


def recorded(engine: Engine, run: str, choice: Choice, out: Path) -> Path:
    """A finished run in a bundle."""
    with written(out) as sink:
        apart(record(engine, run, choice, sink))
    return out


def apart(work: Coroutine[Any, Any, T]) -> T:
    """What it gives, waited for in a thread of its own: a browser's event loop may run in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
