"""The tokenizer of a Hugging Face directory: `tokenizer.json`, read by the `tokenizers` library.

What a token is in bytes follows from the file's own decoder: GPT-2's alphabet of one character a byte, or pieces as
SentencePiece has them, with `▁` for a space and `<0xE2>` for a byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from atlas.errors import CheckpointError
from atlas.runtime.tokens import Tokenizer, byte_alphabet

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"


@dataclass(frozen=True)
class WrittenTokenizer:
    """The two files of a tokenizer before they are written: `json`, and `settings` beside it."""

    json: str
    settings: dict[str, Any]
    eos_ids: tuple[int, ...]


def require_tokenizer(directory: Path) -> None:
    """Raises CheckpointError for a directory without one."""
    if not (directory / TOKENIZER).is_file():
        raise CheckpointError(
            f"{directory} has no {TOKENIZER}, so no text can be turned into tokens.",
            f"Put the {TOKENIZER} of the same model into it.",
        )


class TokenizerJson(Tokenizer):
    """`tokenizer.json` of a directory. `size` is the model's vocabulary, which may have ids that no token uses."""

    def __init__(self, directory: Path, size: int, eos_ids: tuple[int, ...]) -> None:
        """Raises CheckpointError if the file is missing, cannot be read, or has ids beyond the vocabulary."""
        path = directory / TOKENIZER
        require_tokenizer(directory)
        try:
            raw = json.loads(path.read_text("utf-8"))
            self._library = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            raise CheckpointError(f"{path} cannot be read: {error}.", "Download it again.") from error
        self._library.encode_special_tokens = True  # what a person types is text
        self.name = f"tokenizer.json ({self._library.model.__class__.__name__})"
        known = self._library.get_vocab_size(with_added_tokens=True)
        if known > size:
            raise CheckpointError(
                f"{path} has {known:,} tokens, and the model knows {size:,}.", "Use the tokenizer of the same model."
            )
        self.vocab_size = size
        added: Mapping[int, Any] = self._library.get_added_tokens_decoder()
        self._written = {token: entry.content for token, entry in added.items()}
        self.special_ids = frozenset(token for token, entry in added.items() if entry.special)
        settings = _read(directory / SETTINGS)
        self.bos_id = self._id(settings.get("bos_token"))
        own = self._id(settings.get("eos_token"))
        self.eos_ids = eos_ids or (() if own is None else (own,))
        self.add_bos_default = bool(settings.get("add_bos_token", self._begins_with_bos()))
        self.chat_template = _template(directory, settings)
        self._alphabet = {character: byte for byte, character in enumerate(byte_alphabet())}
        self._byte_level = "ByteLevel" in set(_types(raw.get("decoder")))
        self.prefix_space = self.decode(self._encode("a")) == " a"

    def _begins_with_bos(self) -> bool:
        ids: list[int] = self._library.encode("a", add_special_tokens=True).ids
        return self.bos_id is not None and ids[:1] == [self.bos_id]

    def _id(self, token: object) -> int | None:
        content = token.get("content") if isinstance(token, dict) else token
        found: int | None = self._library.token_to_id(content) if isinstance(content, str) else None
        return found

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._library.encode(text, add_special_tokens=False).ids
        return ids

    def encode_marked(self, text: str) -> list[int]:
        ids: list[int] = self._marked.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def _marked(self) -> tokenizers.Tokenizer:
        """The same tokenizer, which takes names of special tokens for those."""
        return tokenizers.Tokenizer.from_str(self._library.to_str())

    def _bytes(self, token: int) -> bytes:
        written = self._written.get(token)
        if written is not None:
            return str(written).encode()
        piece: str | None = self._library.id_to_token(token)
        if piece is None:
            return f"<|unused-{token}|>".encode()
        if self._byte_level and all(character in self._alphabet for character in piece):
            return bytes(self._alphabet[character] for character in piece)
        if byte := _BYTE.fullmatch(piece):
            return bytes([int(byte[1], 16)])
        return piece.replace("▁", " ").encode()


def _types(decoder: object) -> Iterator[str]:
    if isinstance(decoder, dict):
        yield str(decoder.get("type"))
        for inner in decoder.get("decoders", ()):
            yield from _types(inner)


def _template(directory: Path, settings: Mapping[str, Any]) -> str:
    """The chat template: a file of its own, or in the settings; of several the one called default."""
    try:
        return (directory / "chat_template.jinja").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        stated = settings.get("chat_template", "")
    if isinstance(stated, list):
        named = {one.get("name"): one.get("template") for one in stated if isinstance(one, dict)}
        stated = named.get("default", "")
    return stated if isinstance(stated, str) else ""


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.", "Download it again.") from error
    return found if isinstance(found, dict) else {}
