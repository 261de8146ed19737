"""`atlas serve`: takes the port, then starts the pages, then the engine beside them."""

from __future__ import annotations

import errno
import gc
import ipaddress
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas.cli import logs
from atlas.cli.options import settings, settings_options
from atlas.cli.ranks import ending, follow, linger, require_alone
from atlas.cli.terminal import beside, note, require_positions, stages
from atlas.errors import EnvironmentUnfit
from atlas.inspection.recorded.bundle import Bundle
from atlas.runtime.distributed.place import Place
from atlas.settings import Settings

if TYPE_CHECKING:
    import uvicorn

    from atlas.web.backend import Backend, Progress

LONGEST_START = 30.0
"""Seconds after which garbage is collected however far the start has come."""
TURN = 0.0005
"""Seconds after which the engine's thread gives the interpreter to a page that wants it; Python's own 5 ms would be
waited for several times a page."""
STALLED_MS = 30_000
"""Milliseconds after which a connection ends whose other end takes nothing."""


@click.command("serve")
@click.argument("bundles", nargs=-1, type=click.Path(dir_okay=False, path_type=Path), metavar="[BUNDLE.atlas ...]")
@settings_options()
def command(bundles: tuple[Path, ...], **given: Any) -> int:
    """Serve the pages and the API, with live values.

    The pages are there at once; the default weights are fetched and loaded beside them. Ctrl+C stops the server.

    With bundles (see `atlas bundle`) it shows the runs recorded in them, and needs no weights.

    \b
    A model that is too large for one process is split over several, here or on several machines:
    torchrun --nproc-per-node N -m atlas serve --checkpoint MODEL=PATH
    """
    chosen = settings(given)
    place = Place.here()
    require_positions()
    if bundles:
        require_alone(place)
    if place is not None and not place.serves:
        return follow(chosen, place)
    require_a_gate(chosen)
    for bundle in bundles:
        Bundle(bundle, chosen.max_bundle_bytes).close()
    with closing(listen(chosen.host, chosen.port)) as listening:
        serve(chosen, listening, place, bundles)
    return 0


def require_a_gate(chosen: Settings) -> None:
    """Raises `EnvironmentUnfit` where other machines could reach the server, and nothing says who may use it."""
    try:
        alone = ipaddress.ip_address(_address(chosen.host, 0)[1][0]).is_loopback
    except socket.gaierror:
        return  # `listen` says that there is no such address
    if alone or chosen.token or chosen.public:
        return
    raise EnvironmentUnfit(
        f"On {chosen.host} other machines can reach this server, and nothing says who may use it.",
        "Give --token SECRET to let in who has it, or --public to let everybody read recorded runs and start none.",
    )


