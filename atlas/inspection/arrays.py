"""A captured tensor as a numpy array: what every other module of this room works on.

Owns the one conversion from torch, and what each dtype becomes when numpy has no such dtype. Knows nothing of
axes, runs or requests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from atlas.errors import BadRequest
from atlas.inspection.answers import Part

Array = npt.NDArray[Any]


def as_array(tensor: torch.Tensor) -> Array:
    """The same numbers, shape kept, sharing memory where it can. bfloat16 becomes float32, exactly."""
    tensor = tensor.detach().cpu()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    array: Array = tensor.resolve_conj().resolve_neg().numpy()
    return array


def dtype_name(tensor: torch.Tensor) -> str:
    """The dtype without `torch.`: `float32`, `bfloat16`, `complex64`."""
    return str(tensor.dtype).removeprefix("torch.")


def lowest(tensor: torch.Tensor) -> float | None:
    """The lowest finite number of a floating dtype, which some masks add instead of minus infinity."""
    return float(torch.finfo(tensor.dtype).min) if tensor.dtype.is_floating_point else None


def real_numbers(array: Array) -> Array:
    """All numbers in one row, real and imaginary parts together where the array is complex; bool as 0 and 1."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if np.iscomplexobj(flat):
        return flat.view(flat.real.dtype)
    return flat.view(np.uint8) if flat.dtype == np.bool_ else flat


def part_of(array: Array, part: Part | None) -> Array:
    """One real part of a complex array (radians for the angle); a real array as it is.

    Raises `BadRequest` if a part is asked of a real array.
    """
    if not np.iscomplexobj(array):
        if part is not None:
            raise BadRequest(f"These numbers are real and have no {part} part.", "Leave `part` out.")
        return array
    match part or "real":
        case "real":
            chosen: Array = array.real
        case "imaginary":
            chosen = array.imag
        case "magnitude":
            chosen = np.abs(array)
        case "angle":
            chosen = np.angle(array)
    return chosen
