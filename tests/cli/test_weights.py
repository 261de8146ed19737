"""Weights from the command line: what there is, where it is, and fetching what is here already."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlas.runtime.weights import fetch_default

from .conftest import Atlas


def test_weights_alone_lists_them(atlas: Atlas, data_dir: Path) -> None:
    path = fetch_default(data_dir)
    said = atlas("weights")
    assert said == atlas("weights", "list")
    assert said.code == 0
    assert said.out.splitlines()[0] == "SmolLM2-135M-Instruct (smollm2-135m)"
    assert f"here     {path}" in said.out
    assert "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53" in said.out
    assert "apache-2.0" in said.out


def test_what_is_not_here_is_said(atlas: Atlas, tmp_path: Path) -> None:
    assert "not here" in atlas("weights", "list", "--data-dir", str(tmp_path)).out


@pytest.mark.parametrize("name", [(), ("SmolLM2-135M-Instruct",)])
def test_fetching_says_where_they_are(atlas: Atlas, data_dir: Path, name: tuple[str, ...]) -> None:
    said = atlas("weights", "fetch", *name)
    assert (said.code, said.out) == (0, f"{fetch_default(data_dir)}\n")
