"""Which requests are taken: limits on a run, on the queue, and on one client's share of it."""

from __future__ import annotations

from collections.abc import Iterable

from atlas.errors import BadRequest, TooLarge, TooMany
from atlas.runtime.references.base import ReferenceRunner
from atlas.runtime.runs import FINISHED, Run, RunRequest
from atlas.settings import Settings


def check_request(request: RunRequest, runner: ReferenceRunner, settings: Settings) -> None:
    """Raises `BadRequest` and `TooLarge` for a run that cannot be, or is over a limit."""
    count, limit = len(request.token_ids), settings.max_prompt_tokens
    if count == 0:
        raise BadRequest("The prompt is empty: there is nothing to compute.", "Give at least one token.")
    if count > limit:
        raise TooLarge(
            f"The prompt has {count:,} tokens; at most {limit:,} are taken.",
            "Shorten it, or start with a larger --max-prompt-tokens.",
            tokens=count,
            limit=limit,
        )
    if request.max_new_tokens > settings.max_new_tokens:
        raise BadRequest(
            f"max_new_tokens is {request.max_new_tokens:,}; at most {settings.max_new_tokens:,} are generated.",
            "Ask for fewer.",
            limit=settings.max_new_tokens,
        )
    if count + request.max_new_tokens > runner.context_length:
        raise TooLarge(
            f"Prompt and new tokens come to {count + request.max_new_tokens:,} positions; the model has "
            f"{runner.context_length:,}.",
            "Shorten the prompt, or ask for fewer tokens.",
        )
    vocabulary = runner.model.architecture.sizes["vocab"]
    for token in request.token_ids:
        if not 0 <= token < vocabulary:
            raise BadRequest(f"There is no token {token}.", f"Ids run from 0 to {vocabulary - 1:,}.")


def require_a_place(runs: Iterable[Run], client: str, settings: Settings) -> None:
    """Raises `TooMany` where no more runs may wait, or no more of this client."""
    runs = tuple(runs)
    waiting = sum(other.status == "queued" for other in runs)
    if waiting >= settings.max_queue:
        raise TooMany(f"{waiting} runs are waiting, and no more may.", "Try again in a moment.", waiting=waiting)
    unfinished = sum(other.client == client and other.status not in FINISHED for other in runs)
    if client and unfinished >= settings.max_runs_per_client:
        raise TooMany(
            f"{unfinished} runs of {client} are unfinished, and no more may be.",
            "Wait for one of them, or cancel it: DELETE /api/runs/{id}.",
            unfinished=unfinished,
            limit=settings.max_runs_per_client,
        )


def place_in_line(run: Run, runs: Iterable[Run]) -> int:
    """How many unfinished runs come before one that waits."""
    if run.status != "queued":
        return 0
    unfinished = [other for other in runs if other.status in ("queued", "running")]
    return sum(other.status == "running" or other.number < run.number for other in unfinished)
