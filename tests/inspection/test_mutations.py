"""Checks can fail: each way of breaking a declaration or a recorded value is caught by the check that should catch it.

Nothing else may be blamed: where a break has one place, the check names that place.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch

from atlas.architectures import llama
from atlas.catalog import Catalog, Model
from atlas.errors import DeclarationError
from atlas.graph.anchors import at
from atlas.graph.nodes import Architecture, Operation, Use
from atlas.inspection.arrays import Array
from atlas.inspection.checks import Subject, checkpoint, consistency, edges, equations, shapes, sources
from atlas.inspection.checks._live import Live, Taken, Witness
from atlas.inspection.checks._true_size import Traced
from atlas.inspection.checks.result import Result
from atlas.provenance.locks import Locks
from atlas.provenance.store import SourceStore
from atlas.runtime.captures import Captured
from atlas.runtime.references.base import Pass, ReferenceRunner
from atlas.settings import Settings

from .conftest import Mutant, of

A, M = "blocks/attention/", "blocks/feed-forward/"
ROTATED = f"{A}rotated-queries"


def failed(results: list[Result]) -> list[str]:
    return [result.node for result in results if result.status == "failed"]


# --- shapes


def shape_faults(found: Traced) -> dict[str, str]:
    nodes = found.model.graph.nodes.values()
    results = [shapes.tensor_result(found, node) for node in nodes if node.kind in ("tensor", "cache")]
    results += [shapes.parameter_result(found, node) for node in nodes if node.kind == "parameter"]
    return {result.node: result.detail for result in results if result.status == "failed"}


def test_true_shapes_have_no_fault(at_true_size: Traced) -> None:
    assert shape_faults(at_true_size) == {}


@pytest.mark.parametrize(
    ("path", "shape", "says"),
    [
        (f"{A}queries", ("batch", "q_heads", "positions", "head_dim"), "axis q_heads (H) is 5, not 32"),
        (f"{A}queries", ("batch", "positions", "kv_heads", "head_dim"), "axis kv_heads (G) is 32, not 8"),
        (f"{A}key-cache", ("batch", "positions", "kv_heads", "head_dim"), "in layer 0: axis positions (1) is 13,"),
        ("causal-mask", ("keys", "queries", "one"), "3 axes are declared, 2 were observed"),
        ("blocks/feed-forward/down-weight", ("d_mlp", "d_model"), "w2.weight is 2048 × 8192, not 8192 × 2048"),
        ("unembedding/logits", ("positions", "batch", "vocab"), "axis positions (T) is 2, not 5"),
    ],
)  # fmt: skip
def test_a_wrong_axis_is_found(
    at_true_size: Traced, mutant: Mutant, path: str, shape: tuple[str, ...], says: str
) -> None:
    faults = shape_faults(of(at_true_size, mutant(at_true_size.model, path, shape=shape, sharded=None)))
    assert list(faults) == [path]
    assert says in faults[path]


def test_a_wrong_size_is_found_wherever_it_is_used(at_true_size: Traced, mutant: Mutant) -> None:
    def wider(declared: Architecture) -> Architecture:
        return declared.model_copy(update={"sizes": {**declared.sizes, "d_mlp": 8448}})

    faults = shape_faults(of(at_true_size, mutant(at_true_size.model, change=wider)))
    assert set(faults) == {
        f"blocks/feed-forward/{name}"
        for name in ("gate", "up", "activated-gate", "gated", "gate-weight", "up-weight", "down-weight")
    }


def test_what_is_computed_where_it_is_said_to_be_absent_is_found(at_true_size: Traced, mutant: Mutant) -> None:
    def absent(declared: Architecture) -> Architecture:
        changed = {"blocks/feed-forward-residual", "blocks/block-output"}
        views = {"views": ("full", "prefill"), "absent": "It is claimed so."}
        nodes = [n.model_copy(update=views) if n.path in changed else n for n in declared.nodes]
        cut = [n for n in nodes if not n.path.startswith(("final-norm", "unembedding"))]
        return declared.model_copy(update={"nodes": tuple(cut), "loops": ()})

    faults = shape_faults(of(at_true_size, mutant(at_true_size.model, change=absent)))
    assert "decode: it is declared absent, but comes to be in layer 0 and 2 more" in faults["blocks/block-output"]


# --- edges


def edge_faults(found: Traced) -> dict[str, str]:
    return {result.node: result.detail for result in edges.results(found) if result.status == "failed"}


def test_true_edges_have_no_fault(at_true_size: Traced) -> None:
    assert edge_faults(at_true_size) == {}


def test_a_missing_edge_is_found_at_its_ends(at_true_size: Traced, mutant: Mutant) -> None:
    broken = mutant(
        at_true_size.model,
        "blocks/attention-norm/scale",
        inputs=(Use(path="blocks/block-input", named="x"), "reciprocal-rms"),
        reference=lambda x, reciprocal_rms: x * reciprocal_rms,
        equation=r"<normalized> = <reciprocal-rms>",
    )
    faults = edge_faults(of(at_true_size, broken))
    assert set(faults) == {"blocks/attention-norm/scale", "blocks/attention-norm/normalized"}
    said = "blocks/attention-norm/gain → blocks/attention-norm/normalized is not declared, but a value flows"
    assert all(said in fault for fault in faults.values())


def test_an_invented_edge_is_found_at_its_ends(at_true_size: Traced, mutant: Mutant) -> None:
    inputs = ("keys", Use(path="rotary/rotations", named="rotations"), "values")
    faults = edge_faults(of(at_true_size, mutant(at_true_size.model, f"{A}rotate-keys", inputs=inputs)))
    assert set(faults) == {f"{A}values", f"{A}rotate-keys", f"{A}rotated-keys"}
    assert f"{A}values → {A}rotate-keys is declared, but nothing flows" in faults[f"{A}values"]


def test_an_edge_from_the_wrong_tensor_is_found(at_true_size: Traced, mutant: Mutant) -> None:
    """The cache is said to hold keys that are not rotated."""
    broken = mutant(
        at_true_size.model,
        f"{A}write-keys",
        inputs=("keys",),
        reference=lambda before, keys: np.concatenate([before, keys], axis=1),
        equation="<key-cache> = <keys>",
    )
    assert {f"{A}keys", f"{A}rotated-keys", f"{A}write-keys"} <= set(edge_faults(of(at_true_size, broken)))


def test_a_value_where_only_a_shape_is_said_to_be_lent_is_found(at_true_size: Traced, mutant: Mutant) -> None:
    inputs = (Use(path="token-ids", lends=True), "weight")
    faults = edge_faults(of(at_true_size, mutant(at_true_size.model, "embedding/look-up", inputs=inputs)))
    assert "is declared to lend only its shape, but a value flows" in faults["token-ids"]


# --- equations


def compared(witness: Witness, model: Model, node: str, layer: int | None, taken: Taken) -> bool | None:
    """Whether a node's equation, as a model declares it, holds on recorded values."""
    other = copy.copy(witness)
    other.model = model
    found = equations.compare_one(other, taken, model.graph[node], layer)
    assert found is not None
    return found.check.ok


