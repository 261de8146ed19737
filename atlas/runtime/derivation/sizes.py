"""Names for numbers: which axis has a size, by the settings of a configuration and by what a pass was given.

A size is named after the setting that has the same number, after both where two have it. Knows nothing of code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from atlas.graph.axes import STANDARD_AXES, VIEWS, Axis, View

Passes = Mapping[View, tuple[int, int]]
WIDTH, VOCABULARY = ("hidden_size", "n_embd", "d_model"), ("vocab_size",)
CHOSEN = ("num_experts_per_tok",)
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
STANDARD = (
    ("d_mlp", ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")),
    ("q_heads", ("num_attention_heads", "n_head", "num_heads")),
    ("kv_heads", ("num_key_value_heads",)),
    ("head_dim", ("head_dim",)),
    ("experts", ("num_local_experts", "n_routed_experts", "num_experts")),
)
"""Axes that every declaration calls so, by the settings that usually hold their sizes."""
NO_AXIS = re.compile(r"_token_id$|layer|^max_|_max$|interval|window|position|_per_tok$|^pretraining|^time_step|version")
"""Settings whose numbers are no sizes of tensors."""
WORDS = {axis.name: axis.words for axis in STANDARD_AXES}


class Sizes:
    """The axes of one model. `sizes` and `axes` fill as axes are asked for."""

    def __init__(
        self, settings: Mapping[str, Any], *, width: int, vocabulary: int, passes: Passes, before: int
    ) -> None:
        """`width` is that of the residual stream; `passes` are batch and positions that each view was run with, and
        `before` how many positions were before the decode step.
        """
        self.sizes: dict[str, int] = {"one": 1, "d_model": width, "vocab": vocabulary}
        self.axes: dict[str, Axis] = {}
        self._known = _known(settings, width, vocabulary)
        self._settings = {1, *self._known}
        self._running: dict[str, Mapping[View, int]] = {
            "batch": {view: batch for view, (batch, _) in passes.items()},
            "positions": {view: computed for view, (_, computed) in passes.items()},
            "keys": {view: computed + before * (view == "decode") for view, (_, computed) in passes.items()},
        }

    def also(self, sizes: Iterable[int]) -> None:
        """Numbers that are fixed by the model, whichever setting they come from: those of its parameters."""
        self._settings |= set(sizes)

    def axis(self, seen: Mapping[View, int]) -> str:
        """The name of the axis that has these sizes in these views."""
        sizes = set(seen.values())
        if len(sizes) == 1 and (len(seen) > 1 or sizes <= self._settings):
            return self.fixed(sizes.pop())
        for axis, numbers in self._running.items():
            if all(numbers[view] == size for view, size in seen.items()):
                return axis
        batch, positions = self._running["batch"], self._running["positions"]
        if all(batch[view] * positions[view] == size for view, size in seen.items()):
            return self._own(
                Axis(
                    name="tokens",
                    symbol="BT",
                    words="tokens",
                    meaning="Positions of all sequences in one row.",
                    running={"full": "BT", "prefill": "BP", "decode": "B"},
                    product=("batch", "positions"),
                )
            )
        return self._own(
            Axis(
                name="entries",
                symbol="N",
                words="entries",
                meaning="As many as this pass has: no setting gives the number.",
                running=dict.fromkeys(VIEWS, "N"),
                free=True,
            )
        )

    def fixed(self, size: int) -> str:
        """The name of the axis that has this size in every pass."""
        if size == 1:
            return "one"
        names = self._known.get(size, ())
        name = "_or_".join(names) or f"size_{size}"
        self.sizes[name] = size
        if name not in WORDS:
            words = " or ".join(map(_words, names)) or "features"
            what = f"The number of {' and of '.join(names)}." if names else "A number that no setting has."
            self._own(Axis(name=name, symbol=typed(words), words=words, meaning=what))
        return name

    def _own(self, axis: Axis) -> str:
        self.axes.setdefault(axis.name, axis)
        return axis.name


def _known(settings: Mapping[str, Any], width: int, vocabulary: int) -> dict[int, tuple[str, ...]]:
    """Names for numbers: those that every declaration has, then settings by their own names, and products last."""
    stated = {name: size for name, size in settings.items() if type(size) is int and size > 1}
    found: dict[int, list[str]] = {}
    standard: dict[str, int] = {"d_model": width}
    taken: set[str] = set()
    for axis, names in STANDARD:
        setting = next((name for name in names if name in stated), None)
        size = stated.get(setting or "")
        if axis == "head_dim" and size is None and "q_heads" in standard and width % standard["q_heads"] == 0:
            size = width // standard["q_heads"]
        if size is None or size < 2:
            continue
        standard[axis] = size
        taken |= {setting} if setting else set()
        if not (axis == "kv_heads" and size == standard.get("q_heads")):
            found.setdefault(size, []).append(axis)
    for name, size in stated.items():
        if name not in taken and not NO_AXIS.search(name):
            found.setdefault(size, []).append(name)
    for name, size in _products(standard):
        found.setdefault(size, [name])
    return {size: tuple(names) for size, names in found.items()} | {vocabulary: ("vocab",), width: ("d_model",)}


def _products(standard: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    head = standard.get("head_dim", 0)
    if head:
        yield from (
            (width, standard[heads] * head)
            for width, heads in (("q_width", "q_heads"), ("kv_width", "kv_heads"))
            if heads in standard
        )
        if head > 3:
            yield "pairs", head // 2


def _words(name: str) -> str:
    return WORDS.get(name) or re.sub(r"^(num|n)_", "", name).replace("_", " ")


def typed(text: str) -> str:
    """A name of the code as TeX."""
    return r"\mathtt{" + re.sub(r"([_#&%$])", r"\\\1", text).replace(" ", r"\ ") + "}"
