"""Drawing ahead: the diagrams of all models, as they first appear, put among the kept answers before anybody asks.

Drawn anew they take tens to hundreds of milliseconds each; from what is kept, a few. Owns which there are, and the mark
that says that all of them are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import atlas
from atlas.catalog import Catalog, Model
from atlas.graph.axes import VIEWS, View
from atlas.render.assets import vendor_file
from atlas.render.javascript import shared
from atlas.web.drawing import diagram, preview
from atlas.web.readable import readable

ROOMS = ("architectures", "models", "graph", "render")
"""The code that a diagram depends on."""


def draw_ahead(catalog: Catalog, tell: Callable[[int, int], None] = lambda _done, _whole: None) -> int:
    """Draw every diagram of every model, each view, no part opened; returns how many there are.

    `tell` hears how many of how many are done. What cannot be drawn is logged, as on its page.
    """
    models = list(readable(catalog))
    for model in models:
        preview(model)
    wanted: list[tuple[Model, str, View]] = [
        (model, path, view)
        for model in models
        for path in ("", *(path for path, node in model.graph.nodes.items() if node.kind == "component"))
        for view in VIEWS
    ]
    for done, (model, path, view) in enumerate(wanted, 1):
        diagram(model, path, view, path, ())
        tell(done, len(wanted))
    shared().kept.keep(_mark(catalog), "all")
    return len(wanted)


def is_drawn(catalog: Catalog) -> bool:
    """Whether all that would be drawn is kept already."""
    return shared().kept.find(_mark(catalog)) is not None


def _mark(catalog: Catalog) -> bytes:
    """A hash of all that the diagrams depend on."""
    root = Path(atlas.__file__).parent
    digest = hashlib.sha256(b"all diagrams")
    for path in sorted(path for room in ROOMS for path in (root / room).rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    digest.update(vendor_file("elk/elk.bundled.js").read_bytes())
    digest.update(repr(list(catalog)).encode())
    return digest.digest()
