"""Checkpoints: a file of weights, whatever its format, as named tensors with configuration and tokenizer.

Dispatches by format; each format has a module of its own, which reads and checks the file. What was read is
converted once and kept (see `conversion`); later starts map the copy. Knows nothing of the code that will
run the weights.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

import torch
from safetensors import SafetensorError, safe_open

from atlas.catalog import Derived
from atlas.errors import CheckpointError, StorageError
from atlas.runtime import gguf_families, gguf_file
from atlas.runtime.conversion import Conversion, Converted, NotWhole, load, write
from atlas.runtime.files import only_builder, remembered_sha256, sha256_of, storage_errors
from atlas.runtime.llama_layout import Config
from atlas.runtime.meter import Meter, Progress
from atlas.runtime.placement import IN_FULL, Placement, amount, free_memory, numbers_in, require_room
from atlas.runtime.tokens import Tokenizer

_log = logging.getLogger(__name__)

Format = Literal["gguf", "safetensors", "meta", "untrained"]
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_READERS: dict[str, Callable[[Path], Conversion]] = {"gguf": gguf_families.read}


@dataclass(frozen=True)
class Mapped:
    """A file that is mapped: whoever cuts it short takes the process with it, as soon as it reads there.

    A file of another inode, or none, at its path is none of our business: what is mapped is kept by the mapping.
    """

    path: Path
    stamp: tuple[int, int, int]

    @classmethod
    def of(cls, path: Path) -> Self:
        return cls(path, _stamp(path))

    @property
    def has_changed(self) -> bool:
        try:
            now = _stamp(self.path)
        except OSError:
            return False
        return now[0] == self.stamp[0] and now != self.stamp


def _stamp(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


@dataclass(frozen=True)
class Checkpoint:
    """Weights that are ready to be run.

    `config` has the names of Meta's `ModelArgs` (no `ffn_dim_multiplier` where none is needed), and
    `context_length` and `tied_embeddings` beside them. `quantization` is the type that most of the weights
    were stored in, None for float32. `tensors` are by the names of the reference code, placed as `placement` says, in
    memory or (`mapped`) mapped from a file: do not write to them. Where the unembedding is tied, it is the same tensor
    as the embedding, and counts once in `parameter_count`. `sha256` is that of the file at `path`;
    `files` are all files it is made of, with their hashes. `warnings` are sentences about what a reader
    should know of these weights. `derived` is the architecture where nothing describes it: read off its code.
    """

    name: str
    path: Path
    sha256: str
    format: Format
    architecture: str
    config: Config
    quantization: str | None
    tensors: Mapping[str, torch.Tensor]
    parameter_count: int
    tokenizer: Tokenizer
    warnings: tuple[str, ...]
    files: Mapping[Path, str]
    mapped: Mapped | None = None
    placement: Placement = IN_FULL
    derived: Derived | None = None

    @property
    def identity(self) -> str:
        """What tells apart weights that compute different numbers: the files, and the number format they are run in."""
        if self.placement.dtype is torch.float32:
            return self.sha256
        return hashlib.sha256(f"{self.sha256} {self.placement.dtype_name}".encode()).hexdigest()

    @property
    def nbytes(self) -> int:
        """Bytes that the weights take, each counted once."""
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in self.tensors.values()}.values())

    @property
    def words(self) -> str:
        """How they are held: `bfloat16 on cpu, 0.5 GB in memory`."""
        where = "mapped from their file" if self.mapped is not None else "in memory"
        return f"{self.placement.words}, {amount(self.nbytes)} {where}"

    def require_whole(self) -> None:
        """Raises CheckpointError where the weights are mapped from a file that has been changed since."""
        if self.mapped is not None and self.mapped.has_changed:
            raise CheckpointError(
                f"The weights in {self.mapped.path} were changed while they are in use.",
                "Start the server again: it makes that copy again.",
            )


@dataclass(frozen=True)
class FileCheck:
    """One file's hash against the one that was recorded; `found` is None if the file cannot be read."""

    path: Path
    expected: str
    found: str | None

    @property
    def ok(self) -> bool:
        return self.found == self.expected


