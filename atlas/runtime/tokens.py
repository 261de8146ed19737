"""Text to token ids and back: the tokenizers of checkpoints, whatever library does the work.

What is common to all of them is here: a token is a string of bytes, and a text is the bytes of its tokens.
Knows no file format; a checkpoint's reader hands over a `Vocabulary`, or the path of Meta's
tokenizer.model.

Text that looks like a special token ("<|im_end|>") is *not* read as one: what a person types is text.
Special tokens enter as ids, and are shown by their names.
"""

from __future__ import annotations

import base64
import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, get_args

import tokenizers
from pydantic import BaseModel, ConfigDict
from tokenizers import models, pre_tokenizers

from atlas.errors import BadRequest, CheckpointError

PreTokenizer = Literal["smollm", "gpt-2", "llama-bpe"]
"""How a text is cut before pairs of bytes are merged, by llama.cpp's names."""

PRE_TOKENIZERS: tuple[PreTokenizer, ...] = get_args(PreTokenizer)
_LARGEST_MODEL_FILE = 64 << 20


class Tokenizer(ABC):
    """A checkpoint's tokenizer.

    `eos_ids` are the tokens at which generation ends, `special_ids` all tokens that no text can produce;
    `add_bos_default` is what the tokenizer's own settings say of the token at a text's beginning. `chat_template` is in
    Jinja; empty where there is none. `prefix_space`: a text that begins with none gets a space, as SentencePiece does.
    """

    name: str
    vocab_size: int
    bos_id: int | None
    eos_ids: tuple[int, ...]
    special_ids: frozenset[int]
    add_bos_default: bool
    chat_template: str = ""
    prefix_space: bool = False

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]:
        """The ids of a text; `add_bos` None: as the tokenizer's own settings say.

        Raises BadRequest if the text holds half of a surrogate pair, or there is no BOS token to add.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadRequest(
                f"The character at {error.start} of the prompt is half of a surrogate pair.", "Remove it."
            ) from error
        if not (self.add_bos_default if add_bos is None else add_bos):
            return self._encode(text)
        if self.bos_id is None:
            raise BadRequest("This tokenizer has no BOS token.", "Leave add_bos out, or make it false.")
        return [self.bos_id, *self._encode(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the tokens; bytes that are not UTF-8 become U+FFFD. Raises BadRequest for an unknown
        id.
        """
        return b"".join(map(self.token_bytes, ids)).decode(errors="replace")

    def written(self, ids: Sequence[int]) -> str:
        """What a person wrote to get these tokens: without BOS, and without the space that was put before it."""
        ids = ids[1:] if ids and ids[0] == self.bos_id else ids
        text = self.decode(ids)
        return text[1:] if self.prefix_space and text.startswith(" ") else text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text that each token adds: joined, they are `decode(ids)`.

        A character whose bytes are spread over several tokens belongs to the token that completes it; those
        before it add "". Bytes that no token completes become U+FFFD as in `decode`.
        """
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        last = len(ids) - 1
        return [decoder.decode(self.token_bytes(token), at == last) for at, token in enumerate(ids)]

    def label(self, token: int) -> str:
        """The text of one token by itself, for showing: bytes that are no character stand as <0xE2>."""
        return self.token_bytes(token).decode(errors="atlas-hexadecimal")

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token; a special token's are those of its name. Raises BadRequest for an unknown
        id.
        """
        if not 0 <= token < self.vocab_size:
            raise BadRequest(
                f"There is no token {token}.", f"This vocabulary's ids run from 0 to {self.vocab_size - 1:,}."
            )
        return self._bytes(token)

    def encode_marked(self, text: str) -> list[int] | None:  # noqa: ARG002
        """The ids of a text in which names of special tokens are those tokens; None where only text can be encoded."""
        return None

    @abstractmethod
    def _encode(self, text: str) -> list[int]:
        """The ids of a text that can be encoded as UTF-8, without BOS."""

    @abstractmethod
    def _bytes(self, token: int) -> bytes:
        """The bytes of a token whose id is in range."""


