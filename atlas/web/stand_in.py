"""What stands in for what: the model whose numbers a page shows where its own weights are not here.

Owns the words for it, and which nodes the two models share. Knows nothing of runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from atlas.catalog import Model
from atlas.graph.nodes import Tensor


@dataclass(frozen=True)
class StandIn:
    """`sentence` says that one model stands in for another; `differences` how they differ, one phrase each."""

    sentence: str
    differences: tuple[str, ...]


def stand_in(model: Model, live: Model, quantization: str | None) -> StandIn:
    """How the live model differs from the page's, in words. `quantization` names that of the live weights."""
    ours, theirs = model.architecture, live.architecture
    found: list[str] = []

    def both(axis: str, words: str) -> None:
        a, b = ours.sizes.get(axis), theirs.sizes.get(axis)
        if a != b and b is not None:
            found.append(f"{b:,} {words}" + (f" instead of {a:,}" if a is not None else ""))

    if live.entry.untrained:
        found.append("random weights: its numbers have the right shapes and obey the equations, and mean nothing")
    if model.entry.architecture != live.entry.architecture:
        found.append(f"another architecture, {theirs.name} instead of {ours.name}")
    both("layers", "layers")
    both("d_model", "features (d_model)")
    both("q_heads", "query heads")
    groups = [arch.settings.get("group") for arch in (ours, theirs)]
    if None not in groups and groups[0] != groups[1]:
        found.append(f"{groups[1]} query heads a key and value head instead of {groups[0]}")
    both("head_dim", "features a head (head_dim)")
    both("d_mlp", "hidden features (d_mlp)")
    both("vocab", "tokens in its vocabulary")
    if live.entry.tied_embeddings != model.entry.tied_embeddings:
        found.append(f"{'tied' if live.entry.tied_embeddings else 'separate'} embedding and unembedding")
    if quantization:
        found.append(f"weights that were once quantised ({quantization})")
    if bool(ours.settings.get("use_scaled_rope")) != bool(theirs.settings.get("use_scaled_rope")):
        found.append(("" if theirs.settings.get("use_scaled_rope") else "no ") + "scaled RoPE")
    name = "An untrained model" if live.entry.untrained else live.name
    return StandIn(
        f"{name} stands in: no checkpoint of {model.name} is here.",
        tuple(found),
    )


def missing_reason(model: Model, live: Model, path: str) -> str:
    """Why the live model has no value for a node of the page's model; empty where it has one."""
    if path in live.graph.nodes:
        return ""
    scaled = [bool(one.architecture.settings.get("use_scaled_rope")) for one in (model, live)]
    same = model.entry.architecture == live.entry.architecture
    why = "it rotates by plain frequencies" if same and scaled == [True, False] else "its graph has no such node"
    return f"{live.name} has no {model.graph[path].name.lower()}: {why}. So there is no live value here."


def shown_tensor(model: Model, path: str) -> str:
    """Whose values a page shows: the node's own, an operation's first output, a component's last tensor."""
    node = model.graph[path] if path else None
    if node is not None and node.kind == "operation":
        return node.outputs[0]
    if node is not None and node.kind != "component":
        return path
    inside = [one.path for one in model.graph.nodes.values() if isinstance(one.node, Tensor)]
    return [one for one in inside if not path or one.startswith(f"{path}/")][-1]
