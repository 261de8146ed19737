"""From features of the residual stream to tokens: the logit lens, and what a row of logits says.

The lens (nostalgebraist, 2020) asks what the model would say if the stream ended here: the tensor's own statistics
through the final norm's gain, then the unembedding. It is evaluated with the architecture's own declared
references, so a soft cap or another norm is in it too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from atlas.errors import BadRequest
from atlas.graph.nodes import Operation, Parameter
from atlas.graph.resolve import Graph, Resolved
from atlas.inspection.answers import Candidate, Prediction
from atlas.inspection.arrays import Array
from atlas.inspection.attention import strongest

ENDS = ("final-norm", "unembedding")
LOGITS = "unembedding/logits"


class LogitLens:
    """The end of a model, from stream to logits, for one architecture and its weights."""

    def __init__(self, graph: Graph, parameters: Mapping[str, Array]) -> None:
        """`parameters` are those that `lens_parameters` names, float32."""
        self._graph = graph
        self._parameters = parameters
        self._operations = _ending(graph)

    def logits(self, features: Array) -> Array:
        """[rows, d_model] to [rows, vocab], float32."""
        stream = _stream_end(self._graph)
        values: dict[str, Array] = {**self._parameters, stream: features.astype(np.float32)[None]}
        declared = self._graph.architecture
        numbers = {**declared.settings, **declared.sizes}
        for resolved, operation in self._operations:
            arguments: dict[str, object] = {}
            wanted = inspect.signature(operation.reference).parameters
            for use, path in zip(operation.uses, _input_paths(self._graph, resolved), strict=True):
                if use.parameter in wanted:
                    arguments[use.parameter] = values[path]
            arguments |= {name: numbers[name] for name in wanted if name not in arguments}
            made: Array | tuple[Array, ...] = operation.reference(**arguments)
            for path, value in zip(resolved.outputs, made if isinstance(made, tuple) else (made,), strict=True):
                values[path] = np.asarray(value, np.float32)
        logits: Array = values[LOGITS][0]
        return logits


def lens_parameters(graph: Graph) -> tuple[str, ...]:
    """The weights that the lens needs."""
    paths = [path for resolved, _ in _ending(graph) for path in _input_paths(graph, resolved)]
    return tuple(dict.fromkeys(path for path in paths if isinstance(graph[path].node, Parameter)))


def predictions(
    logits: Array,
    positions: Sequence[int],
    following: Sequence[int | None],
    count: int,
    temperature: float,
    label: Callable[[int], str],
) -> list[Prediction]:
    """What each row of logits [rows, vocab] says, at a temperature; 0 (greedy) shows probabilities at 1.

    `following` is the token that came after each position, `label` the text of a token.
    """
    found = []
    for row, position, after in zip(logits, positions, following, strict=True):
        wide = row.astype(np.float64) / (temperature or 1.0)
        peak = float(np.where(np.isnan(wide), -np.inf, wide).max(initial=-np.inf))
        if not np.isfinite(peak):
            raise BadRequest(f"The logits at position {position} hold no finite number.", "Look at the tensor itself.")
        shifted = np.exp(wide - peak)
        total = float(np.nansum(shifted))

        def candidate(
            token: int, rank: int, row: Array = row, shifted: Array = shifted, total: float = total
        ) -> Candidate:
            share = float(shifted[token]) / total
            return Candidate(id=token, label=label(token), logit=float(row[token]), probability=share, rank=rank)

        strong = strongest(row, count)
        best = [candidate(token, 1 + sum(other > value for _, other in strong)) for token, value in strong]
        came = None
        if after is not None and np.isfinite(row[after]):
            came = next((one for one in best if one.id == after), None)
            came = came or candidate(after, int((row > row[after]).sum()) + 1)
        found.append(Prediction(position=position, top=best, next=came))
    return found


def _ending(graph: Graph) -> list[tuple[Resolved, Operation]]:
    """The operations after the stream, in order of data flow."""
    ending = []
    for resolved in graph.operations:
        if resolved.path.split("/")[0] in ENDS and isinstance(resolved.node, Operation) and not resolved.node.derived:
            ending.append((resolved, resolved.node))
    return ending


def _input_paths(graph: Graph, resolved: Resolved) -> list[str]:
    node = resolved.node
    uses = node.uses if isinstance(node, Operation) else ()
    return [graph.resolve_path(use.path, resolved.parent, resolved.path) for use in uses]


def _stream_end(graph: Graph) -> str:
    """The tensor that the final norm reads."""
    for resolved, _ in _ending(graph):
        for path in _input_paths(graph, resolved):
            if path.split("/")[0] not in ENDS:
                return path
    raise BadRequest("This architecture declares no path from its residual stream to logits.", "It has no logit lens.")
