"""One of several ranks without pages: rank 0 takes a prompt through the model and writes down every tensor of it.

Started by `test_split.py` as a process for each rank: `whole_run.py DATA_DIR OUT`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from atlas.catalog import open_catalog
from atlas.runtime.distributed.member import run_member
from atlas.runtime.distributed.place import Place
from atlas.runtime.engine import Engine
from atlas.runtime.runs import RunRequest
from atlas.settings import Settings

MODEL = "smollm2-135m"
REQUEST = RunRequest(model=MODEL, token_ids=(504, 3575, 282, 4649, 314), max_new_tokens=4, temperature=0.0, seed=0)
PASSES = (("full", None), ("prefill", None), ("decode", 2))


def whole_run(engine: Engine, run: str, view: str, step: int | None) -> dict[str, torch.Tensor]:
    """Every tensor that a pass computes, by layer and path; with a prefill every parameter as well."""
    graph = engine.runner(MODEL).model.graph
    kinds = ("tensor", "cache", *(["parameter"] if view == "prefill" else []))
    found = {}
    for layer in range(engine.runner(MODEL).n_layers):
        nodes = [p for p, node in graph.nodes.items() if node.kind in kinds and (node.in_blocks or layer == 0)]
        made = engine.request(run, nodes, view, layer, step).result()
        found.update({f"{captured.layer}:{path}": captured.tensor for path, captured in made.items()})
    return found


def main(data_dir: Path, out: Path) -> int:
    """Exit code 0 where all went well."""
    place = Place.here()
    assert place is not None
    settings, catalog = Settings(data_dir=data_dir, threads=1, rank_seconds=60), open_catalog(data_dir)
    if not place.serves:
        return run_member(place, settings, catalog, print)
    engine = Engine(settings, catalog, demonstrate=False, journal=out / "runs.sqlite3", place=place)
    engine.start()
    while not engine.status.ready:
        if engine.status.error is not None:
            raise engine.status.error
        time.sleep(0.02)
    run = engine.submit(REQUEST).id
    while engine.view(run).status != "done":
        time.sleep(0.02)
    for view, step in PASSES:
        found = whole_run(engine, run, view, step)
        save_file({name: tensor.clone() for name, tensor in found.items()}, out / f"{view}.safetensors")
    (out / "tokens.json").write_text(json.dumps(engine.run(run).ids))
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
