"""The page of a real `up --web`, open from the first window on, through three failures."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.waiting import TEST_S_MAX, WAIT_S_MAX, eventually
from tests.support.web_up import Up, running_up

from slackwater.codec.results import parse_time

WAIT_MS: Final = WAIT_S_MAX * 1_000
STOPPED_MS: Final = 20_000
DAY_S: Final = 86_400
S: Final = 1_000_000
_LABEL = re.compile(r"room-1, (\d\d):(\d\d):(\d\d), (.*)")


def cells(page: Any) -> dict[int, str]:
    """The answered windows of room-1 as they are shown: what is said, by the start in seconds."""
    labels = page.evaluate(
        "[...document.querySelectorAll('.strip tr.key:first-child td')]"
        ".map((td) => td.getAttribute('aria-label'))"
    )
    found = [_LABEL.fullmatch(each) for each in labels]
    assert all(found), labels
    each = [(3_600 * int(m[1]) + 60 * int(m[2]) + int(m[3]), m[4]) for m in found if m]
    return {start: words for start, words in each if words != "due"}


def answered(up: Up, since: int) -> dict[int, str]:
    """The windows from this one on as the API has them: their state, by the start in seconds."""
    try:
        _, body = up.get("/api/v1/queries/climate/windows?limit=1000")
    except OSError:
        return {}  # the gateway starts
    each = {parse_time(w["window_start"]) // S % DAY_S: w["state"] for w in body.get("windows", [])}
    return {start: state for start, state in sorted(each.items()) if start >= since}


def are_consecutive(starts: Iterable[int]) -> bool:
    return all(later - start == 1 for start, later in pairwise(starts))


def all_is_exact(page: Any, up: Up, since: int) -> Callable[[], bool]:
    """Whether all windows from this one on were answered, and those shown are exact, in a row."""

    def holds() -> bool:
        page.wait_for_timeout(500)  # lets the browser draw
        # Before it there may be one cell for many windows, until the sender had begun.
        found = answered(up, since)
        shown = {start: words for start, words in cells(page).items() if start >= since}
        return (
            len(found) > 5
            and min(found) == since
            and are_consecutive(found)
            and {*found.values()} <= {"exact", "corrected"}
            and bool(shown)
            and are_consecutive(shown)
            and max(found) - max(shown) < 3
            and all("exact" in words for words in shown.values())
        )

    return holds


@pytest.mark.timeout(TEST_S_MAX)
def test_a_source_the_gateway_and_kafka_fail_while_the_page_is_open(
    page: Any, tmp_path: Path
) -> None:
    page.set_default_timeout(WAIT_MS)
    with running_up(tmp_path) as (up, sender):
        page.goto(up.url + "#view=query&query=climate")
        page.locator("td.cell.exact").first.wait_for()

        # A source is cut off: tentative at X, explained, undone, exact.
        sender.cut("room-2")
        without = '[aria-label$="tentative, without room-2"]'
        tentative = page.locator(f"tr.key:first-child td.cell.tentative{without}").first
        tentative.wait_for()
        page.get_by_text(re.compile(r"tentative since .*, without room-2")).first.wait_for()
        tentative.focus()
        page.keyboard.press("Enter")
        panel = page.locator(".panel")
        panel.get_by_text(
            re.compile("tentative without room-2, of .* readings; written")
        ).wait_for()
        window = page.evaluate("new URLSearchParams(location.hash.slice(1)).get('window')")
        began = int(window) // 1_000 % DAY_S
        sender.connect("room-2")
        panel.get_by_text("withdrawn").wait_for()
        panel.get_by_text(re.compile("exact, of .* readings; .* The tentative")).wait_for()
        eventually(all_is_exact(page, up, began), "all is exact again")
        assert "exact, corrected" in cells(page)[began]
        page.keyboard.press("Escape")

        # The gateway is killed, and started again by the supervisor.
        newest, was = max(cells(page)), up.pid("gateway")
        assert was is not None
        os.kill(was, signal.SIGKILL)
        eventually(lambda: up.pid("gateway") not in {was, None}, "it is started again")
        eventually(all_is_exact(page, up, newest), "nothing was missed")

        # The broker stops for a while.
        newest, broker = max(cells(page)), up.pid("broker")
        assert broker is not None
        os.kill(broker, signal.SIGSTOP)
        try:
            page.wait_for_timeout(STOPPED_MS)
            page.get_by_text(
                re.compile(r"Kafka does not answer\. Values stay as of ..:..:.. UTC")
            ).wait_for()
            assert cells(page).keys() >= {newest}, "values stay"
        finally:
            os.kill(broker, signal.SIGCONT)
        page.get_by_text("Kafka does not answer").first.wait_for(state="hidden")
        eventually(all_is_exact(page, up, newest), "all is exact, and nothing was missed")
