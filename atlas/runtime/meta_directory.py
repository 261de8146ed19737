"""Meta's own layout as a checkpoint: `consolidated.*.pth`, `params.json` and `tokenizer.model` in one directory.

The shards of a model that was trained in parallel are put together along the axes that the declaration says it is split
along. They are pickles: only tensors are read from them, memory-mapped, and nothing that they name is ever run.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from atlas.catalog import found_architectures
from atlas.errors import AtlasError, CheckpointError
from atlas.graph.nodes import Parameter
from atlas.graph.resolve import Graph
from atlas.runtime.checkpoints import Checkpoint, Mapped
from atlas.runtime.files import remembered_sha256
from atlas.runtime.llama_layout import Config, mismatches, parameter_shapes
from atlas.runtime.meter import Progress
from atlas.runtime.placement import CPU, Placement, numbers_in, require_room
from atlas.runtime.tokens import MetaTokenizer

PARAMS, TOKENIZER = "params.json", "tokenizer.model"
SHARD = re.compile(r"consolidated\.(\d+)\.pth")
COMPUTED = ("rope.freqs",)
"""Tensors of older checkpoints that the reference computes by itself."""
KNOWN = frozenset(
    {
        *("dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "multiple_of", "ffn_dim_multiplier"),
        *("norm_eps", "rope_theta", "use_scaled_rope", "max_batch_size", "max_seq_len"),
    }
)
AGAIN = "Download it again."


@dataclass(frozen=True)
class _Shards:
    """The shards' tensors by name, each a list in their order; `axes` are those that each is split along."""

    path: Path
    tensors: Mapping[str, list[torch.Tensor]]
    axes: Mapping[str, int | None]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor, put together."""
        found = {}
        for name, parts in self.tensors.items():
            shape, axis = list(parts[0].shape), self.axes.get(name)
            if axis is not None and axis < len(shape):
                shape[axis] = sum(part.shape[axis] for part in parts if part.ndim > axis)
            found[name] = tuple(shape)
        return found

    def placed(self, name: str, placement: Placement) -> torch.Tensor:
        """One tensor, or a process's share of it, put together. What is in one piece and placed already stays mapped;
        of no shard more is read than is in the share.
        """
        parts, axis = self.tensors[name], self.axes[name]
        if len(parts) == 1 or axis is None:
            return placement.put(name, parts[0])
        shape = self.shapes[name]
        index = tuple(slice(0, size) for size in shape)
        if placement.share is not None:
            index = placement.share.index(name, shape)
        sizes = [wanted.stop - wanted.start for wanted in index]
        found = torch.empty(sizes, dtype=placement.dtype, device=placement.device)
        start = 0
        for part in parts:
            stop = start + part.shape[axis]
            first, last = max(start, index[axis].start), min(stop, index[axis].stop)
            if first < last:
                own = (*index[:axis], slice(first - start, last - start), *index[axis + 1 :])
                found.narrow(axis, first - index[axis].start, last - first).copy_(part[own])
            start = stop
        return found


def is_meta_directory(path: Path) -> bool:
    """Whether a directory is laid out as Meta does it."""
    return (path / PARAMS).is_file() or any(SHARD.fullmatch(one.name) for one in path.iterdir())


def open_meta(path: Path, data_dir: Path, progress: Progress | None, placement: Placement) -> Checkpoint:
    """Opens a directory, its weights placed as asked. Raises CheckpointError that says what is wrong, what to do."""
    config = read_params(path)
    files = shard_files(path)
    if not (path / TOKENIZER).is_file():
        raise CheckpointError(
            f"{path} has no {TOKENIZER}, so no text can be turned into tokens.", f"Put the model's {TOKENIZER} into it."
        )
    tokenizer = MetaTokenizer(path / TOKENIZER)
    shards = _Shards(path, _read(files), _axes(path, config))
    config = _completed(path, config, shards)
    _require_whole(path, config, shards, len(files))
    if tokenizer.vocab_size > int(config["vocab_size"]):
        raise CheckpointError(
            f"{path / TOKENIZER} has {tokenizer.vocab_size:,} tokens, and the model knows {config['vocab_size']:,}.",
            "Use the tokenizer of the same model.",
        )
    names = list(parameter_shapes(config | {"tied_embeddings": False}))
    allocated = [name for name in names if not _stays(shards, name, placement)]
    room = require_room(path, numbers_in(shards.shapes[name] for name in allocated), placement)
    tell = progress or (lambda _stage, _share: None)
    tell(f"opening {path.name}: {room}", None)
    hashes = {file: remembered_sha256(file, data_dir, progress) for file in (path / PARAMS, *files, path / TOKENIZER)}
    tensors = {}
    for at, name in enumerate(names):
        tell(f"reading {path.name}", at / len(names))
        tensors[name] = shards.placed(name, placement)
    tied = torch.equal(tensors["output.weight"], tensors["tok_embeddings.weight"])
    if tied:
        tensors["output.weight"] = tensors["tok_embeddings.weight"]
    distinct = {tensor.data_ptr(): tensor.numel() for tensor in tensors.values()}
    stored = str(shards.tensors["tok_embeddings.weight"][0].dtype).removeprefix("torch.")
    return Checkpoint(
        name=path.resolve().name,
        path=path,
        sha256=hashlib.sha256("".join(hashes.values()).encode()).hexdigest(),
        format="meta",
        architecture="llama",
        config=config | {"tied_embeddings": tied},
        quantization=None if stored == "float32" else stored,
        tensors=tensors,
        parameter_count=sum(distinct.values()),
        tokenizer=tokenizer,
        warnings=(),
        files=hashes,
        mapped=Mapped.of(files[0]) if len(allocated) < len(names) else None,
        placement=placement,
    )


def read_params(path: Path) -> Config:
    """`params.json`: the arguments of Meta's `ModelArgs`. Refuses a model that the reference does not compute."""
    try:
        stated = json.loads((path / PARAMS).read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} has no {PARAMS}, so nothing says what its weights are of.",
            f"Put the {PARAMS} of the same model beside its shards.",
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path / PARAMS} cannot be read: {error}.", AGAIN) from error
    if not isinstance(stated, dict):
        raise CheckpointError(f"{path / PARAMS} is no configuration.", AGAIN)
    other = sorted(name for name, value in stated.items() if name not in KNOWN and value is not None)
    if other:
        raise CheckpointError(
            f"{path / PARAMS} asks for what the text model does not compute: {', '.join(other)}.",
            "Use a dense text model, not one with images, adapters or quantised weights.",
        )
    wrong = [
        f"{name} is {stated.get(name)!r}"
        for name in ("dim", "n_layers", "n_heads")
        if not (isinstance(stated.get(name), int) and stated[name] > 0)
    ]
    wrong += [
        f"{name} is {value!r}"
        for name, value in stated.items()
        if value is not None and not isinstance(value, bool | int | float)
    ]
    if wrong:
        raise CheckpointError(f"{path / PARAMS} is no configuration of Llama: {'; '.join(wrong[:4])}.", AGAIN)
    scaled = bool(stated.get("use_scaled_rope", False))
    config: Config = {
        "dim": stated["dim"],
        "n_layers": stated["n_layers"],
        "n_heads": stated["n_heads"],
        "n_kv_heads": stated.get("n_kv_heads") or stated["n_heads"],
        "vocab_size": stated.get("vocab_size") or -1,
        "multiple_of": stated.get("multiple_of") or 256,
        "norm_eps": stated.get("norm_eps") or 1e-5,
        "rope_theta": float(stated.get("rope_theta") or 500000.0),
        "use_scaled_rope": scaled,
        "context_length": 131072 if scaled else 8192,
        "tied_embeddings": False,
    }
    if stated.get("ffn_dim_multiplier") is not None:
        config["ffn_dim_multiplier"] = float(stated["ffn_dim_multiplier"])
    if config["dim"] % (2 * config["n_heads"]) or config["n_heads"] % config["n_kv_heads"]:
        raise CheckpointError(
            f"{path / PARAMS} contradicts itself: {config['n_heads']} query heads and {config['n_kv_heads']} key heads "
            f"do not divide dim = {config['dim']}.",
            AGAIN,
        )
    return config


