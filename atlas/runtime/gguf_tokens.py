"""The tokenizer that a GGUF file describes: byte-level BPE, or SentencePiece, of which transformers makes a
`tokenizer.json`, which is kept, so that it is needed once.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from atlas.errors import CheckpointError
from atlas.runtime.gguf_facts import Facts, shown
from atlas.runtime.tokenizer_json import WrittenTokenizer
from atlas.runtime.tokens import PreTokenizer, Vocabulary

MAPPING = "transformers.integrations.gguf.gguf_tokenizer_mapping"
_ORDINARY, _UNKNOWN, _CONTROL, _LITERAL, _UNUSED = 1, 2, 3, 4, 5  # tokenizer.ggml.token_type
_PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    **{"smollm": "smollm", "gpt-2": "gpt-2", "default": "gpt-2", "llama-bpe": "llama-bpe"},
    **{"llama3": "llama-bpe", "llama-v3": "llama-bpe"},
}
BYTE_LEVEL, SENTENCEPIECE = "gpt2", "llama"
"""Kinds of tokenizers, as tokenizer.ggml.model names them."""


def tokenizer_of(facts: Facts, size: int) -> Vocabulary | WrittenTokenizer:
    """The tokenizer of a model with `size` rows in its embedding. Raises CheckpointError for one that is not known."""
    kind, pre = (
        facts.file.metadata.get("tokenizer.ggml.model"),
        facts.file.metadata.get("tokenizer.ggml.pre", "default"),
    )
    if kind not in (BYTE_LEVEL, SENTENCEPIECE):
        known = f"byte-level BPE ({BYTE_LEVEL}) and SentencePiece ({SENTENCEPIECE}) are read"
        facts.refuse(f"its tokenizer is of the kind {shown(kind)}, and only {known}")
    if kind == SENTENCEPIECE:
        return _sentencepiece(facts, size)
    own = _PRE_TOKENIZERS.get(pre) if isinstance(pre, str) else None
    if own is not None:
        return byte_level(facts, size, own)
    splits: Mapping[str, str] = importlib.import_module(MAPPING).GGUF_PRE_TOKENIZER_SPLITS
    if not isinstance(pre, str) or pre not in splits:
        facts.refuse(f"its pre-tokenizer {shown(pre)} is none of {', '.join(sorted({*_PRE_TOKENIZERS, *splits}))}")
    return byte_level(facts, size, pre, splits[pre])


def tokens_of(facts: Facts, size: int) -> tuple[list[str], list[Any]]:
    """All tokens as they are written, and the kind of each."""
    tokens = facts.strings("tokenizer.ggml.tokens")
    kinds = facts.file.metadata.get("tokenizer.ggml.token_type", [_ORDINARY] * size)
    if len(tokens) != size or not isinstance(kinds, list) or len(kinds) != size:
        facts.refuse(f"it has {len(tokens):,} tokens with their kinds, and embeds {size:,}")
    return tokens, kinds


def ends(facts: Facts, size: int) -> tuple[int, ...]:
    """The tokens at which generation ends."""
    found = [facts.token(f"tokenizer.ggml.{name}_token_id", size) for name in ("eos", "eot", "eom")]
    return tuple(dict.fromkeys(end for end in found if end is not None))


def template(facts: Facts) -> str:
    """The chat template; empty where the file has none."""
    stated = facts.file.metadata.get("tokenizer.chat_template", "")
    return stated if isinstance(stated, str) else ""


def byte_level(facts: Facts, size: int, pre_tokenizer: str, split: str = "") -> Vocabulary:
    """A byte-level BPE vocabulary."""
    metadata = facts.file.metadata
    tokens, kinds = tokens_of(facts, size)
    add_bos = metadata.get("tokenizer.ggml.add_bos_token", pre_tokenizer == "llama-bpe")
    return Vocabulary.model_validate(
        {
            "pre_tokenizer": pre_tokenizer,
            "split": split,
            "tokens": tokens,
            "merges": facts.strings("tokenizer.ggml.merges"),
            "special": {at for at, kind in enumerate(kinds) if kind in (_UNKNOWN, _CONTROL, _UNUSED)},
            "literal": {at for at, kind in enumerate(kinds) if kind == _LITERAL},
            "bos_id": facts.token("tokenizer.ggml.bos_token_id", size),
            "eos_ids": ends(facts, size),
            "add_bos": bool(add_bos),
            "chat_template": template(facts),
        }
    )


def _sentencepiece(facts: Facts, size: int) -> WrittenTokenizer:
    mapping: Any = importlib.import_module(MAPPING)
    tokens, kinds = tokens_of(facts, size)
    metadata = facts.file.metadata
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != size:
        facts.refuse(f"it has no score for each of its {size:,} tokens")
    stated: dict[str, Any] = {"tokenizer_type": SENTENCEPIECE, "tokens": tokens, "token_type": kinds, "scores": scores}
    if "tokenizer.ggml.merges" in metadata:
        stated["merges"] = facts.strings("tokenizer.ggml.merges")
    try:
        library, _ = mapping.convert_gguf_tokenizer(str(metadata.get("general.architecture")), stated)
        written = library.to_str()
    except Exception as error:
        raise CheckpointError(
            f"The tokenizer of {facts.path} cannot be made: {error}.", "Choose another file of the same model."
        ) from error
    bos, end = facts.token("tokenizer.ggml.bos_token_id", size), ends(facts, size)
    settings: dict[str, Any] = {
        "bos_token": None if bos is None else tokens[bos],
        "eos_token": tokens[end[0]] if end else None,
        "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", True)),
    }
    if template(facts):
        settings["chat_template"] = template(facts)
    return WrittenTokenizer(json=written, settings=settings, eos_ids=end)