def _address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return family, address


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, before anything is loaded. Raises `EnvironmentUnfit` where there can be none."""
    try:
        family, address = _address(host, port)
        made = socket.create_server(address, family=family, backlog=128)
        # Said to be TCP, so that asyncio sends small answers at once; else each waits 40 ms for the last one's receipt.
        listening = socket.socket(made.family, made.type, socket.IPPROTO_TCP, made.detach())
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: a client that takes nothing loses its connection as well
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MS)
        return listening
    except socket.gaierror as error:
        raise EnvironmentUnfit(f"{host!r} is no address of this machine.", "Try --host 127.0.0.1.") from error
    except OSError as error:
        hints = {
            errno.EADDRINUSE: f"Stop what listens there, or take another port: atlas serve --port {port % 65535 + 1}",
            errno.EACCES: "Take a port above 1023: atlas serve --port 8000",
            errno.EADDRNOTAVAIL: "Try --host 127.0.0.1.",
        }
        # The reason without the address, which create_server puts behind it.
        reason = (error.strerror or str(error)).partition(" (")[0]
        raise EnvironmentUnfit(
            f"Cannot listen on {host} port {port}: {reason}.", hints.get(error.errno or 0, "Take another port or host.")
        ) from error


def serve(
    chosen: Settings, listening: socket.socket, place: Place | None = None, bundles: tuple[Path, ...] = ()
) -> None:
    """Serve until interrupted; with a `place` as rank 0 of several processes, with bundles without weights.

    Raises `AssetMissing`, `DeclarationError`, `EnvironmentUnfit`, and what ended a model that was split.
    """
    gc.disable()
    import uvicorn

    from atlas.catalog import open_catalog
    from atlas.cli.rechecks import rechecks
    from atlas.web.app import create_app
    from atlas.web.backend import Backend

    class Server(uvicorn.Server):
        """Tells the backend first, so that streams end and nothing new begins while connections close."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            if place is not None:
                await linger(backend, chosen.drain_seconds)
            backend.drain()
            await super().shutdown(sockets)

    logs.set_up(chosen.log_level, chosen.log_format)
    catalog = open_catalog(chosen.data_dir)
    backend = Backend(chosen, catalog, place, bundles, stand_back=place is None)
    server = Server(
        uvicorn.Config(
            create_app(chosen, catalog=catalog, backend=backend),
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            proxy_headers=bool(chosen.trusted_proxy),
            forwarded_allow_ips=list(chosen.trusted_proxy),
            timeout_graceful_shutdown=max(1, chosen.drain_seconds),
        )
    )
    signal.signal(signal.SIGTERM, _stopped)
    with (
        suppress(KeyboardInterrupt),  # once it has stopped in good order, uvicorn hands on the signal, whichever it was
        _greeting(server, f"{url(*listening.getsockname()[:2])} (Ctrl+C stops it){_who(chosen)}"),
        stages(lambda: backend.status),
        _started(lambda: backend.status),
        nullcontext() if bundles else rechecks(chosen, catalog, lambda: backend.status.ready),
        ending(server, backend, place, chosen.drain_seconds) if place is not None else nullcontext(),
        _refusing(server, backend) if bundles else nullcontext(),
    ):
        server.run(sockets=[listening])
    failed = backend.status.error if backend.lost or bundles else None
    if failed is not None:
        raise failed
    if not server.started:
        raise EnvironmentUnfit("The server could not start.", "The lines above say why.")
    note("Stopped.")


def _refusing(server: uvicorn.Server, backend: Backend) -> AbstractContextManager[None]:
    """While entered, stop the server where a bundle turns out to be none that can be shown."""

    def watch(over: threading.Event) -> None:
        while not over.wait(0.05):
            if backend.status.error is not None:
                server.should_exit = True
                return

    return beside("bundles", watch)


def _started(status: Callable[[], Progress]) -> AbstractContextManager[None]:
    """Once the start is over, have garbage collected, and threads take shorter turns.

    Nearly all that a start makes stays, so looking through that again and again would take a third of its time; and it
    has one thing to do, which more turns would delay.
    """

    def begin(over: threading.Event) -> None:
        deadline = time.monotonic() + LONGEST_START
        while not (over.wait(0.1) or status().ready or status().error or time.monotonic() > deadline):
            pass
        gc.enable()
        sys.setswitchinterval(TURN)

    return beside("starter", begin)


def _stopped(*_: object) -> None:
    raise KeyboardInterrupt


def url(host: str, port: int) -> str:
    """Where a browser on this machine finds what listens on this address."""
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _who(chosen: Settings) -> str:
    """Who may use the server, where that is not whoever uses this machine."""
    if chosen.public:
        return "\nEverybody may read its recorded runs" + (
            "; who has the token may start new ones." if chosen.token else "; none are started or removed."
        )
    return "\nIt lets in who has the token: add ?token=TOKEN to its address once." if chosen.token else ""


def _greeting(server: uvicorn.Server, where: str) -> AbstractContextManager[None]:
    """Say where the server is as soon as it answers."""

    def greet(over: threading.Event) -> None:
        while not over.wait(0.02):
            if server.started:
                click.echo(f"OpenModelAtlas is at {where}")
                return

    return beside("greeting", greet)
