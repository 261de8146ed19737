"""How long a page takes while a prompt of 1,000 tokens is in prefill: `python -m benchmarks.pages_under_load`.

One server process and one reader, who asks for one page after the other on one connection. Told for the idle server
and for the busy one; the goal is 20 ms at the 99th percentile while busy.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.serving import Server, end_in_order, percentile, serving

GOAL = 0.020
PACKED = {"Accept-Encoding": "gzip"}
"""As browsers ask: a page is kept apart for those that do not."""
TOKENS = 1000
PAGES = (
    "/",
    "/models/llama-3-8b",
    "/models/smollm2-135m",
    "/models/llama-3-8b/blocks/attention/attention-update",
    "/models/llama-3.1-8b/blocks/attention/scale-similarities?view=decode&layer=3",
    "/models/smollm2-135m/blocks/feed-forward?view=prefill",
    "/models/smollm2-135m/final-norm/normalized?view=decode&step=2",
    "/how-to-read",
)


def timed(server: Server, stop: threading.Event, pages: Iterable[str] | None = None) -> list[tuple[float, str]]:
    """Seconds of each page until `stop` is set, one after the other: `PAGES` in turn, or what is left of `pages`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    taken = []
    for page in itertools.cycle(PAGES) if pages is None else pages:
        if stop.is_set():
            break
        started = time.perf_counter()
        connection.request("GET", page, headers=PACKED)
        answer = connection.getresponse()
        answer.read()
        taken.append((time.perf_counter() - started, page))
        assert answer.status == 200, (page, answer.status)
        time.sleep(0.005)
    connection.close()
    return taken


def while_busy(server: Server, rounds: int, pages: Iterable[str] | None = None) -> list[tuple[float, str]]:
    """The same while prompts of 1,000 tokens are in prefill, one after the other."""
    taken: list[tuple[float, str]] = []
    for number in range(rounds):
        order = {"model": "smollm2-135m", "token_ids": [*range(300 + number, 300 + number + TOKENS)]}
        run = server.json("/api/runs", order | {"max_new_tokens": 1})["id"]
        while server.json(f"/api/runs/{run}")["status"] == "queued":
            time.sleep(0.005)
        stop, found = threading.Event(), list[tuple[float, str]]()
        reader = threading.Thread(target=lambda stop=stop, found=found: found.extend(timed(server, stop, pages)))
        reader.start()
        server.finish(run)
        stop.set()
        reader.join()
        taken += found
        server.ask(f"/api/runs/{run}", method="DELETE")
    return taken


def summary(taken: list[tuple[float, str]]) -> dict[str, float]:
    seconds = sorted(time for time, _ in taken)
    return {"pages": len(seconds)} | {
        f"ms_{name}": round(1000 * percentile(seconds, share), 2)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="prefills to measure during")
    parser.add_argument("--slowest", type=int, default=0, help="show the slowest pages, this many")
    options = parser.parse_args()
    end_in_order()
    with tempfile.TemporaryDirectory() as where, serving(Path(where)) as server:
        for page in PAGES * 2:
            server.ask(page, headers=PACKED)
        stop = threading.Event()
        threading.Timer(3.0, stop.set).start()
        idle, busy = timed(server, stop), while_busy(server, options.rounds)
    print(json.dumps({"idle": summary(idle), "busy": summary(busy)}, indent=1))
    for seconds, page in sorted(busy, reverse=True)[: options.slowest]:
        print(f"{1000 * seconds:8.1f} ms  {page}")
    met = summary(busy)["ms_p99"] < 1000 * GOAL
    print(f"The goal of {1000 * GOAL:.0f} ms at the 99th percentile is {'met' if met else 'not met'}.")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
