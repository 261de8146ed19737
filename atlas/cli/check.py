"""`atlas check`: for each model a table of what was checked, with the numbers; 1 where anything failed."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from atlas import __version__
from atlas.cli import FAILED
from atlas.cli.options import own_option, settings, settings_options
from atlas.cli.ranks import check_shares
from atlas.cli.terminal import note, require_positions, table
from atlas.errors import StorageError
from atlas.inspection.checks.result import KINDS, STATUSES, Kind

if TYPE_CHECKING:
    from atlas.inspection.checks import Progress
    from atlas.inspection.checks.result import ModelReport, Result
    from atlas.inspection.ledger import Ledger

MOST_SHOWN = 20


@click.command("check")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@own_option("check", "--json", "as_json", is_flag=True, help="Every result, for programs.")
@own_option("check", "--only", type=click.Choice(KINDS), multiple=True, help="Some kinds of checks; may be repeated.")
@own_option(
    "check",
    "--world-size",
    type=click.IntRange(2),
    help="Only what each of so many ranks would have of MODEL, at true size, without weights.",
)
@settings_options("data_dir", "checkpoint", "dtype", "device", "threads")
def command(models: Sequence[str], as_json: bool, only: Sequence[Kind], world_size: int | None, **given: Any) -> int:
    """Check sources, shapes, edges, equations and weights of MODEL, by default of all.

    The exit code is 1 if anything failed. What is pending could not be looked at yet, and has not passed.
    """
    from atlas.catalog import open_catalog
    from atlas.inspection.checks import run_checks
    from atlas.inspection.ledger import Ledger

    chosen = settings(given)
    require_positions()
    catalog = open_catalog(chosen.data_dir)
    if world_size is not None:
        return check_shares([catalog[model] for model in models or [catalog.default.id]], world_size)
    began, reports, ledger = datetime.now(UTC), [], Ledger(chosen, catalog)
    # fairscale speaks on stdout when it starts, and a program that reads ours must not hear it.
    with _progress() as progress, contextlib.redirect_stdout(sys.stderr):
        wanted = list(models) or [entry.id for entry in catalog]
        for report in run_checks(catalog, chosen, wanted, progress, only or None):
            reports.append(report)
            if not only:  # what pages show is a whole check
                _keep(ledger, report, began)
    click.echo(_as_json(reports, began) if as_json else "\n".join(_as_text(report) for report in reports))
    return 0 if all(report.ok for report in reports) else FAILED


def _keep(ledger: Ledger, report: ModelReport, began: datetime) -> None:
    """Put a report where pages find it; a check does not fail for a full disk."""
    try:
        ledger.write(report, began)
    except StorageError as error:
        note(str(error))


def _as_json(reports: Sequence[ModelReport], began: datetime) -> str:
    document = {
        "ok": all(report.ok for report in reports),
        "version": __version__,
        "checked": began.isoformat(timespec="seconds"),
        "models": [
            {
                "id": report.model,
                "ok": report.ok,
                "seconds": report.seconds,
                "counts": {kind: report.counts(kind) for kind in report.kinds},
                "results": [result.model_dump() for result in report.results],
            }
            for report in reports
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)


def _as_text(report: ModelReport) -> str:
    rows: list[Sequence[str]] = [("", *STATUSES, "of what")]
    for kind in report.kinds:
        counts = report.counts(kind)
        subjects = dict.fromkeys(result.subject for result in report.results if result.kind == kind)
        about = ", ".join(list(subjects)[:3]) + (f" and {len(subjects) - 3} more" if len(subjects) > 3 else "")
        rows.append((kind, *(str(counts[status]) for status in STATUSES), about))
    lines = [f"{report.name} ({report.model}): {'as declared' if report.ok else 'FAILED'}, {report.seconds:.1f} s"]
    lines.append(table(rows, indent="  "))
    for status in ("failed", "pending", "noted"):
        lines += _listed(status, report.of(status))
    return "\n".join(lines) + "\n"


def _listed(status: str, results: Sequence[Result]) -> Iterator[str]:
    """What did not simply pass, one line for each reason."""
    reasons: dict[str, list[Result]] = {}
    for result in results:
        reasons.setdefault(f"{result.detail} {result.hint}".strip(), []).append(result)
    for reason, alike in list(reasons.items())[:MOST_SHOWN]:
        first = " · ".join(filter(None, (alike[0].node or alike[0].subject, alike[0].what)))
        more = f", and {len(alike) - 1} more" if len(alike) > 1 else ""
        yield f"  {status}: {first}{more}. {reason}"
    if len(reasons) > MOST_SHOWN:
        yield f"  {status}: {len(reasons) - MOST_SHOWN} more; --json has them all"


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on a terminal's stderr."""
    with tqdm(
        total=100, disable=None, leave=False, bar_format="{desc}{percentage:4.0f} %|{bar}|", file=sys.stderr
    ) as bar:

        def tell(message: str, share: float | None) -> None:
            bar.set_description_str(f"{message} ", refresh=False)
            bar.n = 100 * (share or 0)
            bar.refresh()

        yield tell
