"""A model of the Hugging Face hub, brought by its own library into that library's cache, and then opened from there.

Configuration, tokenizer and safetensors only: a repository's code is never brought, and a configuration that asks for
it is refused before any weights are. Knows nothing of what is in the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is that of the library it asks with
    DryRunError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from tqdm.asyncio import tqdm_asyncio as tqdm

from atlas.errors import CheckpointError, FetchError
from atlas.runtime.files import need_space, storage_errors
from atlas.runtime.meter import Progress
from atlas.runtime.placement import Placement, require_room
from atlas.settings import HUB_ID

CONFIGURATION = ("config.json", "generation_config.json")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
WEIGHTS = ("*.safetensors", "model.safetensors.index.json")
BELOW = "*/*"
"""Directories of a repository hold the same model in other forms."""
ITEMS = {"float32": 4, "float64": 8, "float8_e4m3fn": 1}


class _Bar(tqdm):  # type: ignore[type-arg]
    """A bar on a terminal, and nothing in a log."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "disable": None, "leave": False})


def is_hub_id(path: Path) -> bool:
    """Whether a path that is not there may be a repository: `OWNER/NAME`, or `OWNER/NAME@REVISION`."""
    return not path.exists() and HUB_ID.fullmatch(str(path)) is not None


def bring(path: Path, placement: Placement, progress: Progress | None = None) -> Path:
    """The directory with a repository's files, downloaded if they are not in the cache already.

    Raises CheckpointError for a repository that is not there or cannot be run, FetchError where the hub cannot be
    reached, StorageError where there is too little room.
    """
    # Here, since reading it may need transformers.
    from atlas.runtime.hugging_face_directory import architecture_name, read_configuration

    repository, _, revision = str(path).partition("@")
    tell = progress or (lambda _stage, _share: None)
    tell(f"asking the hub for {path}", None)
    small = _brought(repository, revision or None, (*CONFIGURATION, *TOKENIZER))
    stated = read_configuration(small)
    architecture_name(small, stated)
    wanted = _sizes(repository, revision or None, WEIGHTS)
    numbers = sum(wanted) // ITEMS.get(str(stated.get("dtype", stated.get("torch_dtype"))), 2)
    require_room(path, numbers, placement)
    cache = Path(huggingface_hub.constants.HF_HUB_CACHE)
    need_space(cache, sum(wanted), f"Downloading {repository}")
    tell(f"downloading {path} ({sum(wanted) / 1e9:.1f} GB)", None)
    with storage_errors(f"store {repository}", cache):
        return _brought(repository, revision or None, WEIGHTS)


def _brought(repository: str, revision: str | None, patterns: Iterable[str]) -> Path:
    return Path(str(_asked(repository, revision, patterns, dry_run=False)))


def _sizes(repository: str, revision: str | None, patterns: Iterable[str]) -> list[int]:
    """The sizes of those files that would have to be downloaded."""
    try:
        files: Any = _asked(repository, revision, patterns, dry_run=True)
    except (
        DryRunError,
        FetchError,
    ):  # without a network nothing is downloaded; whether all of it is there is seen when it is opened
        return []
    return [int(file.file_size) for file in files if file.will_download]


def _asked(repository: str, revision: str | None, patterns: Iterable[str], *, dry_run: bool) -> object:
    try:
        return huggingface_hub.snapshot_download(
            repository,
            revision=revision,
            allow_patterns=list(patterns),
            ignore_patterns=[BELOW],
            dry_run=dry_run,
            endpoint=os.environ.get("HF_ENDPOINT"),
            tqdm_class=_Bar,
        )
    except GatedRepoError as error:
        raise CheckpointError(
            f"{repository} is only for those who have accepted its terms.",
            "Accept them on its page and log in with `hf auth login`, or give the path of a copy.",
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise CheckpointError(
            f"{repository} is no file or directory here, and the hub has no such model that you may see.",
            "Check the name, or give a path.",
        ) from error
    except RevisionNotFoundError as error:
        raise CheckpointError(f"{repository} has no revision {revision!r}.", "Leave it out: main is taken.") from error
    except LocalEntryNotFoundError as error:
        raise _unreachable(repository) from error
    except (EntryNotFoundError, HfHubHTTPError, HTTPError, ValueError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise FetchError(
            f"{repository} could not be brought from the hub: {reason}", "Try again, or give the path of a copy."
        ) from error


def _unreachable(repository: str) -> FetchError:
    return FetchError(
        f"{repository} is no file or directory here, and the hub cannot be reached to bring it.",
        "Give the path of a copy, or try again with a network (HTTPS_PROXY and HF_ENDPOINT apply).",
    )
