"""`atlas run`: one prompt through a model, its tokens, and one tensor as statistics or as a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas.catalog import Catalog, open_catalog
from atlas.cli.engines import finished_run, ready_engine
from atlas.cli.options import own_option, settings, settings_options
from atlas.cli.terminal import note, require_positions, table
from atlas.errors import BadRequest, StorageError
from atlas.graph.axes import VIEWS
from atlas.graph.nodes import Quantity
from atlas.settings import Settings

if TYPE_CHECKING:
    from atlas.inspection.answers import Stats
    from atlas.runtime.captures import Captured
    from atlas.runtime.runs import RunView


@click.command("run")
@click.argument("model")
@own_option("run", "--prompt", required=True, help="The text to start from.")
@own_option("run", "--add-bos/--no-add-bos", default=None, help="Default: as the tokenizer's own settings say.")
@own_option("run", "--chat", is_flag=True, help="The prompt is a user's message, for the model's chat template.")
@own_option(
    "run", "--max-new-tokens", type=click.IntRange(0), default=16, show_default=True, help="Most tokens to generate."
)
@own_option(
    "run",
    "--temperature",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="0 takes the likeliest token.",
)
@own_option(
    "run", "--seed", type=int, default=0, show_default=True, help="Of the draw, where the temperature is not 0."
)
@own_option("run", "--node", help="Path of a tensor, cache or parameter, such as blocks/attention/attention-weights.")
@own_option("run", "--view", type=click.Choice(VIEWS), default="full", show_default=True, help="Which pass to look at.")
@own_option("run", "--layer", type=click.IntRange(0), default=0, show_default=True, help="Block of the tensor, from 0.")
@own_option("run", "--step", type=click.IntRange(1), help="Decode step, from 1. Default in decode: 1")
@own_option(
    "run",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.npy",
    help="Write the tensor there, as float32 where it is bfloat16.",
)
@settings_options("data_dir", "checkpoint", "dtype", "device", "threads")
def command(
    model: str,
    prompt: str,
    add_bos: bool | None,
    chat: bool,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    node: str | None,
    view: str,
    layer: int,
    step: int | None,
    out: Path | None,
    **given: Any,
) -> None:
    """Run a prompt through MODEL; print its tokens, and a tensor's statistics.

    The id that it prints is what `atlas bundle` and `atlas build --run` take; a server shows the run behind run=.

    \b
    atlas run smollm2-135m --prompt "The capital of France is"
    atlas run smollm2-135m --prompt "Hello" --node blocks/attention/attention-weights --view decode --layer 3 --step 2
    """
    if out is not None and node is None:
        raise click.UsageError("--out writes a tensor: name it with --node.")
    if chat and add_bos is not None:
        raise click.UsageError("--chat leaves it to the template what the prompt begins with.")
    if step is not None and view != "decode":
        raise click.UsageError("--step counts decode steps: give it with --view decode.")
    chosen = settings(given)
    chosen = chosen.model_copy(update={"max_new_tokens": max(chosen.max_new_tokens, max_new_tokens)})
    require_positions()
    if out is not None and not out.parent.is_dir():
        raise StorageError(f"Could not write {out}: there is no directory {out.parent}.", "Choose another --out.")
    catalog = open_catalog(chosen.data_dir)
    _look_up(catalog, chosen, model, node)
    with ready_engine(catalog, chosen) as engine:
        from atlas.runtime.runs import RunRequest

        made = engine.chat(model, prompt) if chat else None
        request = RunRequest(
            model=model,
            token_ids=made.ids if made is not None else tuple(engine.tokens(model, prompt, add_bos)),
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed,
            template=made.template if made is not None else (),
        )
        run = finished_run(engine, engine.submit(request).id)
        click.echo(_tokens(run))
        if run.note:
            note(run.note)
        if node is not None:
            captured = engine.request(run.id, [node], view, layer, step).result()[node]
            _show(captured, run)
            if out is not None:
                _write(captured, out)


def _look_up(catalog: Catalog, chosen: Settings, model: str, node: str | None) -> None:
    """Find what can be wrong before anything is loaded. Raises `NotFound` and `BadRequest`."""
    if model not in catalog and any(choice.model == model for choice in chosen.checkpoint):
        return  # its checkpoint says what it is
    graph = catalog[model].graph
    found = graph[node] if node is not None else None
    if found is not None and not isinstance(found.node, Quantity):
        near = f"such as {found.outputs[0]!r}" if found.outputs else "one of its parts"
        raise BadRequest(
            f"{node!r} is of the kind {found.kind}, which has no values of its own.", f"Give a tensor, {near}."
        )


def _tokens(run: RunView) -> str:
    rows = [("position", "id", "origin", "token")]
    rows += [
        (str(token.position), str(token.id), "template" if token.template else token.origin, repr(token.label))
        for token in run.tokens
    ]
    text = "".join(token.text for token in run.tokens)
    seconds = ", ".join(f"{part} {spent:.2f} s" for part, spent in run.seconds.items())
    return f"{text}\n\n{table(rows)}\n\n{run.model} · {run.checkpoint} · run {run.id} · {seconds}"


def _show(captured: Captured, run: RunView) -> None:
    from atlas.inspection.summary import summarize

    where = [run.model, captured.view or "parameter"]
    where += [f"layer {captured.layer}"] if captured.layer is not None else []
    where += [f"step {captured.step}"] if captured.step is not None else []
    sizes = ", ".join(f"{size} {axis}" for size, axis in zip(captured.tensor.shape, captured.axes, strict=True))
    dtype = str(captured.tensor.dtype).removeprefix("torch.")
    click.echo(f"\n{captured.node} · {' · '.join(where)}\n[{sizes}] {dtype}\n{_statistics(summarize(captured.tensor))}")


def _statistics(stats: Stats) -> str:
    names = ("count", "mean", "std", "min", "max", "rms", "abs_max", "nan", "inf")
    values = ((name, getattr(stats, name)) for name in names)
    return table([(name, "none is finite" if value is None else str(value)) for name, value in values], indent="  ")


def _write(captured: Captured, out: Path) -> None:
    """Write the tensor whole, or not at all. Raises `StorageError`."""
    from atlas.inspection.export import npy

    _, pieces = npy(captured.tensor)
    part = ""
    try:
        handle, part = tempfile.mkstemp(prefix=f".{out.name}-", dir=out.parent)
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
        mask = os.umask(0)
        os.umask(mask)
        Path(part).chmod(0o666 & ~mask)
        Path(part).replace(out)
    except OSError as error:
        if part:
            Path(part).unlink(missing_ok=True)
        raise StorageError(f"Could not write {out}: {error.strerror}.", "Choose another --out.") from error
    click.echo(f"\nWrote {out}")
