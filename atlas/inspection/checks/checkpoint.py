"""Checkpoint and tokenizer: the files are those that were recorded, and what is in them is what is declared.

Every parameter has its declared shape and holds numbers; none is missing and none is left over; text comes back from
the tokenizer as it went in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from atlas.graph.nodes import Parameter
from atlas.graph.resolve import Resolved
from atlas.inspection.checks import Subject
from atlas.inspection.checks._live import live
from atlas.inspection.checks.result import Kind, Result
from atlas.models.entry import StatedConfiguration
from atlas.runtime.checkpoints import Checkpoint, verify
from atlas.runtime.references.base import ReferenceRunner

KIND: Kind = "checkpoint"
ORDER = 60
TEXTS = (
    "The capital of France is",
    "  two spaces\tand a tab\n\n\nthree lines  ",
    "It's 3.14159, isn't it? 1234567890",
    "def f(x):\n    return x ** 2  # squared",
    "Größe, naïve, Ελλάδα, Россия, 日本語, 한국어, العربية",
    "👩‍🚀 🇫🇷 e\u0301 \u200b ½ ∑∞",
    "<|im_end|> is text here, not a token",
    "",
)


def check(subject: Subject) -> Iterator[Result]:
    """Results for a model whose weights are here; else one that says what is missing."""
    found = live(subject)
    if found is None or found.stands_in:
        yield Result(
            kind=KIND,
            status="pending",
            what="its checkpoint and tokenizer are as declared",
            subject=subject.model.name,
            detail="Its weights are not here. A shape that holds at true size says nothing of somebody's checkpoint.",
            hint=f"Give them: atlas check {subject.model.id} --checkpoint {subject.model.id}=PATH",
        )
        return
    runner = found.witness.runner
    yield from _files(subject, runner.checkpoint)
    yield from parameters(runner)
    yield from _tokenizer(runner)


def _files(subject: Subject, checkpoint: Checkpoint) -> Iterator[Result]:
    for verdict in verify(checkpoint, subject.progress):
        numbers: dict[str, int | float | str] = {"sha256": verdict.expected}
        detail = (
            "" if verdict.ok else f"{verdict.path} has the sha256 {verdict.found}, {verdict.expected} was recorded."
        )
        if not verdict.ok and verdict.found is None:
            detail = f"{verdict.path} cannot be read."
        hint = "" if verdict.ok else "Fetch it again: atlas weights fetch. A converted copy is made again if deleted."
        yield _result("the file has the recorded sha256", verdict.path.name, verdict.ok, detail, hint, numbers)
    stated = subject.model.entry.configuration
    if isinstance(stated, StatedConfiguration):
        same = checkpoint.sha256 == stated.sha256
        detail = "" if same else f"Its sha256 is {checkpoint.sha256}, the model cites {stated.sha256}."
        what = "the weights are those that the model's configuration was read from"
        yield _result(what, checkpoint.path.name, same, detail, "Name a model of your own: --checkpoint NEW=PATH.")


def parameters(runner: ReferenceRunner) -> Iterator[Result]:
    """Each parameter, and all of them together."""
    model, checkpoint = runner.model, runner.checkpoint
    declared: set[str] = set()
    total = 0
    for node in model.graph.nodes.values():
        if isinstance(node.node, Parameter):
            names = [node.node.weight.format(layer=layer) for layer in _layers(runner, node)]
            declared |= set(names)
            total += len(names) * math.prod(extent.size or 0 for extent in node.shape["full"] or ())
            yield _parameter(checkpoint, node, names)
    left = sorted(set(checkpoint.tensors) - declared)
    yield _result(
        "every tensor of the checkpoint is declared",
        checkpoint.path.name,
        not left,
        f"Not declared: {', '.join(left[:5])}{' and more' if len(left) > 5 else ''}." if left else "",
        "Declare it, or take the right checkpoint.",
        {"tensors": len(checkpoint.tensors)},
    )
    tied = bool(checkpoint.config.get("tied_embeddings"))
    if tied:
        sizes = model.architecture.sizes
        total -= sizes["vocab"] * sizes["d_model"]
    yield _result(
        "it has as many numbers as its declaration adds up to",
        checkpoint.path.name,
        total == checkpoint.parameter_count,
        f"It has {checkpoint.parameter_count:,}, the declaration adds up to {total:,}.",
        "Compare the shapes of its parameters.",
        {"parameters": checkpoint.parameter_count, "tied_matrix_counted_once": str(tied).lower()},
    )


def _parameter(checkpoint: Checkpoint, node: Resolved, names: list[str]) -> Result:
    expected = tuple(extent.size for extent in node.shape["full"] or ())
    wrong: list[str] = []
    for name in names:
        tensor = checkpoint.tensors.get(name)
        if tensor is None:
            wrong.append(f"{name} is missing.")
        elif tuple(tensor.shape) != expected:
            wrong.append(f"{name} is {list(tensor.shape)}, not {list(expected)}.")
        elif not all_finite(tensor):
            wrong.append(f"{name} holds {int((~torch.isfinite(tensor)).sum()):,} elements that are no finite numbers.")
    more = f" And {len(wrong) - 3} more." if len(wrong) > 3 else ""
    return _result(
        "it is there in every layer, of the declared shape, and holds finite numbers only",
        checkpoint.path.name,
        not wrong,
        " ".join(wrong[:3]) + more,
        "Take another copy of the weights; values computed from these are shown as they come.",
        {"shape": " × ".join(str(size) for size in expected), "tensors": len(names)},
        node.path,
    )


def all_finite(tensor: torch.Tensor) -> bool:
    """Whether every number is finite. A sum is so only if its terms are, and is quicker than a look at each."""
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return bool(torch.isfinite(tensor.sum(dtype=wide))) or bool(torch.isfinite(tensor).all())


def _tokenizer(runner: ReferenceRunner) -> Iterator[Result]:
    tokenizer, sizes = runner.checkpoint.tokenizer, runner.model.architecture.sizes
    space = " " * tokenizer.prefix_space
    broken = [text for text in TEXTS if tokenizer.decode(tokenizer.encode(text, False)) not in (text, space + text)]
    yield _result(
        "text comes back as it went in",
        f"the tokenizer {tokenizer.name}",
        not broken,
        f"Other text came back for {broken[0]!r}." if broken else "",
        "Is it the tokenizer of these weights?",
        {"texts": len(TEXTS), "tokens": sum(len(tokenizer.encode(text, False)) for text in TEXTS)},
    )
    yield _result(
        "it knows as many tokens as the model has rows",
        f"the tokenizer {tokenizer.name}",
        tokenizer.vocab_size <= sizes["vocab"],
        f"It knows {tokenizer.vocab_size:,} tokens, the embedding has {sizes['vocab']:,} rows.",
        "Is it the tokenizer of these weights?",
        {"tokens": tokenizer.vocab_size, "rows": sizes["vocab"]},
    )


def _layers(runner: ReferenceRunner, node: Resolved) -> list[int | None]:
    return [layer for layer in range(runner.n_layers) if node.exists_in(layer)] if node.in_blocks else [None]


def _result(
    what: str,
    subject: str,
    good: bool,
    detail: str,
    hint: str,
    numbers: dict[str, int | float | str] | None = None,
    node: str = "",
) -> Result:
    return Result(
        kind=KIND,
        status="passed" if good else "failed",
        what=what,
        subject=subject,
        node=node,
        detail="" if good else detail,
        hint="" if good else hint,
        numbers=numbers or {},
    )