class Vocabulary(BaseModel):
    """Everything that makes a byte-level BPE tokenizer, as a checkpoint's reader finds it and as it is
    cached.

    Tokens and merges are written in GPT-2's alphabet (one printable character for each byte); `special`
    tokens are written as they are, and so are `literal` ones: tokens that a text produces wherever it holds
    their string. `split` is the expression by which a text is cut where that is none of the known ways; then
    `pre_tokenizer` only names it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pre_tokenizer: str
    split: str = ""
    tokens: list[str]
    merges: list[str]
    special: frozenset[int]
    literal: frozenset[int]
    bos_id: int | None
    eos_ids: tuple[int, ...]
    add_bos: bool
    chat_template: str = ""


class ByteLevelBpe(Tokenizer):
    """A byte-level BPE tokenizer of a vocabulary, by the `tokenizers` library.

    Special tokens are kept out of the vocabulary that the library sees, so no text can produce one. A
    vocabulary may lack some bytes (SmolLM2's lacks 0x04, for one): the library would drop them without a
    word, so a text that holds one is refused. Raises CheckpointError if the vocabulary contradicts itself.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.name = f"byte-level BPE ({vocabulary.pre_tokenizer})"
        self.vocab_size = len(vocabulary.tokens)
        self.bos_id = vocabulary.bos_id
        self.eos_ids = vocabulary.eos_ids
        self.special_ids = vocabulary.special
        self.add_bos_default = vocabulary.add_bos
        self.chat_template = vocabulary.chat_template
        self._tokens = vocabulary.tokens
        self._as_written = vocabulary.special | vocabulary.literal
        ids = {token: at for at, token in enumerate(vocabulary.tokens) if at not in vocabulary.special}
        merges = _checked(vocabulary, ids)
        self._writable = bytes(byte for character, byte in _ALPHABET.items() if character in ids)
        # These vocabularies come from tiktoken, which takes a word that is itself a token whole.
        model = models.BPE(vocab=ids, merges=merges, ignore_merges=vocabulary.pre_tokenizer in ("llama-bpe", "tekken"))
        self._library = tokenizers.Tokenizer(model)
        self._library.pre_tokenizer = _pre_tokenizer(vocabulary)
        self._library.add_tokens(
            [tokenizers.AddedToken(vocabulary.tokens[at], normalized=False) for at in sorted(vocabulary.literal)]
        )

    def _encode(self, text: str) -> list[int]:
        if lost := text.encode().translate(None, self._writable):
            at, character = next((at, one) for at, one in enumerate(text) if lost[0] in one.encode())
            raise BadRequest(
                f"Character {at + 1:,}, U+{ord(character):04X}, cannot be written in this vocabulary.",
                f"There is no token for its byte 0x{lost[0]:02X}: remove the character.",
            )
        ids: list[int] = self._library.encode(text, add_special_tokens=False).ids
        return ids

    def _bytes(self, token: int) -> bytes:
        written = self._tokens[token]
        if token in self._as_written:
            return written.encode()
        return bytes(_ALPHABET[character] for character in written)


class MetaTokenizer(Tokenizer):
    """Llama 3's tokenizer from a tokenizer.model in Meta's format, by the class in llama-models, unmodified.

    Raises CheckpointError if the file cannot be read, is too large, or does not hold every byte and rank
    once.
    """

    add_bos_default = True  # Meta's own generation code begins every text with it.
    chat_template = (
        "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
        "{{ message.content | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    )
    """What Meta's `ChatFormat` does (llama_models/llama3/chat_format.py), in Jinja."""

    def __init__(self, path: Path) -> None:
        _check_ranks(path)
        from llama_models.llama3.tokenizer import Tokenizer as Reference  # few checkpoints need it

        reference = Reference(path)
        self.name = "tiktoken (Llama 3)"
        self.vocab_size = reference.n_words
        self.bos_id = reference.bos_id
        self.eos_ids = tuple(reference.stop_tokens)
        self.special_ids = frozenset(reference.special_tokens.values())
        self._encode_text: Callable[[str], list[int]] = lambda text: reference.encode(text, bos=False, eos=False)
        self._token_bytes: Callable[[int], bytes] = reference.model.decode_single_token_bytes

    def _encode(self, text: str) -> list[int]:
        return self._encode_text(text)

    def _bytes(self, token: int) -> bytes:
        return self._token_bytes(token)


def _gpt2_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: the byte that each character stands for.

    A byte that is a visible character of Latin-1 is written as it; the others, in order, as those from
    U+0100 on.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


_ALPHABET = _gpt2_alphabet()


def byte_alphabet() -> list[str]:
    """GPT-2's characters for the bytes 0 to 255, in that order."""
    return sorted(_ALPHABET, key=_ALPHABET.__getitem__)


def _checked(vocabulary: Vocabulary, ids: dict[str, int]) -> list[tuple[str, str]]:
    """The merges as pairs. Refuses what the library would panic at, and what would fail only at some later
    text.
    """
    size = len(vocabulary.tokens)
    named = [*vocabulary.eos_ids, *vocabulary.special, *vocabulary.literal]
    if vocabulary.bos_id is not None:
        named.append(vocabulary.bos_id)
    if wrong := [one for one in named if not 0 <= one < size]:
        raise _contradiction(f"it names the token {wrong[0]}, and has {size:,}")
    if len(ids) + len(vocabulary.special) != size:
        raise _contradiction("a token stands in it twice")
    ordinary = set().union(*(token for token, at in ids.items() if at not in vocabulary.literal))
    if foreign := ordinary - _ALPHABET.keys():
        raise _contradiction(f"a token holds {min(foreign)!r}, which stands for no byte")
    merges: list[tuple[str, str]] = []
    for merge in vocabulary.merges:
        left, _, right = merge.partition(" ")
        if not (left in ids and right in ids and left + right in ids):
            raise _contradiction(f"the merge {merge!r} is not of two tokens to a third")
        merges.append((left, right))
    return merges


def _pre_tokenizer(vocabulary: Vocabulary) -> pre_tokenizers.PreTokenizer:
    name = vocabulary.pre_tokenizer
    whole = bool(vocabulary.split) or name == "llama-bpe"
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not whole)
    if vocabulary.split:
        cut = pre_tokenizers.Split(tokenizers.Regex(vocabulary.split), behavior="isolated")
        return pre_tokenizers.Sequence([cut, byte_level])
    match name:
        case "gpt-2":
            return byte_level
        case "smollm":
            return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
        case "llama-bpe":
            from llama_models.llama3.tokenizer import Tokenizer as Reference

            cut = pre_tokenizers.Split(tokenizers.Regex(Reference.pat_str), behavior="isolated")
            return pre_tokenizers.Sequence([cut, byte_level])
    raise _contradiction(f"its pre-tokenizer {name!r} is none of {', '.join(PRE_TOKENIZERS)}")


def _check_ranks(path: Path) -> None:
    """Refuses a tokenizer.model that Meta's class would read in part, or that tiktoken would panic at."""
    hint = "Download tokenizer.model again: it belongs beside the weights."
    try:
        if path.stat().st_size > _LARGEST_MODEL_FILE:
            raise CheckpointError(f"{path} is too large for a tokenizer.model.", hint)
        lines = [line.split() for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.", hint) from error
    try:
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
    except ValueError as error:
        raise CheckpointError(f"{path} is not a tokenizer.model in Meta's format.", hint) from error
    if len(ranks) != len(lines) or sorted(ranks.values()) != list(range(len(lines))):
        raise CheckpointError(f"{path} does not hold each token and each rank once.", hint)
    if missing := sum(bytes([byte]) not in ranks for byte in range(256)):
        raise CheckpointError(f"{path} lacks {missing} of the 256 bytes.", hint)


def _contradiction(what: str) -> CheckpointError:
    return CheckpointError(f"The checkpoint's vocabulary contradicts itself: {what}.", "Download the file again.")


def _hexadecimal(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"<0x{byte:02X}>" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("atlas-hexadecimal", _hexadecimal)
