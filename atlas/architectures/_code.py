"""How declarations of models in Hugging Face's transformers speak of their code: one modeling file, and its evidence.

Knows the conventions that these files share (names of classes and of weights), and no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from atlas.errors import DeclarationError
from atlas.graph.anchors import Anchor, at
from atlas.graph.axes import Axis
from atlas.graph.evidence import Evidence, SourceRef
from atlas.graph.nodes import Alias, Reference

Config = Mapping[str, int | float | bool | None]
STREAM = ("batch", "positions", "d_model")
SCORES = ("batch", "q_heads", "queries", "keys")
ATTENTION, FEED_FORWARD = "blocks/attention", "blocks/feed-forward"
LIBRARY = "transformers"


def whole(config: Config, name: str, default: int = 0) -> int:
    """A number of the configuration that counts something."""
    value = config.get(name)
    return default if value is None else int(value)


@dataclass(frozen=True)
class Code:
    """The modeling file of one model. Its classes begin with `prefix`; `body` is the one that has the blocks."""

    model: str
    prefix: str
    block: str = "DecoderLayer"
    body: str = "Model"
    head: str = "ForCausalLM"

    @property
    def file(self) -> SourceRef:
        """The modeling file."""
        return SourceRef(source=LIBRARY, path=f"src/transformers/models/{self.model}/modeling_{self.model}.py")

    def at(self, place: str) -> Anchor:
        """A place in one of the model's classes: `Attention.forward` is in `Qwen3Attention`."""
        return at(f"{self.prefix}{place}")

    @property
    def forward(self) -> Anchor:
        """The pass through all blocks."""
        return self.at(f"{self.body}.forward")

    @property
    def built(self) -> Anchor:
        """Where the body is put together."""
        return self.at(f"{self.body}.__init__")

    @property
    def layer(self) -> Anchor:
        """The pass through one block."""
        return self.at(f"{self.block}.forward")

    @property
    def attend(self) -> Anchor:
        """The pass through one block's attention."""
        return self.at("Attention.forward")

    def direct(self, key: str, claim: str, *anchors: Anchor) -> tuple[Evidence, ...]:
        """The cited lines compute the node."""
        return (Evidence(id=key, kind="direct", claim=claim, file=self.file, anchors=anchors),)

    def context(self, key: str, claim: str, *anchors: Anchor) -> tuple[Evidence, ...]:
        """The cited lines surround it."""
        return (Evidence(id=key, kind="contextual", claim=claim, file=self.file, anchors=anchors),)

    def reference(self, arguments: Mapping[str, Any]) -> Reference:
        """The code that runs, with the arguments of its configuration class."""
        return Reference(
            runner="hugging_face",
            file=self.file,
            block=f"{self.prefix}{self.block}",
            forward=f"{self.prefix}{self.body}.forward",
            model=f"{self.prefix}{self.head}",
            arguments={
                name: value
                for name, value in arguments.items()
                if value is not None and not name.endswith("_token_id") and not name.startswith("default_theta")
            },
        )


def library(path: str) -> SourceRef:
    """A file of the library that several models share."""
    return SourceRef(source=LIBRARY, path=f"src/transformers/{path}")


def shared(key: str, claim: str, path: str, *anchors: Anchor) -> tuple[Evidence, ...]:
    """Contextual evidence in a file that several models share."""
    return (Evidence(id=key, kind="contextual", claim=claim, file=library(path), anchors=anchors),)


def names(lens: str = "", hugging_face: str = "", layout: str = "") -> tuple[Alias, ...]:
    """Names of a value in TransformerLens and in Hugging Face's code."""
    found = [Alias(name=lens, of="TransformerLens", layout=layout)] if lens else []
    if hugging_face:
        found.append(Alias(name=hugging_face, of="Hugging Face"))
    return tuple(found)


def weight_names(hugging_face: str, gguf: str = "", lens: str = "", layout: str = "") -> tuple[Alias, ...]:
    """Names of a weight in Hugging Face's checkpoints, GGUF files and TransformerLens."""
    found = [Alias(name=hugging_face, of="Hugging Face")]
    if gguf:
        found.append(Alias(name=gguf, of="GGUF", layout=layout))
    if lens:
        found.append(Alias(name=lens, of="TransformerLens", layout="transposed, one matrix a head"))
    return tuple(found)


def window_axis(size: int) -> Axis:
    """The axis of attended positions of what serves local layers only."""
    return Axis(
        name="window_keys",
        symbol="T",
        words="keys in the window",
        word="key in the window",
        meaning=f"Positions attended to in a local layer: in a decode step no more than {size:,}.",
        running={"full": "T", "prefill": "P", "decode": "T_w"},
        window=size,
    )


def windowed_keys(size: int, everywhere: bool) -> Axis:
    """The axis of attended positions in a model whose cache forgets what has left a window."""
    where = "" if everywhere else " in a local layer"
    return Axis(
        name="keys",
        symbol="T",
        words="keys",
        word="key",
        meaning=(
            f"Positions attended to. In a decode step{where} they are no more than {size:,}: what has left the window is "
            "dropped from the cache."
        ),
        running={"full": "T", "prefill": "P", "decode": "T_w" if everywhere else "T_k"},
    )


def family_sizes(config: Config) -> dict[str, int]:
    """The fixed axes of a decoder with grouped queries, from the names that most configurations share."""
    width, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    kv_heads = whole(config, "num_key_value_heads", heads)
    head_dim = whole(config, "head_dim", width // heads)
    return {
        "layers": whole(config, "num_hidden_layers"),
        "d_model": width,
        "q_heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "pairs": head_dim // 2,
        "q_width": heads * head_dim,
        "kv_width": kv_heads * head_dim,
        "d_mlp": whole(config, "intermediate_size"),
        "vocab": whole(config, "vocab_size"),
        "one": 1,
    }


def theta(config: Config) -> float:
    """The base of the rotary frequencies: the configuration's own, its class's default, or the library's."""
    return float(config.get("rope_theta") or config.get("default_theta") or 10000.0)


def refuse(architecture: str, config: Config, name: str, wanted: object) -> None:
    """Raises `DeclarationError` where a setting asks for code that the declaration does not describe."""
    if config.get(name, wanted) != wanted:
        raise DeclarationError(
            f"{architecture}: {name} is {config[name]}, and only {wanted} is described.",
            "Extend the declaration, or give another configuration.",
        )
