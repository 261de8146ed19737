"""How much script runs in each frame of a page, read off Chromium's own trace.

Owns the gesture (zoom in, drag, zoom out) and the reading of the trace. Knows nothing of servers.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Sequence
from typing import Any

from playwright.sync_api import Page

PLANE = "canvas[data-tensor]"
MOVES, TURNS, FRAME = 60, 12, 16


def script_per_frame(page: Page) -> list[float]:
    """Milliseconds of script in each frame while the plane is zoomed in by wheel, dragged, and zoomed out again."""
    plane = page.locator(PLANE)
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    if box is None:
        raise ValueError("the page shows no plane")
    x, y = box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.4
    client = page.context.new_cdp_session(page)
    events: list[dict[str, Any]] = []
    done = threading.Event()
    client.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
    client.on("Tracing.tracingComplete", lambda _: done.set())
    client.send("Tracing.start", {"traceConfig": {"includedCategories": ["devtools.timeline"]}})
    plane.focus()
    page.mouse.move(x, y)
    for _ in range(TURNS):
        page.mouse.wheel(0, -120)
        page.wait_for_timeout(FRAME)
    page.mouse.down()
    for at in range(MOVES):
        page.mouse.move(x - 4 * at, y + 2 * at)
        page.wait_for_timeout(FRAME)
    page.mouse.up()
    for _ in range(TURNS):
        page.mouse.wheel(0, 120)
        page.wait_for_timeout(FRAME)
    client.send("Tracing.end")
    deadline = time.monotonic() + 30
    while not done.is_set() and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    return script_times(events)


def script_times(events: Sequence[dict[str, Any]]) -> list[float]:
    """Script in each animation frame of the page's main thread, and in what led to it, in milliseconds of CPU time.

    Calls inside a call count once. Raises ValueError where the trace has no animation frame.
    """
    whole = [event for event in events if event["ph"] == "X"]
    fired = [event for event in whole if event["name"] == "FireAnimationFrame"]
    if not fired:
        raise ValueError("nothing was animated")
    threads = [(event["pid"], event["tid"]) for event in fired]
    main = max(set(threads), key=threads.count)
    edges = sorted(float(one["ts"]) + float(one["dur"]) for one, at in zip(fired, threads, strict=True) if at == main)
    spent = [0.0] * len(edges)
    calls = [one for one in whole if one["name"] == "FunctionCall" and (one["pid"], one["tid"]) == main]
    ends = 0.0
    for call in sorted(calls, key=lambda one: float(one["ts"])):
        begun, length = float(call["ts"]), float(call["dur"])
        frame = bisect.bisect_left(edges, begun)
        if begun < ends or frame == len(edges):
            continue
        ends = begun + length
        spent[frame] += float(call.get("tdur", length)) / 1000
    return spent
