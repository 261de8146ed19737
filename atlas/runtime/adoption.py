"""A reader's own checkpoint: matched with the model that it is for, or added to the catalogue as a new one."""

from __future__ import annotations

from datetime import UTC, date, datetime

from atlas.catalog import Catalog, Model
from atlas.errors import CheckpointError
from atlas.models.entry import ModelEntry, StatedConfiguration
from atlas.runtime.checkpoints import Checkpoint

COMPARED = ("norm_eps", "rope_theta", "use_scaled_rope")


def adopt(catalog: Catalog, identity: str, checkpoint: Checkpoint) -> Model:
    """The model that the checkpoint gives its values to.

    A known id must have the checkpoint's dimensions; an unknown one joins the catalogue with the configuration that
    the file states, and what was read off its code joins with it. Raises `CheckpointError` that lists what differs.
    """
    if checkpoint.derived is not None:
        catalog.derive(checkpoint.derived)
    if identity not in catalog:
        catalog.add(_entry(identity, checkpoint))
        return catalog[identity]
    model = catalog[identity]
    if model.architecture.id != checkpoint.architecture:
        raise CheckpointError(
            f"{checkpoint.path} is of the architecture {checkpoint.architecture!r}; {model.name} is of "
            f"{model.architecture.id!r}.",
            "Give it an id of its own: --checkpoint NEW=PATH.",
        )
    theirs = catalog.architectures[checkpoint.architecture].declare(checkpoint.config)
    differ = [
        f"{name} is {found} and should be {model.architecture.sizes.get(name)}"
        for name, found in theirs.sizes.items()
        if model.architecture.sizes.get(name) != found
    ]
    differ += [
        f"{name} is {theirs.settings.get(name)} and should be {model.architecture.settings.get(name)}"
        for name in COMPARED
        if theirs.settings.get(name) != model.architecture.settings.get(name)
    ]
    if differ:
        raise CheckpointError(
            f"{checkpoint.path} is no checkpoint of {model.name}: {'; '.join(differ)}.",
            "Give it an id of its own: --checkpoint NEW=PATH.",
        )
    return model


def _entry(identity: str, checkpoint: Checkpoint) -> ModelEntry:
    return ModelEntry(
        id=identity,
        name=checkpoint.name,
        publisher="Your checkpoint",
        released=_day(checkpoint),
        architecture=checkpoint.architecture,
        configuration=StatedConfiguration(
            values={name: value for name, value in checkpoint.config.items() if name != "tied_embeddings"},
            claim="The metadata of the weights file supplies dimensions, head counts, vocabulary and settings.",
            repository="your checkpoint",
            revision=checkpoint.sha256[:12],
            path=checkpoint.path.name,
            url=f"/models/{identity}",
            sha256=checkpoint.sha256,
            license="as its publisher says",
            license_url=f"/models/{identity}",
        ),
        rank=1,
        tied_embeddings=bool(checkpoint.config.get("tied_embeddings")),
    )


def _day(checkpoint: Checkpoint) -> date:
    """When the file was written: the only date that it has."""
    return datetime.fromtimestamp(checkpoint.path.stat().st_mtime, UTC).date()
