"""Named-axis numerics for the executable references: small, float64, and independent of torch.

References are the second witness of an equation, so they share no code with what they check.
"""

from __future__ import annotations

import string
from typing import Any, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def contract(axes: str, *operands: Array) -> Array:
    """Sum products over the axes that the result does not name: `contract("b t d, w d -> b t w", n, W)`.

    Axes are words, one per dimension, in the declared order of each operand.
    """
    names = sorted(set(axes.replace(",", " ").replace("->", " ").split()))
    letters = dict(zip(names, string.ascii_letters, strict=False))
    inputs, output = axes.split("->")
    spec = ",".join("".join(letters[word] for word in part.split()) for part in inputs.split(","))
    spec += "->" + "".join(letters[word] for word in output.split())
    return cast(Array, np.einsum(spec, *operands, optimize=True))


def softmax(x: Array) -> Array:
    """exp(x) / sum exp(x) along the last axis; minus infinity gives exactly zero."""
    shifted: Array = np.exp(x - x.max(axis=-1, keepdims=True))
    total: Array = shifted.sum(axis=-1, keepdims=True)
    return shifted / total


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow at either end."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def silu(x: Array) -> Array:
    """x times the logistic sigmoid of x (Elfwing et al., 2017; Ramachandran et al., 2017)."""
    return x * sigmoid(x)
