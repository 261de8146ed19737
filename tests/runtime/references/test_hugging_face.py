"""Every architecture that transformers runs, at small random size: recorded, replayed, and held against its equations.

The last test adds an architecture that nobody has heard of, as one file in a temporary directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
import torch

import atlas.architectures
from atlas.catalog import Catalog, Model
from atlas.errors import CheckpointError
from atlas.graph.axes import View
from atlas.graph.nodes import Parameter, Tensor
from atlas.inspection.arrays import as_array, dtype_name
from atlas.inspection.evaluate import bind, compare
from atlas.inspection.frames import Pass as Frame
from atlas.inspection.frames import pass_of
from atlas.runtime.recorder import Recording
from atlas.runtime.references.base import Memory, Pass
from atlas.runtime.references.hugging_face import Runner
from atlas.runtime.untrained import untrained

PROMPT, TOKENS = 20, 26
IDS = tuple(int(token) for token in np.random.default_rng(1).integers(0, 256, TOKENS))
STEPS = TOKENS - PROMPT


def _architectures() -> list[str]:
    package = Path(str(atlas.architectures.__file__)).parent
    files = [path for path in sorted(package.glob("[!_]*.py")) if "SMALL" in path.read_text("utf-8")]
    return [path.stem for path in files]


@dataclass
class Subject:
    """A small model with everything that its passes gave, recorded and not."""

    runner: Runner

    @property
    def model(self) -> Model:
        return self.runner.model

    @property
    def nodes(self) -> list[str]:
        return self.runner.captured_nodes()

    @property
    def passes(self) -> list[tuple[View, int | None, Pass]]:
        """The prompt, then each decode step."""
        found: list[tuple[View, int | None, Pass]] = [("prefill", None, Pass(IDS[:PROMPT], 0))]
        found += [("decode", k, Pass((IDS[PROMPT + k - 1],), PROMPT + k - 1)) for k in range(1, STEPS + 1)]
        return found

    @cached_property
    def plain(self) -> list[torch.Tensor]:
        """The logits of each pass without a recorder."""
        memory = self.runner.memory(TOKENS)
        return [self.runner.forward(work, memory) for _, _, work in self.passes]

    @cached_property
    def memory(self) -> Memory:
        return self.runner.memory(TOKENS)

    @cached_property
    def recorded(self) -> list[tuple[torch.Tensor, Recording]]:
        """The logits and the values of each pass, with one."""
        sites = self.runner.sites(self.nodes)
        return [self.runner.capture(work, self.memory, sites) for _, _, work in self.passes]

    @property
    def looked_at(self) -> Iterator[tuple[View, int | None, Pass, Recording]]:
        """The prompt, and the first and the last decode step: one before a window is full, one after."""
        for (view, step, work), (_, recording) in zip(self.passes, self.recorded, strict=True):
            if step in (None, 1, STEPS):
                yield view, step, work, recording

    def layers(self, path: str) -> list[int | None]:
        node = self.model.graph[path]
        if not node.in_blocks:
            return [None]
        return [layer for layer in range(self.runner.n_layers) if node.exists_in(layer)]

    def frame(self, view: View, step: int | None, layer: int | None) -> Frame:
        return pass_of(view, step, PROMPT, TOKENS + 1, layer, self.model.graph.window(layer))


@pytest.fixture(scope="module", params=_architectures())
def subject(request: pytest.FixtureRequest, catalog: Catalog) -> Subject:
    model = catalog.small(request.param)
    return Subject(Runner(model, untrained(model)))


def test_recording_changes_no_bit_of_the_logits(subject: Subject) -> None:
    for plain, (recorded, _) in zip(subject.plain, subject.recorded, strict=True):
        assert torch.equal(plain, recorded)
    assert subject.plain[0].std() > 0.1


def test_decode_agrees_with_the_full_sequence(subject: Subject) -> None:
    whole = subject.runner.forward(Pass(IDS, 0), subject.runner.memory(TOKENS, cache=False))[0]
    rows = torch.cat([logits[0] for logits in subject.plain])
    assert ((rows - whole).norm(dim=-1) / whole.norm(dim=-1)).max() < 1e-5


def test_every_tensor_is_captured_with_its_declared_shape(subject: Subject) -> None:
    graph = subject.model.graph
    for view, step, _, recording in subject.looked_at:
        for path in subject.nodes:
            declared = graph[path].shape[view]
            for layer in subject.layers(path):
                value = recording.last(path, layer)
                if declared is None:
                    assert value is None, (path, layer, view)
                    continue
                assert value is not None, (path, layer, view)
                expected = subject.frame(view, step, layer).expected(declared)
                assert list(value.shape) == expected, (path, layer, view)
    for path in subject.runner.captured_nodes("build"):
        value = subject.runner.built.last(path)
        assert value is not None, path
        assert list(value.shape) == [extent.size for extent in graph[path].shape["full"] or ()], path


def test_a_replay_gives_the_same_bits_in_every_layer(subject: Subject) -> None:
    runner, graph = subject.runner, subject.model.graph
    for view, _, work, recording in subject.looked_at:
        present = [path for path in subject.nodes if graph[path].shape[view] is not None]
        for path_part in ("before", "block", "after"):
            paths = [path for path in present if runner.part(path) == path_part]
            for layer in range(runner.n_layers) if path_part == "block" else [None]:
                here = [path for path in paths if graph[path].exists_in(layer)]
                replayed = runner.replay(work, subject.memory, path_part, layer, runner.sites(here))
                for path in here:
                    again, first = replayed.last(path, layer), recording.last(path, layer)
                    assert again is not None, (path, layer, view)
                    assert first is not None, (path, layer, view)
                    assert torch.equal(again, first), (path, layer, view)


def test_every_equation_holds_row_by_row(subject: Subject) -> None:
    graph = subject.model.graph
    checked = set()
    for view, step, _, recording in subject.looked_at:
        for operation in graph.operations:
            for output in operation.outputs:
                if graph[output].shape[view] is None:
                    continue
                for layer in subject.layers(operation.path):
                    problem = _equation(subject, operation.path, output, view, step, layer, recording)
                    assert problem == "", (operation.path, output, layer, view, problem)
                    checked.add(operation.path)
    assert checked == {operation.path for operation in graph.operations}


def _equation(
    subject: Subject, operation: str, output: str, view: View, step: int | None, layer: int | None, recording: Recording
) -> str:
    """What is wrong with one output in one layer of one pass; nothing if it holds."""
    graph, runner = subject.model.graph, subject.runner
    arrays = {}
    for _, path in (*graph.uses(operation, view, layer), (None, output)):
        node = graph[path].node
        if isinstance(node, Parameter):
            arrays[path] = (as_array(runner.weight(node.weight.format(layer=layer))), node.shape)
            continue
        assert isinstance(node, Tensor)
        source = runner.built if node.when == "build" else recording
        inside = graph[path].in_blocks
        value = source.last(path, (runner.n_layers - 1 if layer is None else layer) if inside else None)
        assert value is not None, path
        arrays[path] = (as_array(value), node.shape)
    bound = bind(graph, graph[operation], output, subject.frame(view, step, layer), arrays)
    if isinstance(bound, str):
        return bound
    found, axes = arrays[output]
    result = compare(bound, output, found, axes, dtype_name(torch.empty(0)))
    if result.ok and result.rows_checked:
        return ""
    return f"worst row {result.worst_row} at {result.worst_at}, {result.rows_checked} rows"


def test_every_anchor_and_every_piece_of_evidence_leads_somewhere(subject: Subject) -> None:
    for path in subject.model.graph.nodes:
        assert all(piece.lines for piece in subject.model.evidence(path)[:-1]), path
        subject.model.code_name(path)


def test_every_weight_of_the_reference_is_declared_and_used(subject: Subject) -> None:
    with pytest.raises(CheckpointError, match="do not fit the reference"):
        subject.runner._load({})
    names = set(subject.runner.checkpoint.tensors)
    first = next(iter(sorted(names)))
    assert subject.runner.weight(first) is subject.runner.checkpoint.tensors[first]
