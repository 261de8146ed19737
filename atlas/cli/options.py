"""The settings as options: each field of `Settings` is an option with its variable, its default and its meaning."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin

import click
from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from atlas.errors import BadRequest
from atlas.settings import HUB_ID, CheckpointChoice, Settings


class _Checkpoint(click.ParamType[CheckpointChoice]):
    """`[MODEL=]PATH` of a file or directory that is there, or of what may be on the hub.

    Several in the variable are split as paths are.
    """

    name = "[MODEL=]PATH"
    envvar_list_splitter = os.pathsep

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> CheckpointChoice:
        if isinstance(value, CheckpointChoice):
            return value
        try:
            choice = CheckpointChoice.parse(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        if not choice.path.exists() and not HUB_ID.fullmatch(str(choice.path)):
            self.fail(f"there is no {str(choice.path)!r}.", param, ctx)
        return choice


class ByteCount(click.ParamType[int]):
    """A number of bytes as people write it: `500MB`, `2 GB`, `800kB`, `64MiB`, `1000000`."""

    name = "SIZE"
    units: ClassVar[Mapping[str, int]] = {
        **{"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
        **{"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40},
    }

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", str(value).strip())
        if match is None or match[2].lower() not in self.units:
            self.fail(f"{value!r} is no size; write it as 500MB or 2GB.", param, ctx)
        return int(float(match[1]) * self.units[match[2].lower()])


class _Readable(click.ParamType[str]):
    """A setting as text, which `Settings` itself understands; only its name in the help is made here."""

    envvar_list_splitter = ","

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        return str(value)


def settings_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options for these fields of `Settings`; for all of them if none is named."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names or tuple(Settings.model_fields)):
            function = _option(name)(function)
        return function

    return decorate


def own_option(command: str, *flags: str, **facts: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option of one command, with the variable ATLAS_COMMAND_NAME."""
    name = flags[0].split("/")[0].lstrip("-").replace("-", "_").upper()
    return click.option(*flags, envvar=f"ATLAS_{command.upper()}_{name}", show_envvar=True, **facts)


def settings(given: Mapping[str, Any]) -> Settings:
    """What the command line gives, else the environment, else the defaults. Raises `BadRequest`."""
    chosen = {name: value for name, value in given.items() if value is not None and value != ()}
    try:
        return Settings(**chosen)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "a setting"
        message = first["msg"].removeprefix("Value error, ")
        value = "not fit" if name == "token" else repr(first["input"])  # what may be a secret is not shown
        raise BadRequest(
            f"--{name.replace('_', '-')} (or ATLAS_{name.upper()}) is {value}: {message}.",
            "atlas serve --help lists the settings.",
        ) from error


def _option(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    field = Settings.model_fields[name]
    several = get_origin(field.annotation) is tuple
    default = field.get_default(call_default_factory=True) if field.default is PydanticUndefined else field.default
    flag = field.annotation is bool
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        type=None if flag else _type(name, field.annotation),
        is_flag=flag,
        multiple=several,
        default=None,
        envvar=f"ATLAS_{name.upper()}",
        show_envvar=True,
        help=field.description if several or default in (False, "") else f"{field.description} Default: {default}",
    )


def _type(name: str, annotation: object) -> click.ParamType[Any]:
    """How a setting is written at the command line."""
    if name == "checkpoint":
        return _Checkpoint()
    if get_origin(annotation) is Literal:
        return click.Choice(get_args(annotation))
    kinds = {int: "INTEGER", Path: "PATH"}
    return _Readable(kinds.get(annotation, "TEXT"))  # type: ignore[call-overload]  # a type is a key like any other
