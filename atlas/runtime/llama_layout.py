"""Llama's parameters by Meta's names: which there are, of which shape, for a configuration. Knows no file
format.

A configuration is a dictionary with the names of Meta's `ModelArgs` (dim, n_layers, n_heads, n_kv_heads,
vocab_size, multiple_of, ffn_dim_multiplier if there is one, norm_eps, rope_theta, use_scaled_rope), and
beside them context_length and tied_embeddings.
"""

from __future__ import annotations

import math

Config = dict[str, int | float | bool]

# (multiple_of, ffn_dim_multiplier) as Meta published them, tried in this order, before any other pair.
_PUBLISHED: tuple[tuple[int, float | None], ...] = (
    (256, None),
    (1024, 1.3),
    (4096, 1.3),
    (4096, 1.2),
    (256, 1.5),
    (256, 1.0),
)


def d_mlp(dim: int, multiple_of: int, ffn_dim_multiplier: float | None) -> int:
    """The width of the feed-forward layer: two thirds of 4 dim, times the multiplier, rounded up to a
    multiple.

    Each step truncates as the reference does (`FeedForward.__init__` of llama_models/llama3/model.py).
    """
    width = int(2 * (4 * dim) / 3)
    if ffn_dim_multiplier is not None:
        width = int(ffn_dim_multiplier * width)
    return multiple_of * -(-width // multiple_of)


def feed_forward_rule(dim: int, width: int) -> tuple[int, float | None]:
    """A (multiple_of, ffn_dim_multiplier) with which the reference arrives at `width`.

    Files other than Meta's own state the width alone, and several pairs give the same one: this is *a*
    pair, the first of those that Meta has published, else one made to fit.
    """
    for multiple_of, multiplier in _PUBLISHED:
        if d_mlp(dim, multiple_of, multiplier) == width:
            return multiple_of, multiplier
    multiple_of = math.gcd(width, 256)
    # Half a unit more than the width wanted, so that truncation cannot fall below it.
    return multiple_of, (width + 0.5) / int(2 * (4 * dim) / 3)


def parameter_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Every parameter's shape, in the order of the forward pass. A tied unembedding is not one of its own."""
    dim, heads, kv_heads = int(config["dim"]), int(config["n_heads"]), int(config["n_kv_heads"])
    vocabulary = int(config["vocab_size"])
    multiplier = config.get("ffn_dim_multiplier")
    width = d_mlp(dim, int(config["multiple_of"]), None if multiplier is None else float(multiplier))
    head = dim // heads
    shapes: dict[str, tuple[int, ...]] = {"tok_embeddings.weight": (vocabulary, dim)}
    for layer in range(int(config["n_layers"])):
        block = {
            "attention_norm.weight": (dim,),
            "attention.wq.weight": (heads * head, dim),
            "attention.wk.weight": (kv_heads * head, dim),
            "attention.wv.weight": (kv_heads * head, dim),
            "attention.wo.weight": (dim, heads * head),
            "ffn_norm.weight": (dim,),
            "feed_forward.w1.weight": (width, dim),
            "feed_forward.w3.weight": (width, dim),
            "feed_forward.w2.weight": (dim, width),
        }
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in block.items()}
    shapes["norm.weight"] = (dim,)
    if not config["tied_embeddings"]:
        shapes["output.weight"] = (vocabulary, dim)
    return shapes


def mismatches(expected: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]], limit: int = 4) -> list[str]:
    """What of `found` is missing, extra or misshapen, in words; of each kind the first few by name."""
    missing = [name for name in expected if name not in found]
    extra = [name for name in found if name not in expected]
    misshapen = [
        f"{name} {list(found[name])} (should be {list(shape)})"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    return [
        f"{kind}: {', '.join(names[:limit])}" + (f" and {len(names) - limit} more" if len(names) > limit else "")
        for kind, names in (("missing", missing), ("extra", extra), ("misshapen", misshapen))
        if names
    ]
