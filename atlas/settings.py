"""What can be configured, once: each field is an option of the command line and an ATLAS_ variable.

Knows no other room. Sizes are in tokens or bytes, times in seconds, as each field says.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


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
    max_body_bytes: int = Field(1 << 20, ge=1024, description="Largest request body, in bytes.")
    max_response_bytes: int = Field(256 << 20, ge=1024, description="Largest tensor answer, in bytes.")
    max_queue: int = Field(32, ge=1, description="Most runs waiting at once.")
    memory_budget: int = Field(2 << 30, ge=1 << 20, description="Memory of all live runs together, in bytes.")
    threads: int = Field(0, ge=0, description="Threads of torch; 0 leaves the choice to torch.")
