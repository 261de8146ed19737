"""The converted copy of a checkpoint: float32 safetensors, the vocabulary, and a manifest, in one directory.

A reader of some format hands over a `Conversion`; `write` carries it out, `load` takes up what was written
before, or says why it cannot. Knows neither the formats nor torch. The directory appears under its name
only when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from atlas.errors import CheckpointError
from atlas.runtime.files import directory_aside, flush, need_space, remember_sha256, remembered_sha256
from atlas.runtime.llama_layout import Config
from atlas.runtime.meter import Meter, Progress
from atlas.runtime.tokenizer_json import SETTINGS, TOKENIZER, TokenizerJson, WrittenTokenizer
from atlas.runtime.tokens import ByteLevelBpe, Tokenizer, Vocabulary

VERSION = 2
"""Of what `write` makes: a copy made by another version is made again."""

_MANIFEST, _WEIGHTS, _VOCABULARY = "manifest.json", "weights.safetensors", "vocabulary.json"
_SEAL = "manifest.sha256"
_ALIGNMENT = 64  # bytes: each tensor begins on one, as torch's own do, so that the same kernels run
_SPARE = 16 << 20  # bytes that are left free on the disk


@dataclass(frozen=True)
class Parameter:
    """One parameter by its name in the reference code; `numbers` gives its float32 numbers in order, in pieces."""

    name: str
    shape: tuple[int, ...]
    numbers: Callable[[], Iterator[npt.NDArray[np.float32]]]


@dataclass(frozen=True)
class Conversion:
    """A checkpoint that was read and checked, but for its numbers. `tied` names parameters that are others' own."""

    architecture: str
    config: Config
    quantization: str | None
    parameters: list[Parameter]
    tokenizer: Vocabulary | WrittenTokenizer
    warnings: list[str] = field(default_factory=list)
    tied: dict[str, str] = field(default_factory=dict)


