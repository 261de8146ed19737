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


def linear(x: Array, weight: Array) -> Array:
    """x W^T, the weight stored [out, in], over the last axis."""
    result: Array = x @ weight.T
    return result


def shifted(x: Array, weight: Array, bias: Array) -> Array:
    """x W^T + b, the weight stored [out, in], over the last axis."""
    result: Array = linear(x, weight) + bias
    return result


def gelu(x: Array) -> Array:
    """x Phi(x), by the hyperbolic tangent that approximates the normal distribution (Hendrycks and Gimpel, 2016)."""
    inner: Array = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    result: Array = 0.5 * x * (1 + np.tanh(inner))
    return result
