"""Chat templates: a reader's text as one message of a user, in the words that a model was trained to expect.

The template comes with the weights and is rendered as transformers renders it: by Jinja, in its sandbox, as data. What
the template put there and what the reader wrote are told apart, token by token; text that looks like a special token is
one where the template wrote it, and text where the reader did. Knows no file format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from atlas.errors import BadRequest
from atlas.runtime.tokens import Tokenizer

STAND_IN = "\ue000message\ue001"
"""Stands where the message is: private characters, in no template."""
LONGEST = 1 << 20
"""Characters that a template may make."""
REFUSALS = (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""What a template's mistakes become."""


@dataclass(frozen=True)
class Chat:
    """A prompt by a template. `template` are the positions of tokens in which there is nothing of the reader's text."""

    ids: tuple[int, ...]
    template: tuple[int, ...]


def apply_template(tokenizer: Tokenizer, text: str) -> Chat:
    """A text as a user's message, up to where the model's answer begins.

    Raises `BadRequest` for a tokenizer without a template, and for a template that fails or loses the text.
    """
    if not tokenizer.chat_template:
        raise BadRequest(
            "This model's tokenizer has no chat template.", "Leave `chat` out: the text is taken as it is."
        )
    before, message, after = _parts(tokenizer, text)
    rendered, start, stop = before + message + after, len(before), len(before) + len(message)
    special = {tokenizer.label(token): token for token in tokenizer.special_ids}
    ids: list[int] | None = None
    if not any(name in message for name in special):
        ids = tokenizer.encode_marked(rendered)
    if ids is not None:
        pieces = [tokenizer.token_bytes(token) for token in ids]
        if b"".join(pieces) == rendered.encode():
            ours = _owned(pieces, rendered, start, stop)
            return Chat(tuple(ids), tuple(at for at, mine in enumerate(ours) if not mine))
    return _by_runs(tokenizer, special, rendered, start, stop)


def _parts(tokenizer: Tokenizer, text: str) -> tuple[str, str, str]:
    """What the template puts before a message, the message as it shows it, and what it puts after."""
    around = _rendered(tokenizer, STAND_IN).split(STAND_IN)
    if len(around) != 2:
        raise BadRequest(
            f"The chat template shows the message {len(around) - 1} times.", "Write the prompt out without `chat`."
        )
    before, after = around
    rendered = _rendered(tokenizer, text)
    for message in (text, text.strip(), text.lstrip(), text.rstrip()):
        if rendered == before + message + after:
            return before, message, after
    raise BadRequest(
        "The chat template depends on what the message says, so its own words cannot be told apart.",
        "Write the prompt out without `chat`.",
    )


def _by_runs(tokenizer: Tokenizer, special: dict[str, int], rendered: str, start: int, stop: int) -> Chat:
    """Special tokens where the template wrote them, and what is between them as text."""
    ids: list[int] = []
    template: list[int] = []
    names = "|".join(re.escape(name) for name in sorted(special, key=len, reverse=True) if name)
    begun = 0

    def run(end: int) -> None:
        piece = rendered[begun:end]
        if not piece:
            return
        found = tokenizer.encode(piece, add_bos=False)
        texts = [tokenizer.token_bytes(token) for token in found]
        inner = (max(0, start - begun), max(0, min(stop, end) - begun))
        written = b"".join(texts)
        if texts and written == b" " + piece.encode():  # SentencePiece begins with a space of its own
            texts[0] = texts[0][1:]
        elif written != piece.encode():  # another spelling of it: each part by itself, so that none is mistaken
            parts = (piece[: inner[0]], piece[inner[0] : inner[1]], piece[inner[1] :])
            for part, mine in zip(parts, (False, True, False), strict=True):
                for token in tokenizer.encode(part, add_bos=False) if part else ():
                    template.extend([] if mine else [len(ids)])
                    ids.append(token)
            return
        for token, mine in zip(found, _owned(texts, piece, *inner), strict=True):
            template.extend([] if mine else [len(ids)])
            ids.append(token)

    for match in re.finditer(names, rendered) if names else ():
        if match.start() < stop and match.end() > start:
            continue
        run(match.start())
        template.append(len(ids))
        ids.append(special[match[0]])
        begun = match.end()
    run(len(rendered))
    return Chat(tuple(ids), tuple(template))


def _owned(pieces: Sequence[bytes], text: str, start: int, stop: int) -> list[bool]:
    """Of each piece, whether it has a byte of the characters from `start` to `stop`."""
    first, last = len(text[:start].encode()), len(text[:stop].encode())
    found, at = [], 0
    for piece in pieces:
        found.append(at < last and at + len(piece) > first)
        at += len(piece)
    return found


def _rendered(tokenizer: Tokenizer, message: str) -> str:
    """The template's text for one message of a user."""
    names = {"bos_token": tokenizer.bos_id, "eos_token": next(iter(tokenizer.eos_ids), None)}
    marks = {name: "" if token is None else tokenizer.label(token) for name, token in names.items()}
    pieces: list[str] = []
    try:
        for piece in _compiled(tokenizer.chat_template).generate(
            messages=[{"role": "user", "content": message}],
            add_generation_prompt=True,
            tools=None,
            documents=None,
            **marks,
        ):
            pieces.append(piece)
            if sum(map(len, pieces)) > LONGEST + len(message):
                raise ValueError(f"it makes more than {LONGEST:,} characters")
    except REFUSALS as error:
        reason = str(error).strip() or type(error).__name__
        raise BadRequest(
            f"The chat template cannot be used: {reason[:200]}.", "Write the prompt out without `chat`."
        ) from error
    return "".join(pieces)


class _Generation(Extension):
    """`{% generation %}`: what an answer would stand in. It is shown as it is."""

    tags = {"generation"}  # noqa: RUF012 - as the base class has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refused
    environment.globals["strftime_now"] = _today
    return environment.from_string(template)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _refused(message: str) -> NoReturn:
    raise TemplateError(message)


def _today(form: str) -> str:
    return datetime.now().strftime(form)