class Manifest(BaseModel):
    """What the directory holds, and of what it is the copy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    source_sha256: str
    format: str
    architecture: str
    config: Config
    quantization: str | None
    shapes: dict[str, tuple[int, ...]]
    warnings: list[str]
    tied: dict[str, str]
    eos_ids: tuple[int, ...]
    sha256: dict[str, str]


@dataclass(frozen=True)
class Converted:
    """A copy that is whole. `files` are its files with their hashes."""

    manifest: Manifest
    weights: Path
    files: dict[Path, str]
    tokenizer: Tokenizer


class NotWhole(Exception):
    """There is no copy, or none to be used; the message says why. Never leaves `runtime`."""


def load(directory: Path, source_sha256: str, data_dir: Path) -> Converted:
    """Takes up the copy in `directory`. Raises NotWhole if it is not there, not whole, or of something else.

    Its files are hashed again only if they have been touched (see `remembered_sha256`).
    """
    try:
        content = (directory / _MANIFEST).read_bytes()
        seal = hashlib.sha256(content).hexdigest()
        if (directory / _SEAL).read_text() != seal:
            raise NotWhole("its manifest has changed")
        manifest = Manifest.model_validate_json(content)
        if (manifest.version, manifest.source_sha256) != (VERSION, source_sha256):
            raise NotWhole("it was made by another version, or from another file")
        if manifest.sha256.keys() not in ({_WEIGHTS, _VOCABULARY}, {_WEIGHTS, TOKENIZER, SETTINGS}):
            raise NotWhole("its manifest does not name its files")
        files = {directory / name: sha256 for name, sha256 in manifest.sha256.items()}
        for path, sha256 in files.items():
            if remembered_sha256(path, data_dir) != sha256:
                raise NotWhole(f"{path.name} has changed")
        files[directory / _MANIFEST] = seal
        return Converted(
            manifest,
            directory / _WEIGHTS,
            files,
            _tokenizer(directory, manifest.sha256, manifest.config, manifest.eos_ids),
        )
    except FileNotFoundError as error:
        raise NotWhole("it is not there, or not all of it") from error
    except (OSError, UnicodeDecodeError, ValidationError, CheckpointError) as error:
        raise NotWhole(f"it cannot be read ({type(error).__name__})") from error


def write(
    conversion: Conversion,
    form: str,
    source_sha256: str,
    directory: Path,
    data_dir: Path,
    progress: Progress | None = None,
) -> None:
    """Carries out a conversion into `directory`, replacing what is there. `form` is the source's format.

    Numbers that are not finite are kept, and become a warning. Raises CheckpointError if the vocabulary or
    the numbers cannot be read, StorageError if there is too little room, and OSError if the disk fails or
    fills up.
    """
    total = 4 * sum(math.prod(parameter.shape) for parameter in conversion.parameters)
    need_space(directory.parent, total + _SPARE, "The converted copy of these weights")
    with directory_aside(directory) as part:
        texts = _texts(conversion.tokenizer)
        for name, text in texts.items():
            (part / name).write_bytes(text)
        _tokenizer(part, texts.keys(), conversion.config, conversion.tokenizer.eos_ids)  # refused before the long work
        with Meter("Converting the weights to float32", total, progress) as meter:
            weights_sha256, unfit = _write_safetensors(conversion.parameters, part / _WEIGHTS, meter)
        manifest = Manifest(
            version=VERSION,
            source_sha256=source_sha256,
            format=form,
            architecture=conversion.architecture,
            config=conversion.config,
            quantization=conversion.quantization,
            shapes={parameter.name: parameter.shape for parameter in conversion.parameters},
            warnings=[*conversion.warnings, *unfit],
            tied=conversion.tied,
            eos_ids=conversion.tokenizer.eos_ids,
            sha256={_WEIGHTS: weights_sha256}
            | {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()},
        )
        content = manifest.model_dump_json(indent=1).encode()
        (part / _MANIFEST).write_bytes(content)
        (part / _SEAL).write_text(hashlib.sha256(content).hexdigest())
        for name in (_WEIGHTS, *texts, _MANIFEST, _SEAL):
            (part / name).chmod(0o444)  # mapped while a server runs: nobody should write to it
            flush(part / name)
    for name, sha256 in manifest.sha256.items():
        remember_sha256(directory / name, data_dir, sha256)


def _texts(tokenizer: Vocabulary | WrittenTokenizer) -> dict[str, bytes]:
    """What is kept of a tokenizer, by file."""
    if isinstance(tokenizer, Vocabulary):
        return {_VOCABULARY: tokenizer.model_dump_json().encode()}
    return {TOKENIZER: tokenizer.json.encode(), SETTINGS: json.dumps(tokenizer.settings).encode()}


def _tokenizer(directory: Path, files: Container[str], config: Config, eos_ids: tuple[int, ...]) -> Tokenizer:
    """The tokenizer that was kept in these files. Raises CheckpointError for one that contradicts itself."""
    if TOKENIZER in files:
        return TokenizerJson(directory, int(config["vocab_size"]), eos_ids)
    return ByteLevelBpe(Vocabulary.model_validate_json((directory / _VOCABULARY).read_bytes()))


def _write_safetensors(parameters: list[Parameter], path: Path, meter: Meter) -> tuple[str, list[str]]:
    """Writes one tensor after the other, so memory holds a piece of one; gives the file's hash, and warnings.

    The safetensors library writes only what is in memory whole. Format: 8 bytes of the header's length, the
    header in JSON, the numbers (little-endian).
    """
    header: dict[str, object] = {}
    end = 0
    for parameter in parameters:
        start, end = end, end + 4 * math.prod(parameter.shape)
        header[parameter.name] = {"dtype": "F32", "shape": parameter.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    digest = hashlib.sha256()
    unfit: list[str] = []
    with path.open("wb") as file:
        for part in (struct.pack("<Q", len(text)), text):
            digest.update(part)
            file.write(part)
        for parameter in parameters:
            count = unfinite = 0
            for numbers in parameter.numbers():
                data = np.ascontiguousarray(numbers, dtype="<f4")
                digest.update(data.data)
                file.write(data.data)
                count += data.size
                unfinite += data.size - int(np.count_nonzero(np.isfinite(data)))
                meter.advance(data.nbytes)
            if count != math.prod(parameter.shape):
                raise CheckpointError(
                    f"{parameter.name} has {count:,} numbers, not {math.prod(parameter.shape):,}.",
                    "Download the file again.",
                )
            if unfinite:
                unfit.append(f"{parameter.name}: {unfinite:,} of {count:,} weights are NaN or infinite.")
    return digest.hexdigest(), unfit
