from __future__ import annotations

import base64
import itertools
from collections.abc import Sequence
from pathlib import Path

import llama_models
import pytest
import regex
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_models.llama3.tokenizer import Tokenizer as Reference

from atlas.errors import BadRequest, CheckpointError
from atlas.runtime.checkpoints import Checkpoint
from atlas.runtime.tokens import ByteLevelBpe, MetaTokenizer, Tokenizer, Vocabulary

from .conftest import GPT2_BYTES

MODEL_FILE = Path(llama_models.__file__).parent / "llama3" / "tokenizer.model"
TEXTS = [
    "The capital of France is",
    "  two  spaces\t\ttabs\n\n\nlines \r\n end ",
    "It's 1234567.89 or 10²³; I'll say they're we've don't.",
    "Größe, naïve, Čeština, Việt Nam, İstanbul",
    "Привет, мир! Γειά σου Κόσμε",
    "你好，世界。こんにちは世界 안녕하세요",
    "مرحبا بالعالم שלום עולם नमस्ते दुनिया สวัสดีชาวโลก",
    "👩‍👩‍👧‍👦 🇨🇭 🏴‍☠️ e\u0301 \u200b\ufeff",
    "def f(x):\n    return x**2  # ≤ 3\n<|im_start|>user\n<|endoftext|>",
    "١٢٣ ½ Ⅷ ㊿",
    "",
]


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    return checkpoint.tokenizer


@pytest.fixture(scope="module")
def meta() -> MetaTokenizer:
    return MetaTokenizer(MODEL_FILE)


@pytest.fixture(scope="module")
def vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    path = next(path for path in checkpoint.files if path.name == "vocabulary.json")
    return Vocabulary.model_validate_json(path.read_bytes())


# --- the default checkpoint's


def test_the_defaults_settings(tokenizer: Tokenizer) -> None:
    assert tokenizer.name == "byte-level BPE (smollm)"
    assert tokenizer.vocab_size == 49152
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (1, (2,))
    assert tokenizer.special_ids == set(range(17))
    assert not tokenizer.add_bos_default


def test_known_ids(tokenizer: Tokenizer) -> None:
    ids = [504, 3575, 282, 4649, 314]
    assert tokenizer.encode("The capital of France is") == ids
    assert tokenizer.encode("The capital of France is", add_bos=True) == [1, *ids]
    assert tokenizer.encode("The capital of France is", add_bos=False) == ids
    assert tokenizer.pieces(ids) == ["The", " capital", " of", " France", " is"]


