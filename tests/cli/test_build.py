"""`atlas build`, `atlas bundle` and `atlas serve BUNDLE` as a person uses them, each in a process of its own."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from atlas.runtime.engine import Engine
from tests.inspection.recorded.test_bundle import changed, members_of, pack, with_true_hashes

from .conftest import Atlas, Start, finish

NORM = "final-norm/normalized"


def test_a_small_site_is_built_and_says_what_it_holds(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "site"
    chosen = ("--models", "smollm2-135m", "--part", NORM, "--node", "token-ids", "--budget", "1MB")
    said = finish(start("build", str(out), *chosen, "--prompt", "Hello", "--max-new-tokens", "2"), 180)
    assert said.code == 0, said.err
    assert said.out.startswith(f"Wrote {out}: ")
    assert "of 1.0 MB" in said.out
    (run,) = (out / "runs").iterdir()
    recorded = json.loads((run / "run.json").read_bytes())
    assert recorded["tokens"][0]["text"] == "Hello"
    assert (out / "models" / "smollm2-135m" / NORM / "decode.html").is_file()
    assert sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) <= 1_000_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]


def test_a_run_of_one_data_directory_is_looked_at_on_an_empty_one(
    start: Start, engine: Engine, own_data_dir: Path, tmp_path: Path
) -> None:
    run, out, empty = str(engine.demonstration), tmp_path / "run.atlas", tmp_path / "empty"
    said = finish(start("bundle", run, str(out), "--node", NORM, "--data-dir", str(own_data_dir)), 180)
    assert said.code == 0, said.err
    assert said.out == f"Wrote {out}: 9 tensors, {out.stat().st_size / 1e6:,.1f} MB.\n"
    server = start("serve", str(out), "--port", "0", "--data-dir", str(empty))
    assert server.stdout is not None
    address = server.stdout.readline().split(" is at ")[1].split()[0]
    while (ready := asked(f"{address}/readyz")).get("stage"):
        assert server.poll() is None
        time.sleep(0.1)
    assert ready["demo_run"] == run
    assert asked(f"{address}/api/runs/{run}/tensors/{NORM}?view=decode&step=1")["shape"] == [1, 1, 576]
    server.terminate()
    finish(server, 60)
    assert not (empty / "weights").exists()


def test_a_bundle_that_cannot_be_shown_ends_the_server_with_its_reason(
    start: Start, bundle: Path, tmp_path: Path
) -> None:
    """What only the catalogue tells: the server is up by then."""
    members = changed(members_of(bundle), "run.json", lambda run: run.update(model="no-such-model"))
    lie = pack(tmp_path / "lie.atlas", with_true_hashes(members))
    said = finish(start("serve", str(lie), "--port", "0", "--data-dir", str(tmp_path / "empty")), 120)
    assert said.code == 2
    assert "Traceback" not in said.err
    last = said.err.splitlines()[-1]
    assert last.startswith("Error: The run is one of the model 'no-such-model', which this catalogue cannot show")


def asked(address: str) -> dict[str, Any]:
    """What an address answers, a problem as well."""
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as problem:
        found = json.loads(problem.read())
    return found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("bundle", "0123456789", "x.atlas"), "There is no run '0123456789' in"),
        (("bundle", "0123456789", "/nowhere/x.atlas"), "there is no directory /nowhere"),
        (("bundle", "0123456789", "x.atlas", "--budget", "much"), "'much' is no size; write it as 500MB or 2GB"),
        (("build", "OUT", "--models", "no-such"), "There is no model 'no-such'"),
        (("build", "OUT", "--url", "example"), "which is no address"),
        (("build", "FULL"), "is no published atlas, so it is not replaced"),
        (("serve", "FULL/letter.txt"), "letter.txt is refused: it does not begin as a bundle does"),
        (("serve", "MISSING"), "Could not read"),
    ],
)
def test_bad_input_is_one_line_with_the_next_step(
    arguments: tuple[str, ...], words: str, atlas: Atlas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATLAS_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "FULL").mkdir()
    (tmp_path / "FULL" / "letter.txt").write_bytes(b"mine")
    said = atlas(*arguments)
    assert (said.code, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert line.startswith("Error: ")
    assert words in line
