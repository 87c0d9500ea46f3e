"""How soon an answer is on the page in Chromium, and what the page costs; the pipeline runs beside.

First ten windows a second of ten keys; then twenty queries of a thousand keys, one of which is
shown. A change is *on the page* when the frame with its cells has been painted: the script below
takes the time of writing of each change as it comes, and the time after the frame in which the
strip changed next, since a draw shows all changes that have come. The time of writing
(``emitted_at``) is before the commit, so what is printed is an upper bound of the time since that.

Run with ``PYTHONPATH=$(build/browser/venv/bin/python -c 'import site;
print(site.getsitepackages()[0])') .venv/bin/python -m bench.page [--seconds 60] [--quick]`` after
``make browser``; prints Markdown. Needs Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import Any, Final

import numpy as np
from bench.gateway import ADDITIONS, QUICK, additions_s, running
from bench.live import QUERY
from playwright.sync_api import Page, sync_playwright

SETTLE_MS: Final = 3_000
"""After the page has been opened: until then it draws its snapshot."""
KEYS: Final = 1_000
QUERIES: Final = 20
SCRIPT: Final = """
  window.late = []; window.tasks = [];
  const coming = [], Source = EventSource;
  window.EventSource = class extends Source {
    constructor(...given) {
      super(...given);
      this.addEventListener("change", (event) => {
        const at = /"emitted_at":"([^"]+)"/.exec(event.data);
        if (at && event.data.includes('"kind":"answer"')) coming.push(Date.parse(at[1]));
      });
    }
  };
  new MutationObserver((changes) => {
    if (!coming.length || !changes.some((each) => each.target.closest?.(".strip"))) return;
    const shown = coming.splice(0);
    requestAnimationFrame(() => {
      const painted = new MessageChannel();
      painted.port1.onmessage = () => shown.forEach((at) => window.late.push(Date.now() - at));
      painted.port2.postMessage(0);
    });
  }).observe(document, { subtree: true, childList: true, attributes: true });
  new PerformanceObserver((list) => {
    for (const each of list.getEntries()) window.tasks.push(each.duration);
  }).observe({ type: "longtask" });
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true", help="without the twenty queries")
    options = parser.parse_args()
    emit(f"{ADDITIONS:,} additions took {additions_s():.2f} s before the bench (0.8 s when quiet)")
    emit("\n| page shows | changes | written to painted, p50 | p99 | max (ms) |", end="")
    emit(" tasks > 50 ms | longest (ms) | heap (MB) |\n|---|---|---|---|---|---|---|---|")
    with running(1, quick=True) as (_, port):
        emit(row("1 query, 10 windows/s, 10 keys", *watched(port, QUICK, options.seconds)))
    if not options.quick:
        with running(QUERIES, keys=KEYS, others="5s") as (_, port):
            of = watched(port, QUERY, options.seconds)
            emit(row(f"{QUERIES} queries of {KEYS:,} keys, 1 window/s of one of them", *of))
    emit(f"\n{ADDITIONS:,} additions took {additions_s():.2f} s after it, load {os.getloadavg()}")
    return 0


def emit(text: str, end: str = "\n") -> None:
    """Print at once."""
    print(text, end=end, flush=True)


def row(name: str, late: list[float], tasks: list[float], heap: list[float]) -> str:
    """Return a line of the table; ``heap``: at the begin and at the end, MB."""
    p50, p99, longest = np.percentile(late, [50, 99, 100])
    begin, end = heap
    return (
        f"| {name} | {len(late)} | {p50:.0f} | {p99:.0f} | {longest:.0f} | {len(tasks)} |"
        f" {max(tasks, default=0):.0f} | {begin:.1f}, {end:.1f} |"
    )


def watched(port: int, query: str, seconds: float) -> tuple[list[float], list[float], list[float]]:
    """Open the page of a query; return latencies (ms), long tasks (ms), and the heap (MB)."""
    found = shutil.which("chromium")
    if found is None:
        raise SystemExit("no chromium: apt-get install chromium")
    root = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=root)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.add_init_script(SCRIPT)
        page.goto(f"http://127.0.0.1:{port}/#view=query&query={query}")
        page.locator(".strip td").first.wait_for()
        page.wait_for_timeout(SETTLE_MS)
        begin = heap_mb(page)
        page.evaluate("late.length = tasks.length = 0")
        page.wait_for_timeout(1_000 * seconds)
        late, tasks = page.evaluate("[late, tasks]")
        end = heap_mb(page)
        browser.close()
    return late, tasks, [begin, end]


def heap_mb(page: Page) -> float:
    """What the heap has after a collection, MB."""
    session: Any = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = float(session.send("Runtime.getHeapUsage")["usedSize"])
    session.detach()
    return used / 1e6


if __name__ == "__main__":
    sys.exit(main())
