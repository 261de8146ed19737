"""A published site made of a recorded bundle: what `atlas build` writes, without recording the run again."""

from __future__ import annotations

import asyncio
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from atlas.catalog import Catalog
from atlas.inspection.recorded.layout import RUN, RecordedRun
from atlas.settings import Settings
from atlas.web.published.building import ChosenModels, SiteBuilder
from atlas.web.published.folder import built


def publish(
    out: Path,
    bundle: Path,
    catalog: Catalog,
    data_dir: Path,
    models: tuple[str, ...],
    part: tuple[str, ...],
    url: str = "",
) -> RecordedRun:
    """Build the pages of these models and nodes into a folder, with the bundle's run."""
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    run = RecordedRun.model_validate_json(members[RUN])
    shown = ChosenModels(catalog.store, tuple(catalog.entry(entry.id) for entry in catalog), frozenset(models))
    with built(out) as folder:
        place = folder.inside(f"runs/{run.id}")
        for name, content in members.items():
            place.add(name, content)
        builder = SiteBuilder(
            Settings(data_dir=data_dir), shown, models, part, (run,), {run.id: place.bytes}, run.budget, url
        )
        # In a thread of its own: a browser's event loop may run in this one.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: asyncio.run(builder.build(folder, lambda *_: None))).result()
    return run
