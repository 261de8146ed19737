"""A model that goes along with its run: what says which it is, taken out of one catalogue and looked at in another.

What is carried is a configuration as plain data. A graph that nobody has declared is read off the installed library's
own code again, with that configuration; its numbers are checked before, and what it builds is bounded, holds no
numbers, and loads nothing. Knows no files.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from importlib import metadata
from pathlib import Path

from pydantic import ValidationError

from atlas.catalog import Catalog, Derived, Model, found_models
from atlas.errors import AtlasError, BadRequest, BundleError
from atlas.inspection.recorded.layout import CarriedModel, Derivation, RecordedRun
from atlas.models.entry import ModelEntry, StatedConfiguration
from atlas.runtime.checkpoints import Checkpoint

DISTRIBUTION = "transformers"
LARGEST = 1 << 24
"""The largest number of a setting that may be a size or a count; those that `UNCOUNTED` names may be larger."""
MOST_LAYERS = 4096
UNCOUNTED = ("theta", "position", "token_id", "length", "max", "seed", "context", "factor", "base")
GROUPED = ("rope_parameters", "rope_scaling")
"""Settings that are dictionaries of numbers. Any other dictionary may be a configuration with a say of its own."""
LOADING = ("implementation", "auto_map", "quantization")
"""Parts of the names of settings that could have a library load something."""
UNFIT = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""What declarations and libraries raise for a configuration that no model has."""


def carried(model: Model, checkpoint: Checkpoint) -> CarriedModel | None:
    """What has to go along with a run of this model; None for one that every catalogue has.

    Raises `BadRequest` for a model that cannot go along, which says why.
    """
    entry, stated = model.entry, model.entry.configuration
    if any(known.id == entry.id for known in found_models()):
        return None
    if not isinstance(stated, StatedConfiguration):
        raise _not_carried(model, "its configuration stands in a source file of this installation")
    derived = checkpoint.derived
    try:
        found = CarriedModel.model_validate_json(
            json.dumps(
                {
                    "id": entry.id,
                    "name": entry.name[:200],
                    "released": entry.released.isoformat(),
                    "file": stated.path[:300],
                    "sha256": checkpoint.sha256,
                    "values": dict(stated.values),
                    "tied_embeddings": entry.tied_embeddings,
                    "untrained": entry.untrained,
                    "derivation": None if derived is None else _derivation(derived),
                }
            )
        )
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"] if str(part).isidentifier())
        raise _not_carried(model, f"of its configuration, {where} is no plain data ({first['msg']})") from error
    except (TypeError, ValueError) as error:
        raise _not_carried(model, f"its configuration is no plain data ({error})") from error
    wrong = unfit(found, model.architecture.sizes["layers"])
    if wrong:
        raise _not_carried(model, wrong)
    return found


def opened(carried: CarriedModel, run: RecordedRun, catalog: Catalog, reserved: Collection[str] = ()) -> Model:
    """The model of a run that was carried with it: the catalogue's own where it is there, else one beside it, which has
    not joined it yet. Another id is made up where the catalogue has another model by that name, or `reserved` has it.

    Raises `BundleError`.
    """
    wrong = unfit(carried, run.layers)
    if wrong:
        raise _refused(carried, wrong)
    entry = _entry(carried, run)
    known = catalog.entry(entry.id) if entry.id in catalog else None
    if known is not None and _same(known, entry):
        return catalog[entry.id]
    if known is not None or entry.id in reserved:
        entry = _entry(carried.model_copy(update={"id": f"{carried.id}-{carried.sha256[:8]}"}), run)
        if entry.id in catalog and _same(catalog.entry(entry.id), entry):
            return catalog[entry.id]
    try:
        declaration = catalog.architectures.get(run.architecture)
        if carried.derivation is not None:
            declaration = _derived(carried, carried.derivation, run, catalog)
        elif declaration is None or isinstance(declaration, Derived):
            raise _refused(carried, f"its architecture {run.architecture!r} is not described here")
        model = Model(entry, declaration, catalog.store)
    except AtlasError as error:
        if isinstance(error, BundleError):
            raise
        raise _refused(carried, error.detail) from error
    except UNFIT as error:
        raise _odd(carried, error) from error
    if isinstance(declaration, Derived):
        catalog.derive(declaration)
    return model


