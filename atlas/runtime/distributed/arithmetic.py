"""What a split costs, computed from a model's declaration: memory of a rank, and bytes that move between ranks.

Follows Meta's reference: `RowParallelLinear` ends attention and feed-forward with an all-reduce of [positions,
d_model], `VocabParallelEmbedding` begins with one, and the last `ColumnParallelLinear` gathers the logits. Bytes are of
the number format that models run in. Knows no processes and no numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from atlas.catalog import Model
from atlas.graph.axes import VIEWS, View
from atlas.graph.nodes import Parameter, Tensor
from atlas.runtime.untrained import parameter_names


@dataclass(frozen=True)
class Collectives:
    """What the ranks do together in one pass: elements of each all-reduce and of each gathered whole, one by one."""

    reduced: tuple[int, ...]
    gathered: tuple[int, ...]

    def sent(self, world: int, itemsize: int) -> int:
        """Bytes that leave one rank, in a ring: 2 (N - 1) / N of what is reduced, (N - 1) / N of what is gathered."""
        return (2 * sum(self.reduced) + sum(self.gathered)) * itemsize * (world - 1) // world


def collectives(model: Model, positions: int, blocks: int | None = None) -> Collectives:
    """Those of one pass over so many positions: two all-reduces a block and one before them, and the logits.

    `blocks` are all, unless a pass is meant that runs some.
    """
    sizes = model.architecture.sizes
    reduced = (positions * sizes["d_model"],) * (2 * (sizes["layers"] if blocks is None else blocks) + 1)
    return Collectives(reduced, (positions * sizes["vocab"],))


def weights(model: Model, world: int, itemsize: int) -> int:
    """Bytes of parameters on one rank; a tied unembedding counts once."""
    sizes, total = model.architecture.sizes, 0
    for path, node in model.graph.nodes.items():
        if not isinstance(node.node, Parameter):
            continue
        if path == "unembedding/weight" and model.entry.tied_embeddings:
            continue
        count = len(parameter_names(node, sizes["layers"])) * math.prod(sizes[axis] for axis in node.node.shape)
        total += count // (1 if node.node.sharded is None else world)
    return total * itemsize


def kept(model: Model, world: int, itemsize: int, positions: int) -> int:
    """Bytes that a run of so many positions keeps on one rank: its share of the cache, and every block's input."""
    sizes = model.architecture.sizes
    cache = 2 * sizes["layers"] * sizes["kv_heads"] // world * sizes["head_dim"]
    return (cache + (sizes["layers"] + 1) * sizes["d_model"]) * positions * itemsize


def elements(model: Model, path: str, view: View, computed: int, before: int, cut: dict[str, int]) -> int:
    """Numbers in a tensor of a pass, or in a slice of it that keeps `cut[axis]` of an axis."""
    running = {"batch": 1, "positions": computed, "queries": computed, "keys": before + computed}
    shape = model.graph[path].shape[view]
    assert view in VIEWS
    assert shape is not None
    return math.prod(cut.get(extent.axis, running.get(extent.axis, extent.size or 1)) for extent in shape)


def moved(model: Model, path: str, world: int, itemsize: int, numbers: int) -> int:
    """Bytes that come to rank 0 for so many numbers of a tensor, taken evenly from all ranks that have them."""
    node = model.graph[path].node
    if not isinstance(node, Tensor | Parameter) or node.sharded is None:
        return 0
    return numbers * itemsize * (world - 1) // world


def tables(model: Model, worlds: tuple[int, ...], itemsize: int, positions: int) -> dict[str, list[str]]:
    """The rows of docs/distributed.md: memory and traffic by ranks, and what tensor requests move."""
    attention, gate = "blocks/attention/attention-weights", "blocks/feed-forward/gate"
    split, requests = [], []
    one, prompt = collectives(model, 1), collectives(model, positions)
    for world in worlds:
        parameters, run = weights(model, world, itemsize), kept(model, world, itemsize, positions)
        cells = [str(world), _amount(parameters), _amount(run), _amount(parameters + run)]
        cells += [_amount(one.sent(world, itemsize)), _amount(prompt.sent(world, itemsize))]
        split.append(f"| {' | '.join(cells)} |")
    world = worlds[-1]
    for name, path, cut in (
        ("attention weights of a layer, whole", attention, {}),
        ("the same, one head", attention, {"q_heads": 1}),
        ("the same, one head and one query", attention, {"q_heads": 1, "queries": 1}),
        ("gate of a layer, whole", gate, {}),
        ("the same, one position", gate, {"positions": 1}),
        ("block output of a layer, whole", "blocks/block-output", {}),
    ):
        numbers = elements(model, path, "prefill", positions, 0, cut)
        sharded = getattr(model.graph[path].node, "sharded", None)
        if sharded in cut:  # one head is on one rank
            came = f"{_amount(numbers * itemsize)}, or nothing where rank 0 has it"
        else:
            came = _amount(moved(model, path, world, itemsize, numbers))
        requests.append(f"| {name} | {numbers:,} | {came} |")
    again = Collectives((positions * model.architecture.sizes["d_model"],) * 2, ()).sent(world, itemsize)
    requests.append(f"| between the ranks, to run the block again | | {_amount(again)} from each rank |")
    return {"split": split, "requests": requests}


def _amount(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes" if size else "nothing"
