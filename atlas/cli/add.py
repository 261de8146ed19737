"""`atlas add`: hand a running server another checkpoint, and say what became of it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

import click

from atlas.cli.options import own_option, settings, settings_options
from atlas.cli.terminal import note, stages
from atlas.errors import AtlasError, EnvironmentUnfit
from atlas.settings import HUB_ID, CheckpointChoice

PATIENCE = 30.0
"""Seconds to wait for one answer."""


@dataclass
class _Progress:
    """How far the server has come."""

    stage: str = "asking the server"
    progress: float | None = None


@click.command("add")
@click.argument("checkpoint", metavar="[MODEL=]PATH")
@own_option("add", "--url", default="", help="Where the server is. Default: http://127.0.0.1:PORT")
@own_option("add", "--dtype", type=click.Choice(("float32", "bfloat16")), help="Default: as the server was started.")
@own_option("add", "--device", type=click.Choice(("auto", "cuda", "mps", "cpu")), help="As above.")
@settings_options("port", "token")
def command(checkpoint: str, url: str, dtype: str | None, device: str | None, **given: Any) -> None:
    """Hand a running server another checkpoint: a GGUF file, a directory, or OWNER/NAME of the hub.

    \b
    atlas add mine=/models/my-model
    atlas add /models/model.gguf --dtype bfloat16
    """
    chosen = settings(given)
    where = url.rstrip("/") or f"http://127.0.0.1:{chosen.port}"
    try:
        choice = CheckpointChoice.parse(checkpoint)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from error
    is_here = choice.path.exists()
    if not is_here and not HUB_ID.fullmatch(str(choice.path)):
        raise click.UsageError(f"there is no {str(choice.path)!r}.")
    path = str(choice.path.resolve() if is_here else choice.path)
    order = {"model": choice.model, "path": path, "dtype": dtype, "device": device}
    arrival = _asked(where, chosen.token, order)
    progress = _Progress()
    with stages(lambda: progress):
        while arrival["status"] == "opening":
            progress.stage, progress.progress = arrival["stage"], arrival["progress"]
            time.sleep(0.2)
            listed = _asked(where, chosen.token)
            arrival = next((one for one in listed if one["model"] == choice.model), arrival | {"status": "refused"})
    if arrival["status"] != "ready":
        gone = {"detail": f"{choice.model} is not there any more.", "hint": "Add it again."}
        reason = arrival["error"] or gone
        raise AtlasError(reason["detail"], reason["hint"])
    for warning in arrival["notes"]:
        note(warning)
    click.echo(f"{choice.model} ({arrival['architecture']}; {arrival['held']}) is at {where}/models/{choice.model}")


def _asked(where: str, token: str, order: dict[str, Any] | None = None) -> Any:
    """What the server answers. Raises `AtlasError` with what it says, `EnvironmentUnfit` where none answers."""
    request = urllib.request.Request(
        f"{where}/api/checkpoints",
        data=None if order is None else json.dumps(order).encode(),
        headers={"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {}),
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(error.read(), f"{where} answered {error.code} {error.reason}.") from error
    except (OSError, ValueError) as error:
        raise EnvironmentUnfit(
            f"No server answers at {where}: {getattr(error, 'reason', error)}.",
            "Start one with: atlas serve, or say where it is with --url.",
        ) from error


def _refusal(said: bytes, otherwise: str) -> AtlasError:
    try:
        problem = json.loads(said)
        return AtlasError(str(problem["detail"]), str(problem.get("hint", "")))
    except (ValueError, KeyError, TypeError):
        return AtlasError(otherwise, "Is it a server of this program?")