def shard_files(path: Path) -> list[Path]:
    """The shards in order, none missing in between."""
    found = {int(match[1]): one for one in path.iterdir() if (match := SHARD.fullmatch(one.name))}
    missing = [f"consolidated.{at:02}.pth" for at in range(max(found, default=0) + 1) if at not in found]
    if missing:
        raise CheckpointError(
            f"{path} lacks {len(missing)} of its files of weights: {', '.join(missing[:4])}.", "Download them into it."
        )
    return [found[at] for at in sorted(found)]


def _read(files: Sequence[Path]) -> dict[str, list[torch.Tensor]]:
    """The tensors of all shards, mapped: nothing is read but their names and shapes."""
    found: dict[str, list[torch.Tensor]] = {}
    for file in files:
        for name, tensor in _loaded(file).items():
            if name not in COMPUTED:
                found.setdefault(name, []).append(tensor)
    return found


def _loaded(file: Path) -> dict[str, torch.Tensor]:
    try:
        content: Any = torch.load(file, map_location=CPU, mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"(?:GLOBAL |Unsupported (?:class|global)[^A-Za-z]*)([\w.]+)", str(error))
        raise CheckpointError(
            f"{file} is a pickle that asks for code to be run ({asked[1] if asked else 'which'}). That is never done.",
            "Use a file that holds tensors and nothing else.",
        ) from error
    except (OSError, RuntimeError, ValueError, EOFError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{file} is no whole file of weights: {reason[:200]}.", AGAIN) from error
    if not isinstance(content, dict) or not all(isinstance(one, torch.Tensor) for one in content.values()):
        raise CheckpointError(f"{file} holds something else than tensors by name.", "Use Meta's own file.")
    return content


def _axes(path: Path, config: Config) -> dict[str, int | None]:
    """The axis that each parameter is split along; None for one that every shard has whole."""
    try:
        architecture = found_architectures()["llama"].declare(
            config | {"vocab_size": max(1, int(config["vocab_size"]))}
        )
    except AtlasError as error:
        raise CheckpointError(f"{path}: {error.detail}", error.hint) from error
    axes: dict[str, int | None] = {}
    for node in Graph(architecture).nodes.values():
        if isinstance(node.node, Parameter):
            split = node.node.sharded
            for layer in range(int(config["n_layers"]) if node.in_blocks else 1):
                axes[node.node.weight.format(layer=layer)] = None if split is None else node.node.shape.index(split)
    return axes


def _completed(path: Path, config: Config, shards: _Shards) -> Config:
    """The configuration with the vocabulary that older files leave to the tokenizer."""
    if int(config["vocab_size"]) > 0:
        return config
    embedding = shards.shapes.get("tok_embeddings.weight")
    if embedding is None:
        raise CheckpointError(f"The weights in {path} have no tok_embeddings.weight.", AGAIN)
    return config | {"vocab_size": embedding[0]}


def _require_whole(path: Path, config: Config, shards: _Shards, count: int) -> None:
    """Refuses weights that are not the configuration's, and shards of which some are missing at the end."""
    expected, found = parameter_shapes(config), shards.shapes
    first = found.get("layers.0.attention.wq.weight")
    wanted = expected["layers.0.attention.wq.weight"]
    if first is not None and len(first) == 2 and first[1] == wanted[1] and first[0] and wanted[0] > first[0]:
        parts = wanted[0] * count // first[0]
        if parts * first[0] == wanted[0] * count:
            raise CheckpointError(
                f"{path} has {count} of {parts} shards: layers.0.attention.wq.weight has {first[0]:,} rows of "
                f"{wanted[0]:,} in it.",
                f"Download consolidated.{count:02}.pth and what follows into it.",
            )
    uneven = [name for name, parts in shards.tensors.items() if len(parts) != count]
    wrong = mismatches(expected, found)
    if uneven:
        wrong.append(f"in some shards only: {', '.join(uneven[:4])}")
    if wrong:
        raise CheckpointError(
            f"The weights in {path} are not those that its {PARAMS} asks for: {'; '.join(wrong)}.",
            f"Check that {PARAMS} and weights are of the same model.",
        )


def _stays(shards: _Shards, name: str, placement: Placement) -> bool:
    """Whether a tensor is used where it is mapped, so that no memory is allocated for it."""
    parts = shards.tensors[name]
    placed = parts[0].dtype == placement.dtype and placement.device == CPU and placement.share is None
    return placed and (len(parts) == 1 or shards.axes[name] is None)