def unfit(carried: CarriedModel, layers: int) -> str:
    """What is wrong with a configuration, before anything is made of it; empty where nothing is."""
    if layers > MOST_LAYERS:
        return f"it has {layers:,} layers, and at most {MOST_LAYERS:,} are shown"
    how = carried.derivation
    for name, value in ({} if how is None else how.arguments).items():
        if any(part in name for part in LOADING):
            return f"its configuration has {name}, which may have code loaded"
        if isinstance(value, dict) and name not in GROUPED:
            return f"its configuration has {name}, which is a configuration of its own"
    stated: list[tuple[str, object]] = [*carried.values.items()]
    stated += [] if how is None else [*how.settings.items(), *how.arguments.items()]
    for name, given in stated:
        for number in given if isinstance(given, list) else (given,):
            if type(number) is int and abs(number) > LARGEST and not any(part in name for part in UNCOUNTED):
                return f"its {name} is {number:,}, which is no size that a model has"
            if type(number) is int and "layer" in name and number > MOST_LAYERS:
                return f"its {name} is {number:,}, and at most {MOST_LAYERS:,} layers are shown"
    return ""


def _derivation(derived: Derived) -> dict[str, object]:
    reference, carrier = derived.architecture.reference, derived.lock.carrier
    assert carrier is not None
    return {
        "version": carrier.version,
        "model_class": reference.model,
        "arguments": dict(reference.arguments),
        "settings": dict(derived.settings),
    }


def _derived(carried: CarriedModel, how: Derivation, run: RecordedRun, catalog: Catalog) -> Derived:
    """The graph, read off the installed library's code. Raises `BundleError` where that is of another version."""
    try:
        installed = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        installed = "none"
    if installed != how.version:
        raise BundleError(
            f"The run is one of {carried.name!r}, whose graph is read off the code of {DISTRIBUTION} {how.version}; "
            f"installed here is {installed}.",
            f"Install {DISTRIBUTION}=={how.version}, or ask for a run that was recorded with {installed}.",
            needed=how.version,
            installed=installed,
        )
    from atlas.runtime.derivation.bounds import bounded
    from atlas.runtime.derivation.derive import derive, derived_id, installed_lock
    from atlas.runtime.hugging_face_directory import IMMATERIAL, REFUSALS, causal_classes, known_class

    where = Path(carried.file)
    if how.model_class not in causal_classes():
        raise _refused(carried, f"{how.model_class} is no model that continues text")
    model_class = known_class(where, how.model_class)
    own = model_class.config_class.__annotations__.keys() - IMMATERIAL
    odd = sorted(how.arguments.keys() - own)
    if odd:
        raise _refused(carried, f"the configuration of {how.model_class} has no {odd[0]}")
    if installed_lock(model_class.__module__).files[0].sha256 != run.reference:
        raise _refused(carried, f"the code of {how.model_class} is not that of {DISTRIBUTION} {installed} as installed")
    if run.architecture != derived_id(how.model_class, how.arguments, run.reference):
        raise _refused(carried, "its graph is not that which its run names")
    known = catalog.architectures.get(run.architecture)
    if isinstance(known, Derived):
        return known
    settings = dict(how.settings) | how.arguments
    try:
        with bounded():
            return derive(model_class, settings, how.arguments, catalog.store.cache_dir)
    except REFUSALS as error:
        raise _odd(carried, error) from error


def _entry(carried: CarriedModel, run: RecordedRun) -> ModelEntry:
    return ModelEntry(
        id=carried.id,
        name=carried.name,
        publisher="A recorded run's model",
        released=carried.released,
        architecture=run.architecture,
        configuration=StatedConfiguration(
            values=carried.values,
            claim="The configuration came along with a recorded run; whoever recorded it had the weights.",
            repository="a recorded run",
            revision=carried.sha256[:12],
            path=carried.file,
            url=f"/models/{carried.id}",
            sha256=carried.sha256,
            license="as its publisher says",
            license_url=f"/models/{carried.id}",
        ),
        rank=1,
        untrained=carried.untrained,
        tied_embeddings=carried.tied_embeddings,
    )


def _same(known: ModelEntry, other: ModelEntry) -> bool:
    """Whether two entries are of one model: of one architecture and with one configuration."""
    one, two = known.configuration, other.configuration
    return (
        isinstance(one, StatedConfiguration)
        and isinstance(two, StatedConfiguration)
        and (known.architecture, dict(one.values), known.tied_embeddings)
        == (other.architecture, dict(two.values), other.tied_embeddings)
    )


def _not_carried(model: Model, why: str) -> BadRequest:
    return BadRequest(
        f"A run of {model.name} cannot be recorded for others, since the model is in no catalogue but this one, and "
        f"{why}.",
        "Record a run of another model.",
    )


def _odd(carried: CarriedModel, error: Exception) -> BundleError:
    first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    return _refused(carried, f"no model has such a configuration ({first})")


def _refused(carried: CarriedModel, why: str) -> BundleError:
    return BundleError(
        f"The run's model {carried.name!r} cannot be shown: {why}.", "Get it again from whoever made it."
    )
