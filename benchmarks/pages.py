"""What pages take: how soon after a start, alone, beside a long prefill, and how many in a second on one core.

A page that was read before is kept by the server and given again; so pages that nobody has read yet, drawn from the
site's own map, are measured apart from kept ones.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.pages_under_load import PACKED, PAGES, timed, while_busy
from benchmarks.serving import Server, link_data, percentile, serving

READERS = 4


def start_times() -> tuple[float, float]:
    """Seconds from starting the server to its first page, and to its first model being ready to run."""
    with tempfile.TemporaryDirectory() as where, Server(link_data(Path(where))) as server:
        started = time.perf_counter()
        first = ready = 0.0
        while not ready:
            assert server.process.poll() is None, server.said
            with contextlib.suppress(OSError):
                if not first and server.ask("/")[0] == 200:
                    first = time.perf_counter() - started
                if first and server.ask("/readyz")[0] == 200:
                    ready = time.perf_counter() - started
            time.sleep(0.01)
    return first, ready


def unread(server: Server) -> Iterator[str]:
    """Pages of nodes in random order, each once: the same order every time."""
    listed = re.findall(r"<loc>[^<]*?(/models/[^<]*)</loc>", server.ask("/sitemap.xml")[2].decode())
    random.Random(0).shuffle(listed)
    return iter(listed)


def latencies(seconds: float, prefills: int) -> dict[str, float]:
    """Milliseconds of a page for one reader, at the median and the 99th percentile.

    `new` pages and `kept` ones, with nothing else to do for `seconds`, and (`busy`) while `prefills` prompts of 1,000
    tokens are in prefill, one after the other.
    """
    told: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as where, serving(Path(where)) as server:
        for page in PAGES * 2:
            server.ask(page, headers=PACKED)
        pages = unread(server)
        told |= _percentiles("new", _for_a_while(server, seconds, pages))
        told |= _percentiles("kept", _for_a_while(server, seconds, itertools.cycle(PAGES)))
        told |= _percentiles("new_busy", while_busy(server, prefills, pages))
        told |= _percentiles("kept_busy", while_busy(server, prefills))
    return told


def pages_per_second(seconds: float) -> dict[str, float]:
    """How many pages one process on one core gives to four readers: `new` and `kept`.

    The server has the machine's last core, the readers the others.
    """
    cores = sorted(os.sched_getaffinity(0))
    told = {}
    with tempfile.TemporaryDirectory() as where:
        os.sched_setaffinity(0, cores[-1:])  # a child inherits it
        try:
            server = Server(link_data(Path(where)), "--requests-per-minute", "0")
        finally:
            os.sched_setaffinity(0, cores[:-1] or cores)
        try:
            with server:
                server.wait_ready()
                for page in PAGES:
                    server.ask(page, headers=PACKED)
                told["new"] = _rate(server, seconds, unread(server))
                told["kept"] = _rate(server, seconds, itertools.cycle(PAGES))
        finally:
            os.sched_setaffinity(0, cores)
    return told


def _for_a_while(server: Server, seconds: float, pages: Iterable[str]) -> list[tuple[float, str]]:
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    try:
        return timed(server, stop, pages)
    finally:
        timer.cancel()


def _percentiles(name: str, taken: list[tuple[float, str]]) -> dict[str, float]:
    ordered = sorted(seconds for seconds, _ in taken)
    found = {f"{name}_p{share:.0%}".rstrip("%"): 1000 * percentile(ordered, share) for share in (0.5, 0.99)}
    return found | {f"{name}_pages": float(len(ordered))}


def _rate(server: Server, seconds: float, pages: Iterator[str]) -> float:
    """Pages a second for several readers, who share `pages`."""
    lock, deadline = threading.Lock(), time.perf_counter() + seconds

    def read() -> int:
        connection, count = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60), 0
        with contextlib.closing(connection):
            while time.perf_counter() < deadline:
                with lock:
                    page = next(pages, None)
                if page is None:
                    break
                connection.request("GET", page, headers=PACKED)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200, (page, answer.status)
                count += 1
        return count

    started = time.perf_counter()
    with ThreadPoolExecutor(READERS) as readers:
        counted = [reader.result() for reader in [readers.submit(read) for _ in range(READERS)]]
    return sum(counted) / (time.perf_counter() - started)
