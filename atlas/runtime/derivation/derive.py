"""From a model class and its configuration to a derived architecture, with a lock for the file it was read off."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from atlas.catalog import Derived
from atlas.errors import AtlasError, CheckpointError, SourceUnavailable
from atlas.graph.evidence import SourceRef
from atlas.provenance.locks import Carrier, Lock, LockedFile, Locks
from atlas.provenance.store import SourceStore
from atlas.runtime.derivation.graph import graph_of
from atlas.runtime.derivation.observer import observe
from atlas.runtime.derivation.wording import kebab
from atlas.runtime.watch import Loaded

DISTRIBUTION = "transformers"
REPOSITORY, LICENSE = "huggingface/transformers", "Apache-2.0"
RUNS_INTO = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What code raises that cannot run as decoders do, or not without numbers."""


def derive(model_class: Any, settings: Mapping[str, Any], arguments: Mapping[str, Any], cache_dir: Path) -> Derived:
    """The architecture of a model of this class. `settings` are all of its configuration's, `arguments` what the
    configuration class takes to be that configuration; `cache_dir` is where fetched sources are kept.

    Raises `CheckpointError` for code that cannot be run so, and `SourceError` where its file was changed.
    """
    name = model_class.__name__
    lock = installed_lock(model_class.__module__)
    file = SourceRef(source=lock.id, path=lock.files[0].path)
    source = SourceStore(Locks({lock.id: lock}), cache_dir).read(file)
    loaded = Loaded(importlib.import_module(model_class.__module__), source.module)
    try:
        seen = observe(model_class, arguments, loaded)
    except AtlasError:
        raise
    except RUNS_INTO as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(
            f"{name} is not described here, and its code cannot be watched without numbers: {first}",
            "It would need a declaration, and maybe a runner of its own.",
        ) from error
    identity = derived_id(name, arguments, lock.files[0].sha256)
    naming = {
        name: value
        for name, value in settings.items()
        if (type(value) is int and value > 1)
        or (isinstance(value, list) and len(value) == seen.layers and all(isinstance(one, str) for one in value))
    }
    return Derived(graph_of(identity, name, settings, arguments, seen, file), lock, naming)


def derived_id(name: str, arguments: Mapping[str, Any], sha256: str) -> str:
    """The id of an architecture that is read off a class: of its name, its configuration and the hash of its code."""
    facts = json.dumps([name, dict(arguments), sha256], sort_keys=True, default=str)
    short = kebab(name.removesuffix("ForCausalLM").removesuffix("LMHeadModel"))
    return f"derived-{short}-{hashlib.sha256(facts.encode()).hexdigest()[:8]}"


def installed_lock(module: str) -> Lock:
    """A lock for one module of the installed transformers, with the hash that its wheel records.

    Raises `SourceUnavailable` where the wheel records none.
    """
    carried = f"{module.replace('.', '/')}.py"
    found = metadata.distribution(DISTRIBUTION)
    for file in found.files or ():
        if str(file) == carried and file.hash is not None:
            digest = base64.urlsafe_b64decode(file.hash.value + "=" * (-len(file.hash.value) % 4)).hex()
            break
    else:
        raise SourceUnavailable(
            f"{DISTRIBUTION} records no hash of {carried}, so it cannot be told whether it is as it was installed.",
            f"Install {DISTRIBUTION}=={found.version} again with pip.",
        )
    revision, url = f"v{found.version}", f"https://github.com/{REPOSITORY}"
    return Lock(
        id=f"derived-{module.rsplit('.', 1)[-1].replace('_', '-')}",
        repository=REPOSITORY,
        url=url,
        revision=revision,
        license=LICENSE,
        license_url=f"{url}/blob/{revision}/LICENSE",
        carrier=Carrier(distribution=DISTRIBUTION, version=found.version),
        files=(LockedFile(path=f"src/{carried}", sha256=digest, carried_as=carried),),
    )
