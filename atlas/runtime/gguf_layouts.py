"""How a GGUF file lays a parameter out, where that is not how the reference code has it.

A layout gives the shapes of the tensors in the file that make up one parameter, and its numbers in the reference's
order. Knows no architecture. Shapes are as torch writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from atlas.runtime.gguf_file import GgufFile

Numbers = npt.NDArray[np.float32]
Shape = tuple[int, ...]


class Layout:
    """The same in both."""

    def shapes(self, shape: Shape) -> list[Shape]:
        """The shape of each tensor in the file, for a parameter of this shape."""
        return [shape]

    def numbers(self, file: GgufFile, names: Sequence[str], shape: Shape) -> Iterator[Numbers]:  # noqa: ARG002
        """The parameter's numbers in order, in pieces."""
        return file.numbers(names[0])


def whole(file: GgufFile, name: str, start: int = 0, stop: int | None = None) -> Numbers:
    """Rows of a tensor, at once: [rows, columns]."""
    return np.concatenate(list(file.numbers(name, start, stop))).reshape(-1, file.tensors[name].shape[-1])


class Transposed(Layout):
    """A matrix whose rows are the file's columns."""

    def shapes(self, shape: Shape) -> list[Shape]:
        return [shape[::-1]]

    def numbers(self, file: GgufFile, names: Sequence[str], shape: Shape) -> Iterator[Numbers]:  # noqa: ARG002
        yield whole(file, names[0]).T


class MinusOne(Layout):
    """A gain that the file has one larger, since the reference adds one to it."""

    def numbers(self, file: GgufFile, names: Sequence[str], shape: Shape) -> Iterator[Numbers]:  # noqa: ARG002
        for piece in file.numbers(names[0]):
            yield piece - np.float32(1)


@dataclass(frozen=True)
class Halves(Layout):
    """Rows of queries or keys, of `heads` heads: neighbours in the file (2i + j) are a half apart here (j h/2 + i)."""

    heads: int

    def numbers(self, file: GgufFile, names: Sequence[str], shape: Shape) -> Iterator[Numbers]:
        rows = shape[0] // self.heads
        for head in range(self.heads):
            part = whole(file, names[0], head * rows, (head + 1) * rows)
            yield part.reshape(rows // 2, 2, -1).swapaxes(0, 1).reshape(rows, -1)


class Joined(Layout):
    """One matrix an expert, of two in the file: all rows of the gate, then all of the up-projection."""

    def shapes(self, shape: Shape) -> list[Shape]:
        experts, both, width = shape
        return [(experts, both // 2, width)] * 2

    def numbers(self, file: GgufFile, names: Sequence[str], shape: Shape) -> Iterator[Numbers]:
        experts, both, _ = shape
        for expert in range(experts):
            for name in names:
                yield from file.numbers(name, expert * both // 2, (expert + 1) * both // 2)


class Interleaved(Layout):
    """One matrix an expert, [width, 2 f], of two in the file, [f, width]: columns of gate and up-projection in turn."""

    def shapes(self, shape: Shape) -> list[Shape]:
        experts, width, both = shape
        return [(experts, both // 2, width)] * 2

    def numbers(self, file: GgufFile, names: Sequence[str], shape: Shape) -> Iterator[Numbers]:
        experts, width, both = shape
        for expert in range(experts):
            gate, up = (whole(file, name, expert * both // 2, (expert + 1) * both // 2) for name in names)
            yield np.stack([gate.T, up.T], axis=-1).reshape(width, both)


class InterleavedBias(Layout):
    """Biases of both, one row an expert, in turn."""

    def shapes(self, shape: Shape) -> list[Shape]:
        return [(shape[0], shape[1] // 2)] * 2

    def numbers(self, file: GgufFile, names: Sequence[str], shape: Shape) -> Iterator[Numbers]:
        gate, up = (whole(file, name) for name in names)
        yield np.stack([gate, up], axis=-1).reshape(shape)


class TransposedExperts(Layout):
    """One matrix an expert, transposed in the file."""

    def shapes(self, shape: Shape) -> list[Shape]:
        experts, rows, columns = shape
        return [(experts, columns, rows)]

    def numbers(self, file: GgufFile, names: Sequence[str], shape: Shape) -> Iterator[Numbers]:
        experts, _, columns = shape
        for expert in range(experts):
            yield whole(file, names[0], expert * columns, (expert + 1) * columns).T


@dataclass(frozen=True)
class SplitLatent(Layout):
    """Keys and values from a latent: the file has those of keys transposed, [heads, rank, content], apart from those of
    values, [heads, value, rank]; here each head has its keys' rows, then its values'.
    """

    heads: int
    content: int

    def shapes(self, shape: Shape) -> list[Shape]:
        rows, rank = shape
        value = rows // self.heads - self.content
        return [(self.heads, rank, self.content), (self.heads, value, rank)]

    def numbers(self, file: GgufFile, names: Sequence[str], shape: Shape) -> Iterator[Numbers]:
        rows, rank = shape
        value = rows // self.heads - self.content
        for head in range(self.heads):
            yield whole(file, names[0], head * rank, (head + 1) * rank).T
            yield whole(file, names[1], head * value, (head + 1) * value)
