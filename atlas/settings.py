"""What can be configured, once: each field is an option of the command line and an ATLAS_ variable.

Knows no other room. Sizes are in tokens or bytes, times in seconds, as each field says.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

FILES = (".gguf", ".safetensors", ".pth", ".atlas")
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*(@[\w./-]+)?", re.ASCII)
MODEL_ID = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


class CheckpointChoice(BaseModel):
    """A reader's own weights: where they are, and the catalogue id of the model that they are for, old or new.

    A `path` that is not there may be the name of a model on the hub, `OWNER/NAME` or `OWNER/NAME@REVISION`.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    path: Path

    @classmethod
    def parse(cls, text: str) -> Self:
        """`MODEL=PATH`, or a path alone: then the id is made of the file's name. Raises ValueError.

        What stands before `=` is part of the path if it holds a `/`.
        """
        model, equals, path = text.partition("=")
        if not equals or "/" in model:
            # `.` ends what comes before a file's kind, and belongs to the names of directories and repositories.
            name = Path(text).stem if Path(text).suffix.lower() in FILES else Path(text).name.partition("@")[0]
            model, path = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"), text
        if not path:
            raise ValueError(f"{text!r} names no file; write MODEL=PATH or PATH")
        if not MODEL_ID.fullmatch(model):
            raise ValueError(f"{model!r} is no model id; write lower-case letters and digits, joined by `-` or `.`")
        return cls(model=model, path=Path(path).expanduser())


def default_data_dir() -> Path:
    """The user's cache: XDG_CACHE_HOME or ~/.cache, and `openmodelatlas` in it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "openmodelatlas"


class Settings(BaseSettings):
    """Read from the environment; the command line overrides."""

    model_config = SettingsConfigDict(env_prefix="ATLAS_", extra="ignore")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    data_dir: Path = Field(default_factory=default_data_dir, description="Where weights, sources and runs are kept.")
    max_prompt_tokens: int = Field(2048, ge=1, description="Longest prompt, in tokens.")
    max_new_tokens: int = Field(256, ge=1, description="Most tokens generated in one run.")
    token: str = Field(
        "", description="Let in only who gives this secret: as a bearer token, or once as ?token= in an address."
    )
    public: bool = Field(False, description="Let everybody read recorded runs; start none without the token.")
    allowed_host: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Another name under which browsers may find this server. Several in the variable: commas."
    )
    trusted_proxy: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Address or network of a proxy whose X-Forwarded-For and -Proto are believed. As above."
    )
    max_body_bytes: int = Field(1 << 20, ge=1024, description="Largest request body, in bytes.")
    max_bundle_bytes: int = Field(1 << 30, ge=1024, description="Largest bundle of a recorded run, in bytes.")
    max_response_bytes: int = Field(256 << 20, ge=1024, description="Largest tensor answer, in bytes.")
    max_queue: int = Field(32, ge=1, description="Most runs waiting at once.")
    max_runs_per_client: int = Field(8, ge=1, description="Most unfinished runs of one client.")
    max_streams: int = Field(256, ge=1, description="Most event streams open at once.")
    max_streams_per_client: int = Field(16, ge=1, description="Most event streams of one client.")
    requests_per_minute: int = Field(6000, ge=0, description="Most requests of one client in a minute; 0: no limit.")
    request_seconds: int = Field(120, ge=1, description="Longest that an answer may take to begin, in seconds.")
    drain_seconds: int = Field(5, ge=0, description="Longest that work under way may go on when told to stop.")
    rank_seconds: int = Field(
        10, ge=2, description="Longest that a rank of a split model may be silent before it counts as lost, in seconds."
    )
    memory_budget: int = Field(2 << 30, ge=1 << 20, description="Memory of all live runs together, in bytes.")
    checkpoint: Annotated[tuple[CheckpointChoice, ...], NoDecode] = Field(
        (),
        description="Weights of your own, as [MODEL=]PATH: a GGUF file, a directory, or OWNER/NAME of the hub. "
        f"Several in the variable are joined by {os.pathsep!r}.",
    )
    untrained: bool = Field(
        False,
        description="Run architectures without weights here too: small and with random ones, which each page says.",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Numbers that models run in; bfloat16 takes half the memory, and is less exact."
    )
    device: Literal["auto", "cuda", "mps", "cpu"] = Field(
        "auto", description="What computes; auto takes CUDA or MPS where torch finds it, else the processor."
    )
    threads: int = Field(0, ge=0, description="Threads of torch; 0 leaves the choice to torch.")
    no_recheck: bool = Field(
        False, description="Neither check models that no record speaks of beside the server, nor draw ahead there."
    )
    weights_in_memory: int = Field(
        4 << 30, ge=0, description="Weights up to so many bytes are read into memory; larger ones stay in their file."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "warning", description="What is logged on stderr; info has a line for each request."
    )
    log_format: Literal["text", "json"] = Field("text", description="Lines for people, or JSON for programs.")

    @field_validator("token")
    @classmethod
    def _secret(cls, given: str) -> str:
        if given and not re.fullmatch(r"[!-~]{8,200}", given):
            raise ValueError("a token is 8 to 200 letters, digits and signs, without spaces")
        return given

    @field_validator("allowed_host", "trusted_proxy", mode="before")
    @classmethod
    def _listed(cls, given: object) -> object:
        return tuple(part.strip() for part in given.split(",") if part.strip()) if isinstance(given, str) else given

    @field_validator("allowed_host")
    @classmethod
    def _names(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for name in given:
            if not re.fullmatch(r"[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]", name):
                raise ValueError(f"{name!r} is no host name; write it without http:// and without a port")
        return tuple(name.lower() for name in given)

    @field_validator("trusted_proxy")
    @classmethod
    def _networks(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for network in given:
            ipaddress.ip_network(network, strict=False)
        return given

    @field_validator("checkpoint", mode="before")
    @classmethod
    def _chosen(cls, given: object) -> object:
        if isinstance(given, str):
            given = [part for part in given.split(os.pathsep) if part]
        if not isinstance(given, list | tuple):
            return given
        chosen = [CheckpointChoice.parse(item) if isinstance(item, str) else item for item in given]
        ids = [choice.model for choice in chosen if isinstance(choice, CheckpointChoice)]
        for model in ids:
            if ids.count(model) > 1:
                raise ValueError(f"two checkpoints are given for {model!r}; name each: MODEL=PATH")
        return tuple(chosen)
