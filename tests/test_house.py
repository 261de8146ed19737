"""The house rules that a reader of one file cannot see broken: which room imports which, and what loads what.

A room imports only from rooms below it; torch and its kin belong to `runtime` and `inspection`, and pages are
served before they are loaded. Read off the source with `ast`, and off a fresh interpreter.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ROOMS = (
    *("__main__", "cli", "web", "inspection", "runtime", "catalog", "render"),
    *("models", "architectures", "provenance", "graph", "settings", "errors"),
)
"""From the top of the house to its foundation."""

HEAVY = frozenset({"torch", "transformers", "fairscale", "llama_models", "safetensors", "gguf", "tokenizers"})
"""Distributions that compute: only the rooms in WORKSHOPS may name them."""

WORKSHOPS = frozenset({"runtime", "inspection"})

FILES = sorted((ROOT / "atlas").rglob("*.py"))


def imports(source: str, module: str) -> Iterator[tuple[int, str]]:
    """Each module that `source` imports, anywhere in it, as an absolute name with its line.

    `from atlas import graph` is an import of atlas.graph. `module` is the importing module's own name, which
    relative imports start from; a package's ends with ".__init__".
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")[: -node.level]
                base = ".".join([*above, base]) if base else ".".join(above)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def faults(source: str, module: str) -> list[str]:
    """What is wrong with the imports of one module of the atlas, a sentence each."""
    path = module.split(".")
    room = path[1]
    found = []
    for line, name in imports(source, module):
        top, *rest = name.split(".")
        if top in HEAVY and room not in WORKSHOPS:
            found.append(f"{module}:{line} imports {top}, which belongs to {' and '.join(sorted(WORKSHOPS))}")
        if top == "atlas" and rest and rest[0] in ROOMS and ROOMS.index(rest[0]) < ROOMS.index(room):
            found.append(f"{module}:{line} imports {name} from a room above {room}")
    return found


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def imported_by(modules: list[str]) -> set[str]:
    """The top-level names of all that is loaded after `modules` were imported in a fresh interpreter."""
    code = "import importlib, json, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    code += "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code, *modules], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def modules_of(files: list[Path]) -> list[str]:
    return [module_name(file).removesuffix(".__init__") for file in files]


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_imports_go_down_the_house(file: Path) -> None:
    module = module_name(file)
    if module != "atlas.__init__":
        assert module.split(".")[1] in ROOMS, f"{file.name} is in no known room: add it to ROOMS, in its place"
        assert faults(file.read_text(encoding="utf-8"), module) == []


def test_nothing_that_computes_is_loaded_before_the_pages_are_up() -> None:
    upstairs = [file for file in FILES if not WORKSHOPS & set(file.relative_to(ROOT).parts)]
    assert imported_by(modules_of(upstairs)) & {"torch", "transformers", "fairscale", "llama_models"} == set()


def test_no_module_loads_transformers_by_being_imported() -> None:
    assert "transformers" not in imported_by(modules_of(FILES))


@pytest.mark.parametrize(
    ("source", "module", "fault"),
    [
        ("import torch", "atlas.web.app", "imports torch"),
        ("def f():\n    from transformers.models import gpt2", "atlas.render.code", "imports transformers"),
        ("from atlas.web import app", "atlas.runtime.engine", "from a room above runtime"),
        ("import atlas.inspection.summary", "atlas.runtime.engine", "from a room above runtime"),
        ("from atlas import render", "atlas.graph.axes", "from a room above graph"),
        ("from ..web import app", "atlas.graph.axes", "from a room above graph"),
        ("from .. import web", "atlas.graph.__init__", "from a room above graph"),
        ("from ... import web", "atlas.graph.deep.axes", "from a room above graph"),
        ("import atlas.settings", "atlas.errors", "from a room above errors"),
        ("import torch\nfrom atlas.graph import axes\nfrom . import runs", "atlas.runtime.engine", ""),
        ("import numpy\nfrom atlas.errors import AtlasError", "atlas.web.app", ""),
    ],
)
def test_the_rules_see_what_breaks_them(source: str, module: str, fault: str) -> None:
    found = faults(source, module)
    assert (fault in found[0]) if fault else found == []
