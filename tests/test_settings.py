"""Settings: defaults, variables, and a reader's own checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from atlas.settings import CheckpointChoice, Settings, default_data_dir


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ATLAS_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("text", "model", "path"),
    [
        ("mine=/models/a.gguf", "mine", "/models/a.gguf"),
        ("llama-3.1-8b=here", "llama-3.1-8b", "here"),
        ("mine=a=b.gguf", "mine", "a=b.gguf"),
        ("/models/My Model_v1.5.gguf", "my-model-v1-5", "/models/My Model_v1.5.gguf"),
        ("./a=b.gguf", "a-b", "a=b.gguf"),
        ("weights.safetensors", "weights", "weights.safetensors"),
        ("Maker/Model-3.2-1B@v1.0", "model-3-2-1b", "Maker/Model-3.2-1B@v1.0"),
    ],
)
def test_a_checkpoint_is_named_or_takes_its_files_name(text: str, model: str, path: str) -> None:
    assert CheckpointChoice.parse(text) == CheckpointChoice(model=model, path=Path(path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mine=", "names no file"),
        ("=a.gguf", "'' is no model id"),
        ("My Model=a.gguf", "'My Model' is no model id"),
        ("a--b=a.gguf", "'a--b' is no model id"),
        ("/models/目次.gguf", "'' is no model id"),
    ],
)
def test_a_checkpoint_that_is_not_understood_is_named(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        CheckpointChoice.parse(text)


def test_a_path_begins_at_home_if_it_says_so() -> None:
    assert CheckpointChoice.parse("mine=~/a.gguf").path == Path.home() / "a.gguf"


def test_several_checkpoints_come_from_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_CHECKPOINT", f"mine=a.gguf{os.pathsep}b.gguf")
    assert [choice.model for choice in Settings().checkpoint] == ["mine", "b"]


def test_two_checkpoints_of_one_model_are_refused() -> None:
    with pytest.raises(ValidationError, match="two checkpoints are given for 'mine'"):
        Settings.model_validate({"checkpoint": ("mine=a.gguf", "mine=b.gguf")})


def test_variables_set_what_the_caller_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ATLAS_PORT", "9000")
    monkeypatch.setenv("ATLAS_HOST", "::1")
    monkeypatch.setenv("ATLAS_DATA_DIR", str(tmp_path))
    settings = Settings(port=9001)
    assert (settings.host, settings.port, settings.data_dir) == ("::1", 9001, tmp_path)


def test_the_data_directory_follows_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_data_dir() == tmp_path / "openmodelatlas"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert default_data_dir() == Path.home() / ".cache" / "openmodelatlas"