def _past_the_next(inverse_frequencies: Array, start_pos: int, positions: int) -> Array:
    angles = np.outer(start_pos + 1 + np.arange(positions), inverse_frequencies)
    return np.asarray(np.exp(1j * angles))


def _feature_major(head_outputs: Array) -> Array:
    return np.moveaxis(head_outputs, 1, 3).reshape(head_outputs.shape[0], head_outputs.shape[2], -1)


def _not_transposed(normalized: Array, query_weight: Array, head_dim: int) -> Array:
    return np.reshape(normalized @ query_weight, (*normalized.shape[:2], -1, head_dim))


def _tiled(key_cache: Array, group: int) -> Array:
    return np.tile(key_cache, (1, 1, group, 1))


def _strict_mask(start_pos: int, positions: int) -> Array:
    return np.triu(np.full((positions, start_pos + positions), -np.inf), k=start_pos)


def _before_last(before: Array, rotated_keys: Array) -> Array:
    return np.concatenate([rotated_keys, before], axis=1)


def _mean_magnitude(x: Array) -> Array:
    return np.asarray(1 / np.mean(np.abs(x), -1, keepdims=True))


SCALE, SCALED = f"{A}scale-similarities", f"{A}scaled-similarities"
WRONG: Mapping[str, tuple[str, str, Any]] = {
    "divided by h": (SCALE, SCALED, lambda similarities, head_dim: similarities / head_dim),
    "root of d_model": (SCALE, SCALED, lambda similarities, d_model: similarities / d_model**0.5),
    "tiled heads": (f"{A}repeat-keys", f"{A}repeated-keys", _tiled),
    "weight not transposed": (f"{A}project-queries", f"{A}queries", _not_transposed),
    "heads inside out": (f"{A}merge-heads", f"{A}merged-heads", _feature_major),
    "mask one off": ("build-mask", "causal-mask", _strict_mask),
    "old rows last": (f"{A}write-keys", f"{A}key-cache", _before_last),
    "mean magnitude": ("blocks/attention-norm/rms", "blocks/attention-norm/reciprocal-rms", _mean_magnitude),
    "ReLU": (f"{M}activate", f"{M}activated-gate", lambda gate: np.maximum(gate, 0)),
    "no update": ("blocks/feed-forward-residual", "blocks/block-output", lambda mid_residual: mid_residual),
    "position one off": ("rotary/rotate", "rotary/rotations", _past_the_next),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_equation_is_found(witness: Witness, mutant: Mutant, name: str) -> None:
    operation, node, reference = WRONG[name]
    taken = witness.passes[3 if operation.endswith("write-keys") else 0]
    layer = 15 if node.startswith("blocks/") else None
    assert compared(witness, witness.model, node, layer, taken) is True
    assert compared(witness, mutant(witness.model, operation, reference=reference), node, layer, taken) is False


def test_a_reference_that_does_not_fit_is_a_failure_and_no_crash(witness: Witness, mutant: Mutant) -> None:
    def unfit(rotated_queries: Array, repeated_keys: Array) -> Any:
        return rotated_queries @ repeated_keys

    broken = mutant(witness.model, f"{A}compare", reference=unfit)
    assert compared(witness, broken, f"{A}similarities", 3, witness.passes[0]) is False


def test_a_factor_of_scaled_rope_is_found_without_weights(catalog: Catalog, mutant: Mutant) -> None:
    def slower(declared: Architecture) -> Architecture:
        return declared.model_copy(update={"settings": {**declared.settings, "rope_factor": 32}})

    model = catalog["llama-3.1-8b"]
    assert failed(list(equations.configured_results(model))) == []
    broken = mutant(model, change=slower)
    assert failed(list(equations.configured_results(broken))) == ["rotary/scaled-frequencies"]


class Tampered(Witness):
    """A witness whose recorded values are changed on the way to the check."""

    def __init__(self, witness: Witness, node: str, layer: int, change: Any) -> None:
        super().__init__(witness.runner)
        self.__dict__.update(witness.__dict__)
        self._where, self._change = (node, layer), change

    def value(self, taken: Taken, path: str, layer: int | None) -> Captured | None:
        found = super().value(taken, path, layer)
        if found is None or (path, layer) != self._where:
            return found
        return dataclasses.replace(found, tensor=self._change(found.tensor))


def other_pairing(queries: torch.Tensor, rotations: torch.Tensor) -> torch.Tensor:
    """Rotary positions as Hugging Face pairs features: i with i + h/2."""
    half = queries.shape[-1] // 2
    turned = torch.complex(queries[..., :half], queries[..., half:]) * rotations[None, :, None, :]
    return torch.cat([turned.real, turned.imag], dim=-1)


def test_the_other_pairing_in_one_block_is_found_there_and_nowhere_else(witness: Witness) -> None:
    taken, broken = witness.passes[0], 7
    queries, rotations = (witness.value(taken, path, broken) for path in (f"{A}queries", "rotary/rotations"))
    assert queries is not None
    assert rotations is not None
    tampered = Tampered(witness, ROTATED, broken, lambda _: other_pairing(queries.tensor, rotations.tensor))
    node = witness.model.graph[ROTATED]
    verdicts = {}
    for layer in range(5, 10):
        found = equations.compare_one(tampered, taken, node, layer)
        assert found is not None
        verdicts[layer] = found.check.ok
    assert verdicts == {layer: layer != broken for layer in range(5, 10)}


def test_the_other_pairing_in_one_block_is_seen_at_its_output(
    runner: ReferenceRunner, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative to the largest entry of the stream it would be small; row by row it is not."""
    work, broken = Pass(witness.prompt, 0), 7
    clean, wrong = runner.memory(work.stop), runner.memory(work.stop)
    runner.forward(work, clean)
    plain, layer = runner.loaded.module.apply_rotary_emb, iter(range(runner.n_layers))

    def paired(xq: torch.Tensor, xk: torch.Tensor, freqs_cis: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if next(layer) == broken:
            return other_pairing(xq, freqs_cis), other_pairing(xk, freqs_cis)
        found: tuple[torch.Tensor, torch.Tensor] = plain(xq, xk, freqs_cis=freqs_cis)
        return found

    monkeypatch.setattr(runner.loaded.module, "apply_rotary_emb", paired)
    runner.forward(work, wrong)
    assert torch.equal(clean.residual[broken], wrong.residual[broken])
    gap = (clean.residual[broken + 1] - wrong.residual[broken + 1]).norm(dim=-1) / clean.residual[broken + 1].norm(
        dim=-1
    )
    assert gap[0] == 0, "position 0 is not turned in either pairing"
    assert float(gap.max()) > 100 * consistency.TOLERANCE


@pytest.mark.parametrize(
    ("node", "change"),
    [
        (f"{A}queries", lambda t: t.flip(2)),
        (f"{A}attention-weights", lambda t: t.roll(1, dims=1)),
        (f"{A}attention-weights", lambda t: t * 1.0001),
        (f"{A}key-cache", lambda t: t.roll(1, dims=1)),
        (f"{A}masked-similarities", lambda t: t.nan_to_num(neginf=-1e4)),
        ("blocks/block-output", lambda t: t.index_fill(-1, torch.tensor([3]), 0.0)),
        (f"{A}merged-heads", lambda t: t.to(torch.bfloat16).float()),
    ],
)
def test_changed_values_are_found(witness: Witness, node: str, change: Any) -> None:
    found = equations.compare_one(Tampered(witness, node, 15, change), witness.passes[0], witness.model.graph[node], 15)
    assert found is not None
    assert found.check.ok is False


# --- consistency


def test_a_cache_that_was_changed_is_found(runner: ReferenceRunner) -> None:
    class Leaky(Witness):
        @cached_property
        def _run(self) -> Any:
            memory = self.runner.memory(len(self.prompt) + 1)
            sites = self.runner.sites([f"{A}key-cache", f"{A}value-cache", f"{A}attention-update"])
            first = Pass(self.prompt, 0)
            logits, recording = self.runner.capture(first, memory, sites)
            memory.keys[4][:, 1] *= 1.01
            work = Pass((int(logits[0, -1].argmax()),), first.stop)
            again, step = self.runner.capture(work, memory, sites)
            return (Taken("prefill", None, first, logits, recording), Taken("decode", 1, work, again, step)), memory

    found = Live(Leaky(runner), stands_in=False)
    graph = runner.model.graph
    results = list(consistency._decode_is_full(found, graph[f"{A}attention-update"]))
    results += list(consistency._cache_is_prefill(found))
    assert failed(results) == [f"{A}attention-update", f"{A}key-cache", f"{A}value-cache"]
    assert "layer 4" in str(results[1].numbers["worst_at"])


# --- checkpoint


def with_tensors(runner: ReferenceRunner, **changed: torch.Tensor | None) -> ReferenceRunner:
    other = copy.copy(runner)
    tensors = dict(runner.checkpoint.tensors)
    for name, tensor in changed.items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    other.checkpoint = dataclasses.replace(runner.checkpoint, tensors=tensors)
    return other


def test_a_missing_an_extra_and_a_misshapen_weight_and_one_with_nan_are_named(runner: ReferenceRunner) -> None:
    weights = runner.checkpoint.tensors
    spoilt = weights["layers.3.ffn_norm.weight"].clone()
    spoilt[5] = float("nan")
    broken = with_tensors(
        runner,
        **{
            "layers.2.attention.wq.weight": None,
            "layers.4.attention.wo.weight": weights["layers.4.attention.wo.weight"][:-1],
            "layers.3.ffn_norm.weight": spoilt,
            "layers.30.ffn_norm.weight": spoilt,
        },
    )
    details = " ".join(result.detail for result in checkpoint.parameters(broken) if result.status == "failed")
    assert "layers.2.attention.wq.weight is missing." in details
    assert "layers.4.attention.wo.weight is [575, 576], not [576, 576]." in details
    assert "layers.3.ffn_norm.weight holds 1 elements that are no finite numbers." in details
    assert "Not declared: layers.30.ffn_norm.weight." in details


def test_a_wrong_number_of_parameters_is_found(runner: ReferenceRunner) -> None:
    broken = copy.copy(runner)
    broken.checkpoint = dataclasses.replace(runner.checkpoint, parameter_count=162_826_560)
    details = [result.detail for result in checkpoint.parameters(broken) if result.status == "failed"]
    assert details == ["It has 162,826,560, the declaration adds up to 134,515,008."]


# --- sources


def source_faults(model: Model, catalog: Catalog) -> dict[str, str]:
    found = sources.check(Subject(model, catalog, Settings(), lambda _message, _share: None))
    return {result.node or result.what: result.detail for result in found if result.status == "failed"}


def test_evidence_that_cites_the_next_line_is_found(catalog: Catalog, mutant: Mutant) -> None:
    model = catalog["llama-3-8b"]
    node = model.graph[f"{A}scale-similarities"].node
    moved = tuple(
        piece.model_copy(update={"anchors": (at("Attention.forward").assigns("scores", nth=2),)})
        if piece.kind == "direct" and piece.file == llama.RUNS
        else piece
        for piece in node.evidence
    )
    faults = source_faults(mutant(model, node.path, evidence=moved), catalog)
    assert set(faults) == {node.path}
    assert "It stands at 196, the evidence cites 198." in faults[node.path]


def test_a_lock_that_is_a_line_off_is_found(store: SourceStore) -> None:
    locks = {lock.id: lock for lock in store.locks}
    lock = locks["llama-models"]
    kept = lock.files[0].model_copy(update={"lines": {"Attention.forward.returns": (201, 202)}})
    locks["llama-models"] = lock.model_copy(update={"files": (kept, *lock.files[1:])})
    shifted = Catalog(SourceStore(Locks(locks), store.cache_dir))
    faults = source_faults(shifted["llama-3-8b"], shifted)
    assert any("Attention.forward.returns is at 202-202, not 201-202" in fault for fault in faults.values())


def test_an_anchor_that_names_nothing_is_found(catalog: Catalog, mutant: Mutant) -> None:
    model = mutant(catalog["llama-3-8b"], f"{A}head-outputs", hook=at("Attention.forward").assigns("output", nth=3))
    faults = source_faults(model, catalog)
    assert "there are 2 matches" in faults[f"{A}head-outputs"]


def test_an_input_that_no_node_declares_is_refused_at_once(catalog: Catalog, mutant: Mutant) -> None:
    node = catalog["llama-3-8b"].graph[f"{A}scale-similarities"].node
    assert isinstance(node, Operation)
    with pytest.raises(DeclarationError, match="simmilarities"):
        mutant(catalog["llama-3-8b"], node.path, inputs=("simmilarities",))
