"""Named axes: what each is called, its symbol, and how large it is in each view.

An axis is either *fixed*, its size read from the model's configuration, or *running*, its size a matter of the
input. Running axes have one symbol per view, because a decode step computes one position where a prefill
computes all of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from atlas.errors import DeclarationError

View = Literal["full", "prefill", "decode"]
VIEWS: tuple[View, ...] = ("full", "prefill", "decode")
VIEW_NAMES: Mapping[View, str] = {"full": "Full sequence", "prefill": "Prefill", "decode": "Decode"}


class Frozen(BaseModel):
    """Immutable declared data; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Axis(Frozen):
    """One named axis.

    `symbol` is TeX. `words` follow the size in a printed shape (`32 q heads`); `word` is used for a size of one
    where it differs. `running` holds the symbol in each view of an axis whose size depends on the input, or
    the size itself where the view fixes it. `product` names the axes whose sizes multiply to that of a running one.
    `window`: it runs over the attended positions within a sliding window of this many (as `keys` does in local layers).
    `free`: nothing says how large it is, so any size fits.
    """

    name: str
    symbol: str
    words: str
    word: str = ""
    meaning: str
    running: Mapping[View, str | int] | None = None
    product: tuple[str, ...] = ()
    window: int | None = None
    free: bool = False


class Extent(Frozen):
    """One axis of a resolved shape: `size` is None where it depends on the input; it is the product of `factors`,
    where there are some.
    """

    axis: str
    symbol: str
    size: int | None
    words: str
    factors: tuple[Extent, ...] = ()
    window: int | None = None
    free: bool = False

    def __str__(self) -> str:
        return f"{self.symbol if self.size is None else self.size} {self.words}"


def _running(full: str, prefill: str, decode: str | int) -> Mapping[View, str | int]:
    return {"full": full, "prefill": prefill, "decode": decode}


STANDARD_AXES: tuple[Axis, ...] = (
    Axis(
        name="batch",
        symbol="B",
        words="batch",
        meaning="Independent sequences computed together.",
        running=_running("B", "B", "B"),
    ),
    Axis(
        name="positions",
        symbol="T",
        words="positions",
        word="position",
        meaning="Token positions computed in this pass.",
        running=_running("T", "P", 1),
    ),
    Axis(
        name="queries",
        symbol="T",
        words="queries",
        word="query",
        meaning="Positions computed in this pass, as those that attend.",
        running=_running("T", "P", 1),
    ),
    Axis(
        name="keys",
        symbol="T",
        words="keys",
        word="key",
        meaning="Positions attended to: all those in the cache after this pass's write.",
        running=_running("T", "P", "T_k"),
    ),
    Axis(name="layers", symbol="L", words="layers", meaning="Transformer blocks, one after another."),
    Axis(name="d_model", symbol="D", words="d", meaning="Features of the residual stream."),
    Axis(name="q_heads", symbol="H", words="q heads", word="q head", meaning="Query heads."),
    Axis(name="kv_heads", symbol="G", words="kv heads", word="kv head", meaning="Heads of keys and values."),
    Axis(name="head_dim", symbol="h", words="head dim", meaning="Features of one head."),
    Axis(name="d_mlp", symbol="F", words="mlp", meaning="Hidden features of the feed-forward network."),
    Axis(name="vocab", symbol="V", words="vocab", meaning="Tokens that the model knows."),
    Axis(name="pairs", symbol=r"h/2", words="pairs", meaning="Pairs of features that rotate together."),
    Axis(
        name="q_width",
        symbol="Hh",
        words="q width",
        meaning="All query heads side by side: q heads x head dim.",
    ),
    Axis(
        name="kv_width",
        symbol="Gh",
        words="kv width",
        meaning="All kv heads side by side: kv heads x head dim.",
    ),
    Axis(name="one", symbol="1", words="one", meaning="An axis that was reduced and kept, of size one."),
)


class Axes:
    """The axes known to one architecture: the standard ones and its own."""

    def __init__(self, own: tuple[Axis, ...] = ()) -> None:
        self._axes = {axis.name: axis for axis in (*STANDARD_AXES, *own)}

    def __getitem__(self, name: str) -> Axis:
        """Raises `DeclarationError` with the nearest known name."""
        axis = self._axes.get(name)
        if axis is None:
            near = difflib.get_close_matches(name, self._axes, 1)
            raise DeclarationError(
                f"Unknown axis {name!r}.", f"Did you mean {near[0]!r}?" if near else "Declare it as an Axis."
            )
        return axis

    def extent(self, name: str, sizes: Mapping[str, int], view: View) -> Extent:
        """The axis in a view: its size from `sizes` (fixed axes), or its symbol (running ones)."""
        axis = self[name]
        factors = tuple(self.extent(factor, sizes, view) for factor in axis.product)
        if axis.running is not None:
            running = axis.running[view]
            size = running if isinstance(running, int) else None
            symbol = str(running)
        else:
            if name not in sizes:
                raise DeclarationError(f"The axis {name!r} has no size.", "Give it one in the architecture's sizes().")
            size, symbol = sizes[name], axis.symbol
        words = axis.word if size == 1 and axis.word else axis.words
        return Extent(
            axis=name,
            symbol=symbol,
            size=size,
            words=words,
            factors=factors,
            window=axis.window,
            free=axis.free,
        )


def in_words(shape: tuple[Extent, ...]) -> str:
    """A shape as it is printed: `[B batch, 32 q heads, T queries, T keys]`."""
    return "[" + ", ".join(str(extent) for extent in shape) + "]"