def open_checkpoint(
    path: Path,
    data_dir: Path,
    progress: Progress | None = None,
    in_memory: int = 0,
    placement: Placement = IN_FULL,
) -> Checkpoint:
    """Opens a checkpoint: a file, a directory, or `OWNER/NAME` of the hub, which is brought first.

    A file is converted the first time, and the copy kept in `data_dir`.

    Weights of at most `in_memory` bytes are read into memory, so that nothing done to the copy matters any more.
    Raises CheckpointError if the file cannot be used or does not fit, StorageError if the copy cannot be written.
    """
    if not path.exists():
        from atlas.runtime.hub import bring, is_hub_id

        if is_hub_id(path):
            return replace(
                open_checkpoint(bring(path, placement, progress), data_dir, progress, in_memory, placement),
                name=path.name,
            )
    if path.is_dir():
        # Reading one may need transformers, which most do not.
        from atlas.runtime.hugging_face_directory import open_directory
        from atlas.runtime.meta_directory import is_meta_directory, open_meta

        if not (path / "config.json").exists() and is_meta_directory(path):
            return open_meta(path, data_dir, progress, placement)
        return open_directory(path, data_dir, progress, placement)
    form = _format_of(path)
    try:
        sha256 = remembered_sha256(path, data_dir, progress)
    except OSError as error:
        raise _unreadable(path, error) from error
    directory = data_dir / "checkpoints" / sha256[:16]
    try:
        return _checkpoint(path, form, load(directory, sha256, data_dir), in_memory, placement)
    except NotWhole as reason:
        if directory.exists():
            _log.warning("The converted copy in %s is made again: %s.", directory, reason)
    with only_builder(directory.parent, progress):
        with contextlib.suppress(NotWhole):  # another process may have made it while this one waited
            return _checkpoint(path, form, load(directory, sha256, data_dir), in_memory, placement)
        try:
            conversion = _READERS[form](path)
            room = f"{amount(4 * numbers_in(parameter.shape for parameter in conversion.parameters))} in float32"
            if placement != IN_FULL:  # float32 on the processor stays in its file where there is no room
                room = require_room(path, numbers_in(one.shape for one in conversion.parameters), placement)
            if progress is not None:
                progress(f"opening {path.name}: {room}", None)
        except OSError as error:
            raise _unreadable(path, error) from error
        with storage_errors("write the converted copy of the weights", directory.parent):
            write(conversion, form, sha256, directory, data_dir, progress)
        try:
            return _checkpoint(path, form, load(directory, sha256, data_dir), in_memory, placement)
        except NotWhole as reason:
            raise StorageError(
                f"The converted copy in {directory} was written, but cannot be read back: {reason}.",
                "Check the disk, or choose another place with --data-dir.",
            ) from reason


def verify(checkpoint: Checkpoint, progress: Progress | None = None) -> list[FileCheck]:
    """Hashes every file that the checkpoint is made of, whole, and compares."""
    checks = []
    for path, expected in checkpoint.files.items():
        found: str | None = None
        try:
            with Meter(f"Checking {path.name}", path.stat().st_size, progress) as meter:
                found = sha256_of(path, meter)
        except OSError as error:
            _log.warning("%s cannot be read: %s", path, error.strerror)
        checks.append(FileCheck(path, expected, found))
    return checks


def _format_of(path: Path) -> Format:
    hint = "Give a GGUF file, or a directory in Hugging Face's or Meta's layout."
    try:
        with path.open("rb") as file:
            magic = file.read(len(gguf_file.MAGIC))
    except OSError as error:
        raise _unreadable(path, error) from error
    if path.suffix.lower() in PICKLES and magic != gguf_file.MAGIC:
        raise CheckpointError(
            f"{path} is a pickle, which can run code when it is read, and says nothing of what its weights are of.",
            "Give a directory: of Meta's own files with params.json, or of safetensors with config.json.",
        )
    if path.suffix.lower() == ".safetensors" and magic != gguf_file.MAGIC:
        raise CheckpointError(
            f"{path} says nothing of what its weights are of.",
            "Give the directory that it is in, with config.json and tokenizer.json.",
        )
    if magic != gguf_file.MAGIC:
        raise CheckpointError(f"{path} is in none of the formats that are read ({', '.join(_READERS)}).", hint)
    return "gguf"


def _checkpoint(path: Path, form: Format, converted: Converted, in_memory: int, placement: Placement) -> Checkpoint:
    """Maps the copy, or reads it. Raises NotWhole if it does not hold what its manifest says."""
    manifest = converted.manifest
    try:
        mapped: Mapped | None = Mapped.of(converted.weights)
        with safe_open(converted.weights, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
    except (OSError, SafetensorError) as error:
        raise NotWhole(f"its weights cannot be mapped ({type(error).__name__})") from error
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if tensor.dtype == torch.float32}
    if shapes != manifest.shapes:
        raise NotWhole("its weights are not those that its manifest names")
    count = sum(tensor.numel() for tensor in tensors.values())
    warnings = list(manifest.warnings)
    size, free = sum(tensor.nbytes for tensor in tensors.values()), free_memory(placement.device)
    if placement != IN_FULL:
        require_room(path, count, placement)
        if placement.share is None or placement.share.architecture == manifest.architecture:
            tensors = {name: placement.put(name, tensor) for name, tensor in tensors.items()}
            mapped = None
    elif size <= min(in_memory, free):
        tensors, mapped = {name: tensor.clone() for name, tensor in tensors.items()}, None
    elif size > free:
        warnings.append(
            f"It needs {amount(size)} in float32, {amount(free)} free: it is read from the disk again in each pass. "
            "Try --dtype bfloat16."
        )
    for name, source in manifest.tied.items():
        if source not in tensors:
            raise NotWhole("its manifest ties a weight to one that is not there")
        tensors[name] = tensors[source]
    return Checkpoint(
        name=path.stem,
        path=path,
        sha256=manifest.source_sha256,
        format=form,
        architecture=manifest.architecture,
        config=manifest.config,
        quantization=manifest.quantization,
        tensors=tensors,
        parameter_count=count,
        tokenizer=converted.tokenizer,
        warnings=tuple(warnings),
        files={path: manifest.source_sha256, **converted.files},
        mapped=mapped,
        placement=placement,
    )


def _unreadable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint {path} cannot be read: {error.strerror or type(error).__name__}.",
        "Give the path of a GGUF file that this user may read.",
    )
