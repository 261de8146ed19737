"""Bounds on the reading of a model's code whose configuration somebody else wrote: so many modules, so long.

The code is a library's own, and what it builds has no numbers, but a configuration may ask it to build or to loop
without end. Knows nothing of what is read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode

from atlas.errors import CheckpointError

MODULES = 200_000
SECONDS = 120.0


@contextmanager
def bounded(most: int = MODULES, seconds: float = SECONDS) -> Iterator[None]:
    """While entered, this thread may build so many modules and run models for so long, and no more.

    Raises `CheckpointError` inside, where a module is built or a torch function is called beyond that.
    """
    thread, until, built = threading.get_ident(), time.monotonic() + seconds, 0

    def require_time() -> None:
        if time.monotonic() > until:
            raise CheckpointError(
                f"Reading the code of this model takes more than {seconds:,.0f} seconds.", "Use a smaller one."
            )

    def count(*_: object) -> None:
        nonlocal built
        if threading.get_ident() != thread:
            return
        built += 1
        if built > most:
            raise CheckpointError(f"This model has more than {most:,} modules.", "Use a smaller one.")
        require_time()

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
            require_time()
            return func(*args, **(kwargs or {}))

    hooks = (
        modules.register_module_module_registration_hook(count),
        modules.register_module_parameter_registration_hook(count),
    )
    try:
        with Watch():
            yield
    finally:
        for hook in hooks:
            hook.remove()
