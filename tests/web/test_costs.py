"""Costs: read off shapes, compared with what torch counts as the reference code runs, and with published numbers."""

from __future__ import annotations

import pytest
from torch.utils.flop_counter import FlopCounterMode

from atlas.catalog import Catalog
from atlas.graph.axes import View
from atlas.runtime.references.base import Memory, Pass, ReferenceRunner
from atlas.web.cost_tables import cost_note, cost_rows, pass_costs
from atlas.web.costs import Amount, cost, total

LENGTH = 12


def counted(runner: ReferenceRunner, memory: Memory, tokens: tuple[int, ...], start: int) -> int:
    """Multiply-adds of all matrix products in one pass, by torch's own count (two operations each)."""
    with FlopCounterMode(display=False) as counter:
        runner.forward(Pass(tokens, start), memory)
    return int(counter.get_total_flops()) // 2


def by_shapes(catalog: Catalog, view: View, values: dict[str, int]) -> int:
    """The same by shapes: without the sums of squares, which are no matrix products."""
    model = catalog["smollm2-135m"]
    squares = sum(
        part.multiply_adds.at(values) * (30 if node.in_blocks else 1)
        for node in model.graph.operations
        if node.path.endswith("/rms") and (part := cost(model, node.path, view)) is not None
    )
    return total(model, view).multiply_adds.at(values) - squares


def test_prefill_and_decode_are_what_torch_counts(catalog: Catalog, runner: ReferenceRunner) -> None:
    memory = runner.memory(LENGTH + 1)
    prefill = counted(runner, memory, tuple(range(1, LENGTH + 1)), 0)
    assert prefill == by_shapes(catalog, "prefill", {"B": 1, "P": LENGTH})
    step = counted(runner, memory, (7,), LENGTH)
    assert step == by_shapes(catalog, "decode", {"B": 1, "T_k": LENGTH + 1})


def test_a_decode_step_reads_every_weight_once_and_the_embedding_by_its_row(catalog: Catalog) -> None:
    model = catalog["llama-3-8b"]
    whole = total(model, "decode")
    embedding = 128256 * 4096
    assert whole.weights.at({"B": 1}) == 2 * (8_030_261_248 - embedding) + 2 * 4096
    assert whole.cache.at({"B": 1, "T_k": 1000}) == 131_072 * 1000


def test_only_the_experts_that_are_chosen_are_computed_and_read(catalog: Catalog) -> None:
    model = catalog["mixtral-8x7b"]
    part = cost(model, "blocks/feed-forward/experts/project-down", "decode")
    assert part is not None
    assert part.multiply_adds == Amount({("B",): 2 * 4096 * 14336})
    assert part.weights == Amount({("B",): 2 * 2 * 4096 * 14336})
    active = total(model, "decode").weights.at({"B": 1}) / 2
    assert 12.7e9 < active < 12.9e9  # 46.7 billion parameters, 12.9 billion of them used for a token


def test_steps_that_only_move_or_weigh_numbers_have_no_sum(catalog: Catalog) -> None:
    model = catalog["llama-3-8b"]
    for path in ("merge-heads", "repeat-keys", "rotate-queries", "softmax", "write-keys"):
        part = cost(model, f"blocks/attention/{path}", "full")
        assert part is not None
        assert part.multiply_adds == Amount()
    written = cost(model, "blocks/attention/write-keys", "decode")
    assert written is not None
    assert written.written == Amount({("B",): 2 * 8 * 128})


@pytest.mark.parametrize("path", ["blocks/attention/apply-mask", "build-mask"])
def test_what_is_not_computed_costs_nothing(catalog: Catalog, path: str) -> None:
    assert cost(catalog["llama-3-8b"], path, "decode") is None
    assert [row.view for row in cost_rows(catalog["llama-3-8b"], path, "full")] == ["full", "prefill"]


def test_parts_add_up(catalog: Catalog) -> None:
    model = catalog["llama-3-8b"]
    block = cost(model, "blocks", "decode")
    assert block is not None
    top = [cost(model, one, "decode") for one in ("embedding", "final-norm", "unembedding")]
    parts = sum((part.multiply_adds.at({"B": 1, "T_k": 9}) for part in top if part is not None), 0)
    assert total(model, "decode").multiply_adds.at({"B": 1, "T_k": 9}) == parts + 32 * block.multiply_adds.at(
        {"B": 1, "T_k": 9}
    )


def test_tables_print_formulas_and_numbers(catalog: Catalog) -> None:
    full, _, decode = cost_rows(catalog["llama-3-8b"], "blocks/attention/compare", "decode")
    assert full.multiply_adds.striptags() == "4,096 B T2"
    assert full.formula.striptags() == "B batch × T positions × 32 q heads × 128 head dim × T keys"
    assert decode.multiply_adds.striptags() == "4,096 B Tk"
    assert decode.current
    prefill, step = pass_costs(catalog["llama-3-8b"])
    assert step.multiply_adds == f"{7_504_924_672 + 262_144 * 1024:,}"
    assert float(step.ratio) < 1 < float(prefill.ratio)
    assert f"{step.ratio} multiply-adds a byte" in cost_note(catalog["llama-3-8b"])


def test_every_model_has_costs(catalog: Catalog) -> None:
    for entry in catalog:
        assert len(pass_costs(catalog[entry.id])) == 2
