"""What the page costs a browser: what it loads, how long its tasks take, what its heap becomes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from tests.support.gateway_site import Recorded, Site, query_status, stream_status

_log = logging.getLogger(__name__)
TRANSFERRED_MAX: Final = 150_000
"""Bytes of all responses, headers included."""
TASK_MS_MAX: Final = 50.0
"""CPU time of each task: how long they last depends on what else the machine does, so that is
logged, and measured by ``bench.page``.
"""
TRACED: Final = 10
"""Windows of which each task is measured, besides those of the snapshot."""
HOUR_S: Final = 60.0 * float(os.environ.get("PAGE_MINUTES", "60"))
"""Of the drill."""
QUERIES, KEYS = 20, 1_000
SETTLE_MS: Final = 1_500
"""Until the snapshot has been drawn."""
BEGUN, FILLED, FILLING_MS = 25, 280, 70
"""Windows when the page is opened, and when the measurement begins: more than the page keeps, so
what it has grows no more. Those between come so far apart that a reader on this machine keeps up.
"""
SAMPLES: Final = 20
GROWS_MAX: Final = 1.05
"""Median of the last quarter's heap, after a collection, against that of the second quarter."""
OBSERVER: Final = """
    window.tasks = [];
    new PerformanceObserver((list) => {
      for (const each of list.getEntries()) window.tasks.push(each.duration);
    }).observe({ type: "longtask", buffered: true });
"""


def test_all_that_is_transferred(page: Any, site: Site) -> None:
    """Of the first visit; without events, which depend on the queries."""
    session = page.context.new_cdp_session(page)
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda of: sizes.append(of["encodedDataLength"]))
    session.send("Network.enable")
    page.goto(site.url)
    page.locator(".query").wait_for()
    assert len(sizes) >= 8, "the page, its style, its scripts and the chart"
    assert sum(sizes) < TRANSFERRED_MAX


def _heap(session: Any) -> float:
    """Return what is in use after a collection, in bytes."""
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"])


@contextmanager
def _tasks_ms(page: Any) -> Iterator[list[float]]:
    """Collect the CPU time of each task of the page in its main thread, ms; there at the end."""
    found = list[float]()
    events, ended = list[dict[str, Any]](), list[bool]()
    session = page.context.browser.new_browser_cdp_session()
    session.on("Tracing.dataCollected", lambda of: events.extend(of["value"]))
    session.on("Tracing.tracingComplete", lambda _: ended.append(True))
    config = {"includedCategories": ["toplevel", "blink.user_timing"]}
    session.send("Tracing.start", {"traceConfig": config, "transferMode": "ReportEvents"})
    yield found
    page.evaluate("performance.mark('its thread')")  # Chromium has pages of its own
    session.send("Tracing.end")
    while not ended:
        session.send("Tracing.getCategories")  # until the events before it have been handled
    main = {(of["pid"], of["tid"]) for of in events if of["name"] == "its thread"}
    assert len(main) == 1
    tasks = [of for of in events if of["name"] == "ThreadControllerImpl::RunTask"]
    found += [of["tdur"] / 1_000 for of in tasks if "tdur" in of and (of["pid"], of["tid"]) in main]
    session.detach()


def _cpu_s(session: Any) -> float:
    """Return the CPU time of all tasks of the page, s."""
    found = {
        each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]
    }
    return float(found["TaskDuration"])


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(20.0, id="short"), pytest.param(HOUR_S, id="hour", marks=pytest.mark.drill)],
)
@pytest.mark.timeout(HOUR_S + 600)
def test_twenty_queries_of_a_thousand_keys(page: Any, site: Site, seconds: float) -> None:
    """One of them is shown, the states of all change each second; a window comes each second."""
    keys = [f"sensor-{n:04}" for n in range(KEYS)]
    names = [f"q{n:02}" for n in range(QUERIES - 1)]
    made = Recorded()

    def window(number: int) -> None:
        """One in seven is tentative first."""
        values = {key: number + n / KEYS for n, key in enumerate(keys)}
        if number % 7 == 0:
            made.window(number, values, "tentative", 1, ("room-2",))
            made.undo(number, number)
        made.window(number, values, epoch=int(number % 7 == 0))
        site.publish(made)

    for number in range(BEGUN):
        window(number)
    session = page.context.new_cdp_session(page)
    page.add_init_script(OBSERVER)
    with _tasks_ms(page) as of_begin:
        page.goto(site.url + "#view=query&query=climate")
        page.locator(".strip tr.key").nth(7).wait_for()
        page.wait_for_timeout(SETTLE_MS)
    begin = page.evaluate("window.tasks.splice(0)")
    page.locator('.strip tbody td[tabindex="0"]').focus()
    while page.locator(".strip tr.key").count() < 40:
        page.keyboard.press("ArrowDown")
    for number in range(BEGUN, FILLED - TRACED):
        window(number)
        page.wait_for_timeout(FILLING_MS)
    with _tasks_ms(page) as of_windows:
        for number in range(FILLED - TRACED, FILLED):
            window(number)
            page.wait_for_timeout(1_000 / TRACED)
    page.evaluate("window.tasks.length = 0")
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    cpu_s, mark = 0.0, _cpu_s(session)
    heaps, tasks = list[float](), list[float]()
    began, number = time.monotonic(), FILLED
    while (now := time.monotonic() - began) < seconds:
        window(number)
        states = [query_status(name, sentence=f"exact, {now:.0f} s") for name in names]
        site.set_status(queries=[query_status(), *states], streams=[stream_status("room-1")])
        number += 1
        if now >= len(heaps) * seconds / SAMPLES:
            tasks += page.evaluate("window.tasks")
            cpu_s += _cpu_s(session) - mark
            heaps.append(_heap(session))
            mark = _cpu_s(session)
            page.evaluate("window.tasks.length = 0")  # the collection is a task
        page.wait_for_timeout(max(0.0, 1_000 * (began + number - FILLED - time.monotonic())))
    tasks += page.evaluate("window.tasks")
    shown_mb = [round(heap / 1e6, 2) for heap in heaps]
    _log.info("%d windows, heap %s MB", number - FILLED, shown_mb)
    cpu_ms = 1_000 * (cpu_s + _cpu_s(session) - mark) / (number - FILLED)
    logged = "%d tasks > 50 ms, the longest %d ms; of the begin %s ms; %.1f ms of CPU a window"
    _log.info(logged, len(tasks), max(tasks, default=0), begin, cpu_ms)
    longest_ms = max(of_begin), max(of_windows)
    _log.info(
        "CPU time of the longest task: of the begin %.1f ms, of ten windows %.1f", *longest_ms
    )
    assert max(longest_ms) < TASK_MS_MAX
    assert page.locator(".strip tbody tr.key").count() == 40
    quarter = len(heaps) // 4
    middle = sorted(heaps[quarter : 2 * quarter])[quarter // 2]
    assert sorted(heaps[-quarter:])[quarter // 2] < GROWS_MAX * middle
