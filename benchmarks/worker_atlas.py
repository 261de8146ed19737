"""A worker: what a pass takes here, alone, as a run, and with everything captured: `python -m benchmarks.worker_atlas`.

The bare forward is a second copy of the reference model, with the same weights and a KV cache of its own, called as
it would be without us.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from atlas.graph.nodes import Tensor
from atlas.inspection.summary import summarize
from atlas.runtime.captures import Captures, checked
from atlas.runtime.recorder import Recorder, Recording, storage_key
from atlas.runtime.references.base import Memory, Pass
from atlas.runtime.runs import Run, RunRequest
from benchmarks.default_model import bare_model, open_runner
from benchmarks.profile_capture import profile
from benchmarks.worker_pipe import Answer, serve, timed

LARGEST = "blocks/attention/attention-weights"
"""The node whose size grows with the square of the prompt."""


@dataclass
class Prompt:
    """A run with two generated tokens, and its memory."""

    run: Run
    memory: Memory

    @property
    def prefill(self) -> Pass:
        return self.run.work("prefill", None)

    @property
    def step(self) -> Pass:
        return self.run.work("decode", 1)


class Bench:
    """The default model, and the prompt that is being measured."""

    def __init__(self) -> None:
        self._runner = open_runner()
        self._all = self._runner.sites(self._runner.captured_nodes())
        self._prompt: Prompt | None = None

    def open(self, tokens: list[int], longest: int) -> Answer:
        """Build the bare model for prompts up to `longest`, warm up; tells the weights and the versions."""
        self._bare = bare_model(self._runner, longest + 2)
        prefill = self._at(tokens).prefill
        logits = self._take("bare", prefill)
        assert torch.equal(logits, self._take("run", prefill))
        assert torch.equal(logits, self._take("captured", prefill)[0])
        checkpoint = self._runner.checkpoint
        found = [path for path in checkpoint.files if path.suffix == ".safetensors"]
        told = {
            "weights": str(found[0]),
            "config": dict(checkpoint.config),
            "model": self._runner.model.name,
            "layers": self._runner.n_layers,
            "next": int(logits[0, -1].argmax()),
            "logit": float(logits[0, -1].max()),
            "threads": torch.get_num_threads(),
            "versions": {name: version(name) for name in ("torch", "llama-models", "numpy")},
        }
        gc.collect()
        gc.freeze()
        return told

    def take(self, how: str, tokens: list[int], step: bool = False, threads: int = 0) -> Answer:
        """One pass, the prefill or the first decode step: `bare`, as a `run`, or with all tensors `captured`."""
        prompt = self._at(tokens)
        usual = torch.get_num_threads()
        torch.set_num_threads(threads or usual)
        answer = timed(lambda: self._take(how, prompt.step if step else prompt.prefill))[1]
        torch.set_num_threads(usual)
        return answer

    def request(self, tokens: list[int], view: str, number: int = 0, node: str = "") -> Answer:
        """One inner tensor of one layer with its statistics, from a run that has it not yet: the `number`th in turn."""
        run = self._at(tokens).run
        nodes = [path for path in self._runner.captured_nodes() if self._requestable(path, view)]
        node = node or nodes[number % len(nodes)]
        wanted = checked(run, [node], view, number % self._runner.n_layers, 1)
        memory = self._at(tokens).memory

        def serve_it() -> object:
            found = Captures().make(run, wanted, memory, {})
            return summarize(found[node].tensor)

        return timed(serve_it)[1] | {"node": node}

    def sizes(self, tokens: list[int]) -> Answer:
        """Bytes of a prefill: what a run keeps, what is captured, and what torch allocates, each storage once."""
        prompt = self._at(tokens)
        recording = self._take("captured", prompt.prefill)[1]
        captured = list(_tensors(recording))
        storages = {storage_key(tensor): tensor.untyped_storage().nbytes() for tensor in captured}
        del recording
        allocated = Allocated()
        memory = self._runner.memory(len(tokens))
        with torch.inference_mode(), Recorder([], observer=allocated.called):
            self._bare(torch.tensor([tokens]), 0)
        return {
            "run": memory.nbytes,
            "tensors": len(captured),
            "captured": sum(storages.values()),
            "pass": allocated.nbytes,
            "pass_with_views": allocated.with_views,
        }

    def growth(self, tokens: list[int]) -> Answer:
        """What a run of this prompt keeps, and what its prefill allocates, in bytes."""
        allocated = Allocated()
        with torch.inference_mode(), Recorder([], observer=allocated.called):
            self._bare(torch.tensor([tokens]), 0)
        return {"run": self._runner.memory(len(tokens)).nbytes, "pass": allocated.nbytes}

    def profile(self, tokens: list[int], repeats: int) -> Answer:
        """Where the time of a captured decode step goes."""
        prompt = self._at(tokens)
        return profile(self._runner, self._bare, prompt.memory, prompt.step, repeats)

    def _take(self, how: str, work: Pass) -> Any:
        assert self._prompt is not None
        if how == "captured":
            return self._runner.capture(work, self._prompt.memory, self._all)
        if how == "run":
            return self._runner.forward(work, self._prompt.memory, lambda _: None)
        return self._bare(torch.tensor([work.tokens]), work.start)

    def _at(self, tokens: Sequence[int]) -> Prompt:
        """The run of these tokens, after its prefill and first step."""
        if self._prompt is None or self._prompt.prefill.tokens != tuple(tokens):
            request = RunRequest(
                model=self._runner.model.id, token_ids=tuple(tokens), max_new_tokens=2, temperature=0.0, seed=0
            )
            run = Run("0" * 20, request, self._runner)
            memory = self._runner.memory(run.capacity)
            self._prompt = Prompt(run, memory)
            logits = self._take("run", self._prompt.prefill)
            run.ids.append(int(logits[0, -1].argmax()))
            logits = self._take("run", Pass((run.ids[-1],), len(tokens)))
            run.ids.append(int(logits[0, -1].argmax()))
            run.status, run.memory = "done", memory
        return self._prompt

    def _requestable(self, path: str, view: str) -> bool:
        node = self._runner.model.graph[path].node
        return isinstance(node, Tensor) and view in node.views and self._runner.part(path) == "block"


class Allocated:
    """Observes torch calls: the bytes of all that they allocate, and of all that they give, views included.

    A result is new if it shares its storage with no argument.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self.with_views = 0

    def called(self, _func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """An observer for the recorder."""
        given = {storage_key(tensor) for tensor in _tensors([args, *kwargs.values()])}
        for tensor in _tensors(result):
            self.with_views += tensor.nbytes
            if storage_key(tensor) not in given:
                self.nbytes += tensor.untyped_storage().nbytes()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Recording):
        for tensors in value.values.values():
            yield from tensors
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def main() -> None:
    bench = Bench()
    serve(
        {
            "open": bench.open,
            "take": bench.take,
            "request": bench.request,
            "sizes": bench.sizes,
            "growth": bench.growth,
            "profile": bench.profile,
        }
    )


if __name__ == "__main__":
    main()
