"""Weights for a model that has none here: random numbers in every declared parameter, and a token for every byte.

So an architecture can be run, checked and looked at live without a checkpoint; what it says means nothing. The numbers
follow from the declaration and a seed alone: the same on every machine, whatever the order of parameters.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import torch

from atlas.catalog import Model
from atlas.errors import CheckpointError
from atlas.graph.nodes import Parameter
from atlas.graph.resolve import Resolved
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.tokens import ByteLevelBpe, Vocabulary, byte_alphabet

BEGIN, END = "<|begin|>", "<|end|>"


def untrained(model: Model, seed: int = 0) -> Checkpoint:
    """A checkpoint of random float32 numbers for a (small) model.

    Raises `CheckpointError` if its vocabulary has no room for every byte.
    """
    sizes = model.architecture.sizes
    tensors: dict[str, torch.Tensor] = {}
    for node in model.graph.nodes.values():
        if isinstance(node.node, Parameter):
            shape = tuple(extent.size or 0 for extent in node.shape["full"] or ())
            for name in parameter_names(node, sizes["layers"]):
                tensors[name] = torch.from_numpy(_numbers(node, name, shape, seed))
    tied = bool(model.config.get("tie_word_embeddings")) or model.entry.tied_embeddings
    ends = [_weight(model, path) for path in ("unembedding/weight", "embedding/weight")]
    if tied:
        tensors[ends[0]] = tensors[ends[1]]
    return Checkpoint(
        name=f"untrained {model.name}",
        path=Path("untrained (random weights)"),
        sha256=_identity(model, seed),
        format="untrained",
        architecture=model.architecture.id,
        config={**{k: v for k, v in model.config.items() if v is not None}, "tied_embeddings": tied},
        quantization=None,
        tensors=tensors,
        parameter_count=sum(t.numel() for name, t in tensors.items() if not (tied and name == ends[0])),
        tokenizer=_tokenizer(sizes["vocab"]),
        warnings=("These weights are random numbers: the model has learned nothing.",),
        files={},
    )


def parameter_names(node: Resolved, layers: int) -> list[str]:
    """The names that a parameter has in the reference code: one, or one for each layer that has it."""
    assert isinstance(node.node, Parameter)
    weight = node.node.weight
    if "{layer}" not in weight:
        return [weight]
    return [weight.format(layer=layer) for layer in range(layers) if node.exists_in(layer)]


def _weight(model: Model, path: str) -> str:
    node = model.graph[path].node
    assert isinstance(node, Parameter)
    return node.weight


def _numbers(
    node: Resolved, name: str, shape: tuple[int, ...], seed: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Normal numbers of a size that keeps activations near 1; gains near 1, other vectors well away from 0."""
    state = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8])
    values = np.random.default_rng(state).standard_normal(shape, np.float32)
    if len(shape) == 1:
        return 1.0 + 0.1 * values if node.path.endswith("/gain") else 0.3 * values
    if node.path.startswith(("embedding/", "position-embedding/")):
        return values
    return values / np.float32(min(shape[-2:]) ** 0.5)


def _tokenizer(size: int) -> ByteLevelBpe:
    """A token for each byte, and special ones for the rest of the vocabulary."""
    characters = byte_alphabet()
    if size < len(characters) + 2:
        raise CheckpointError(
            f"A vocabulary of {size} has no room for {len(characters)} bytes and two marks.", "Make it larger."
        )
    spare = [f"<|spare-{number}|>" for number in range(size - len(characters) - 2)]
    tokens = [*characters, BEGIN, END, *spare]
    vocabulary = Vocabulary(
        pre_tokenizer="gpt-2",
        tokens=tokens,
        merges=[],
        special=frozenset(range(len(characters), size)),
        literal=frozenset(),
        bos_id=len(characters),
        eos_ids=(len(characters) + 1,),
        add_bos=False,
    )
    return ByteLevelBpe(vocabulary)


def _identity(model: Model, seed: int) -> str:
    facts = {"architecture": model.architecture.id, "config": dict(model.config), "seed": seed}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