@pytest.mark.parametrize("text", TEXTS)
def test_agrees_with_plain_python(tokenizer: Tokenizer, vocabulary: Vocabulary, text: str) -> None:
    """Against the merge rule written out: the pair of lowest rank first, in each word of GPT-2's pattern."""
    cut = regex.compile(r"\p{N}|'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    byte_order = sorted(GPT2_BYTES, key=ord)
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = dict(zip([*visible, *(byte for byte in range(256) if byte not in visible)], byte_order, strict=True))
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(vocabulary.merges)}
    ids = {token: at for at, token in enumerate(vocabulary.tokens)}
    expected: list[int] = []
    digits_apart = [part for part in regex.split(r"(\p{N})", text) if part]
    for word in (word for part in digits_apart for word in cut.findall(part)):
        parts = [alphabet[byte] for byte in word.encode()]
        while pairs := [pair for pair in itertools.pairwise(parts) if pair in ranks]:
            best = min(pairs, key=lambda pair: ranks[pair])
            at = next(at for at in range(len(parts)) if tuple(parts[at : at + 2]) == best)
            parts[at : at + 2] = ["".join(best)]
        expected += [ids[part] for part in parts]
    assert tokenizer.encode(text) == expected


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(tokenizer: Tokenizer, meta: MetaTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert meta.decode(meta.encode(text, add_bos=False)) == text


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8", max_codepoint=0x2FFFF, exclude_categories=["Cc", "Cs"])))
def test_round_trip_of_any_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not tokenizer.special_ids.intersection(ids)


def test_text_that_looks_special_is_text(tokenizer: Tokenizer, meta: MetaTokenizer) -> None:
    assert not tokenizer.special_ids.intersection(tokenizer.encode("<|im_end|><|endoftext|><file_sep>"))
    assert not meta.special_ids.intersection(meta.encode("<|eot_id|><|end_of_text|>", add_bos=False))
    assert tokenizer.decode([2, 504]) == "<|im_end|>The"
    assert meta.decode([128009]) == "<|eot_id|>"


@given(st.lists(st.integers(0, 49151), max_size=30))
def test_pieces_join_to_the_text(tokenizer: Tokenizer, ids: list[int]) -> None:
    pieces = tokenizer.pieces(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == tokenizer.decode(ids)


def test_a_character_belongs_to_the_token_that_completes_it(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a🏴b")
    pieces = tokenizer.pieces(ids)
    assert "".join(pieces) == "a🏴b"
    assert "" in pieces
    at = pieces.index("")
    assert tokenizer.label(ids[at]).startswith("<0xF0>")
    assert tokenizer.pieces(ids[: at + 1])[-1] == "\ufffd"
    assert tokenizer.label(504) == "The"


@pytest.mark.parametrize("token", [-1, 49152])
def test_refuses_an_unknown_id(tokenizer: Tokenizer, token: int) -> None:
    for call in (tokenizer.decode, tokenizer.pieces):
        with pytest.raises(BadRequest, match=f"no token {token}") as raised:
            call([504, token])
        assert "0 to 49,151" in raised.value.hint


def test_refuses_what_it_cannot_write(tokenizer: Tokenizer) -> None:
    with pytest.raises(BadRequest, match=r"Character 3, U\+0004"):
        tokenizer.encode("ab\x04")
    with pytest.raises(BadRequest, match="half of a surrogate pair"):
        tokenizer.encode("ab\ud83d")


# --- other vocabularies


def small(**changes: object) -> Vocabulary:
    return Vocabulary.model_validate(
        {
            "pre_tokenizer": "gpt-2",
            "tokens": [*GPT2_BYTES, "ab", "<|x|>", "«»"],
            "merges": ["a b"],
            "special": {257},
            "literal": {258},
            "bos_id": None,
            "eos_ids": (257,),
            "add_bos": False,
        }
        | changes
    )


def test_literal_tokens_are_found_in_text() -> None:
    tokenizer = ByteLevelBpe(small())
    ids = tokenizer.encode("ab«»ab<|x|>")
    assert ids[:3] == [256, 258, 256]
    assert 257 not in ids
    assert tokenizer.decode(ids) == "ab«»ab<|x|>"
    with pytest.raises(BadRequest, match="no BOS token"):
        tokenizer.encode("ab", add_bos=True)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"merges": ["a b", "b c"]}, "the merge 'b c'"),
        ({"merges": ["ab"]}, "the merge 'ab'"),
        ({"tokens": [*GPT2_BYTES, "a", "<|x|>", "«»"]}, "stands in it twice"),
        ({"tokens": [*GPT2_BYTES, "a b", "<|x|>", "«»"]}, "holds ' ', which stands for no byte"),
        ({"bos_id": 259}, "names the token 259, and has 259"),
        ({"special": {-1}}, "names the token -1"),
    ],
)
def test_refuses_a_vocabulary_that_contradicts_itself(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        ByteLevelBpe(small(**changes))


def test_llama_3_vocabulary_agrees_with_tiktoken() -> None:
    """The start of Llama 3's ranks, as a GGUF file would hold it, against tiktoken with the same ranks."""
    lines = MODEL_FILE.read_bytes().splitlines()[:4000]
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    written = dict(zip([*range(33, 127), *range(161, 173), *range(174, 256)], GPT2_BYTES, strict=False))
    written |= dict(zip([byte for byte in range(256) if byte not in written], GPT2_BYTES[188:], strict=True))

    def spell(data: bytes) -> str:
        return "".join(written[byte] for byte in data)

    def last_merge(token: bytes) -> Sequence[bytes]:
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 2:
            best = min(range(len(parts) - 1), key=lambda at: ranks.get(parts[at] + parts[at + 1], 1 << 30))
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        return parts

    tokenizer = ByteLevelBpe(
        Vocabulary(
            pre_tokenizer="llama-bpe",
            tokens=[spell(token) for token in ranks],
            merges=[" ".join(map(spell, last_merge(token))) for token in ranks if len(token) > 1],
            special=frozenset(),
            literal=frozenset(),
            bos_id=None,
            eos_ids=(),
            add_bos=False,
        )
    )
    plain = tiktoken.Encoding("start", pat_str=Reference.pat_str, mergeable_ranks=ranks, special_tokens={})
    for text in TEXTS:
        assert tokenizer.encode(text) == plain.encode(text, disallowed_special=())


# --- Meta's tokenizer.model


def test_metas_settings(meta: MetaTokenizer) -> None:
    assert meta.vocab_size == 128256
    assert (meta.bos_id, set(meta.eos_ids)) == (128000, {128001, 128008, 128009})
    assert len(meta.special_ids) == 256
    assert meta.add_bos_default
    assert meta.encode("The capital of France is") == [128000, 791, 6864, 315, 9822, 374]
    assert meta.encode("The", add_bos=False) == [791]
    assert meta.pieces([128000, 791, 6864]) == ["<|begin_of_text|>", "The", " capital"]
    with pytest.raises(BadRequest, match="no token 128256"):
        meta.decode([128256])


def test_refuses_another_file_for_tokenizer_model(tmp_path: Path) -> None:
    lines = MODEL_FILE.read_bytes().splitlines(keepends=True)
    path = tmp_path / "tokenizer.model"
    for content, reason in [
        (b"\x00\xff" * 100, "not a tokenizer.model"),
        (b"".join(lines[:300])[:-7], "not a tokenizer.model"),
        (b"".join(lines[1:300]), "each rank once"),
        (b"".join([*lines[:300], lines[5]]), "each rank once"),
        (b"".join(lines[:200]), "lacks 56 of the 256 bytes"),
    ]:
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=reason):
            MetaTokenizer(path)
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        MetaTokenizer(path)
