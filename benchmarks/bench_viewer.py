"""How quick the tensor viewer is in Chromium: `make bench`. Prints a table; needs the browser that the tests drive."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.frames import script_per_frame
from benchmarks.report import Found, machine, results_table, spread
from benchmarks.serving import Server, end_in_order, serving

UPDATE = "/models/smollm2-135m/blocks/attention/attention-update"
WEIGHTS = "/models/smollm2-135m/blocks/attention/attention-weights"
LONG = 2048
PATIENCE = 300_000
"""Milliseconds that a busy machine may take for a page."""
SWITCH = """([shown, key]) => new Promise(resolve => {
    const live = document.getElementById("live");
    const was = live.dataset[shown];
    const begun = performance.now();
    new MutationObserver((_, observer) => {
        if (live.dataset.state !== "ready" || live.dataset[shown] === was) return;
        observer.disconnect();
        resolve(performance.now() - begun);
    }).observe(live, { attributes: true });
    document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
})"""
"""Presses a key and waits until the panel shows another layer or step."""


def switches(page: Page, url: str, shown: str, key: str, times: int) -> list[float]:
    """Milliseconds from the key to the new numbers, `times` times."""
    page.goto(url)
    page.wait_for_selector("#live[data-state=ready]")
    page.wait_for_timeout(1000)
    return [float(page.evaluate(SWITCH, [shown, key])) for _ in range(times)]


def long_run(server: Server) -> str:
    """A run of 2,048 tokens, its prefill done."""
    ids = [504, *(300 + at * 17 % 40_000 for at in range(LONG - 1))]
    status, _, body = server.ask(
        "/api/runs", {"model": "smollm2-135m", "token_ids": ids, "max_new_tokens": 1, "temperature": 0}
    )
    if status != 202:
        raise ValueError(f"the run was not taken: {body!r}")
    run = str(json.loads(body)["id"])
    server.ask(f"/api/runs/{run}/events")
    return run


def measured(page: Page, server: Server, long: bool) -> list[Found]:
    """Everything that is measured."""
    at = server.url
    found = [
        spread(
            "layer_switch_ms",
            switches(page, f"{at}{UPDATE}?view=prefill&layer=2", "shownLayer", "]", 25),
            "ms",
            "from the key `]` to the next layer's numbers on the page, demonstration run",
            100.0,
        ),
        spread(
            "step_switch_ms",
            switches(page, f"{at}{UPDATE}?view=decode&layer=2", "shownStep", ".", 6),
            "ms",
            "from the key `.` to the next decode step's numbers",
            100.0,
        ),
    ]
    if long:
        run = long_run(server)
        page.goto(f"{at}{WEIGHTS}?view=prefill&layer=15&head=3&run={run}")
        page.wait_for_selector("#live[data-state=ready]")
        page.wait_for_timeout(5000)
        frames = sorted(script_per_frame(page))
        how = (
            f"script in a frame while a map of {LONG:,} x {LONG:,} is zoomed and dragged, CPU time by Chromium's trace"
        )
        found.append(spread("script_frame_ms", frames, "ms", how, 8.0))
        found.append(
            Found("script_frame_p99_ms", frames[int(len(frames) * 0.99)], "ms", f"{how}, 99th percentile", 8.0)
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"leave the prompt of {LONG:,} tokens out")
    chosen = parser.parse_args()
    end_in_order()
    browser_path = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    with tempfile.TemporaryDirectory() as where, serving(Path(where)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.set_default_timeout(PATIENCE)
        found = measured(page, server, long=not chosen.quick)
        browser.close()
    print(machine())
    print(results_table(found))


if __name__ == "__main__":
    main()
