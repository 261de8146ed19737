"""How tensors are shown at first: axes on the plane, scale, and the panels that they have."""

from __future__ import annotations

import pytest
import torch

from atlas.catalog import Catalog
from atlas.inspection.presentation import plane_axes, present, stream_paths
from atlas.inspection.summary import summarize


@pytest.mark.parametrize(
    ("axes", "shape", "plane"),
    [
        ("batch q_heads queries keys", (1, 9, 5, 5), ("queries", "keys")),
        ("batch q_heads queries keys", (1, 9, 1, 7), ("q_heads", "keys")),
        ("batch positions d_model", (1, 5, 576), ("positions", "d_model")),
        ("batch positions d_model", (1, 1, 576), ("positions", "d_model")),
        ("batch positions q_heads head_dim", (1, 5, 9, 64), ("positions", "head_dim")),
        ("batch positions q_heads head_dim", (1, 1, 9, 64), ("q_heads", "head_dim")),
        ("batch keys kv_heads head_dim", (1, 6, 3, 64), ("keys", "head_dim")),
        ("batch positions one", (1, 5, 1), ("one", "positions")),
        ("batch positions vocab", (1, 1, 128_256), ("positions", "vocab")),
        ("vocab d_model", (49_152, 576), ("vocab", "d_model")),
        ("pairs", (32,), (None, "pairs")),
        ("", (), (None, "")),
    ],
)
def test_the_axes_of_the_plane(axes: str, shape: tuple[int, ...], plane: tuple[str | None, str]) -> None:
    assert plane_axes(axes.split(), shape) == plane


@pytest.mark.parametrize(
    ("path", "tensor", "scale", "meaning"),
    [
        ("blocks/attention/attention-weights", torch.rand(1, 9, 4, 4), "log", "attention"),
        ("blocks/attention/similarities", torch.randn(1, 9, 4, 4), "diverging", None),
        ("blocks/block-output", torch.randn(1, 4, 576), "diverging", "stream"),
        ("blocks/mid-residual", torch.randn(1, 4, 576), "diverging", "stream"),
        ("embedding/embedded", torch.randn(1, 4, 576), "diverging", "stream"),
        ("unembedding/logits", torch.randn(1, 4, 49152), "diverging", "logits"),
        ("blocks/attention/key-cache", torch.randn(1, 4, 3, 64), "diverging", "cache"),
        ("rotary/rotations", torch.randn(4, 32), "diverging", "rotations"),
        ("blocks/attention-norm/reciprocal-rms", torch.rand(1, 4, 1) + 2, "sequential", None),
        ("token-ids", torch.arange(4)[None], "sequential", None),
        ("causal-mask", torch.full((4, 4), float("-inf")), "diverging", None),
    ],
)
def test_scale_and_panel(catalog: Catalog, path: str, tensor: torch.Tensor, scale: str, meaning: str | None) -> None:
    graph = catalog["smollm2-135m"].graph
    axes = [extent.axis for extent in graph[path].shape["prefill"] or ()]
    found = present(graph, path, axes, tensor.shape, summarize(tensor))
    assert (found.scale, found.meaning) == (scale, meaning)


def test_the_stream_is_what_blocks_add_to(catalog: Catalog) -> None:
    ends = {"block-input", "mid-residual", "block-output"}
    assert stream_paths(catalog["llama-3-8b"].graph) == {"embedding/embedded", *(f"blocks/{end}" for end in ends)}
