"""trace-5: readings stamped hours ahead of their stream's watermark take no memory.

A sensor's clock is wrong, for example by its time zone; only readings more than a day ahead are
refused. The watermark of a stream whose boundaries follow the clock does not rise with it. The
record of such a reading is needed until its time is reached, but later records must be released:
neither kept for hours nor parked and read again for each bucket, as if the line were hours ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.paper.stage import MS, Orderer, Settings, Source

from slackwater.model.records import Kind
from slackwater.protocols.common.line import LineName

HOUR = 3_600_000
TICK = 100


class Reads:
    """Counts the records offered to the cursors."""

    def __init__(self, orderer: Orderer) -> None:
        self.count = 0
        for cursor in (*orderer.core.logs.stable, *orderer.core.logs.live):
            cursor.offer = self._counted(cursor.offer)  # type: ignore[method-assign]

    def _counted(self, offer: Callable[..., bool]) -> Callable[..., bool]:
        def counted(*args: Any) -> bool:
            self.count += 1
            return offer(*args)

        return counted


@pytest.mark.parametrize("every", [1_000_000, TICK], ids=["one reading", "one sensor"])
def test_what_follows_is_neither_kept_nor_read_again(every: int) -> None:
    one, two = Source("s1"), Source("s2")
    orderer = Orderer([one, two], Settings())
    reads, held = Reads(orderer), []
    for now in range(TICK, 120_001, TICK):
        is_ahead = now == TICK or now % every == 0
        one.emit([now - 50], now)
        two.emit([now - 50, now + HOUR] if is_ahead else [now - 50], now)
        orderer.listen()
        orderer.step(now)
        held.append(orderer.core.held_bytes)
        assert all(c.attached for c in orderer.core.logs.stable)
    ticks = 120_000 // TICK
    assert reads.count <= 2 * (len(one.log) + len(two.log))
    ahead = ticks if every == TICK else 1
    assert max(held) < 1_000 + ahead * 2 * 48  # for both lines, one reading and its position each


@pytest.mark.parametrize("restart", [False, True])
def test_they_are_in_their_own_bucket_once_whatever_happens_meanwhile(restart: bool) -> None:
    """Ninety seconds exceed H; meanwhile the other stream fails and returns."""
    one, two = Source("s1"), Source("s2")
    orderer = Orderer([one, two], Settings())
    for now in range(TICK, 150_001, TICK):
        if now == 40_000:
            one.disconnect()
        if now == 50_000:
            one.reconnect()
        one.emit([now - 50], now)
        two.emit([now - 50, now + 90_000 - 30], now)
        orderer.listen()
        orderer.step(now)
        if now % 1_000 == 0:
            orderer.save()
        if restart and now in {45_000, 70_300}:
            orderer.crash()
    stable = [r for r in orderer.logs[LineName.STABLE] if r.kind is Kind.INSERTION]
    found = {r.bucket_end // MS: sum(map(len, r.values[:1])) for r in stable}
    assert max(found) == 150_000
    for end, count in found.items():
        assert count == (3 if end >= 90_100 else 2), end
    assert orderer.core.line.state.value == "STABLE"
