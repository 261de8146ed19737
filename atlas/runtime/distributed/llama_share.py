"""One rank's share of Meta's reference, whose own layers are parallel: its columns, rows and heads of each matrix."""

from __future__ import annotations

from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

from atlas.catalog import Model
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.recorder import Recorder, Recording
from atlas.runtime.references.llama import Runner, constructed


class ShareRunner(Runner):
    """Runs in step with the same on every other rank; `checkpoint` has this rank's share of the weights."""

    def __init__(self, model: Model, checkpoint: Checkpoint, world: int) -> None:
        """Raises `CheckpointError` if the share does not fit, and `SourceError`."""
        self._world = world
        super().__init__(model, checkpoint)

    @property
    def kv_heads(self) -> int:
        return super().kv_heads // self._world

    def _constructed(self) -> tuple[Any, Recording]:
        # fairscale fills what it allocates, so the model is built without memory, and its share put in afterwards.
        # What is computed as it is built depends on neither blocks nor vocabulary, and comes from one that has none.
        config, positions = self.checkpoint.config, self.context_length
        with Recorder(self.sites(self.captured_nodes("build"))) as recorder:
            hollow = constructed(self.loaded, {**config, "n_layers": 0, "vocab_size": self._world}, 1, positions)
        with FakeTensorMode():
            transformer = constructed(self.loaded, config, 1, positions)
        transformer.freqs_cis = hollow.freqs_cis
        return transformer, recorder.recording
