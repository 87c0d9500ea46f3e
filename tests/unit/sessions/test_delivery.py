"""A delivery's start, its transactions, and what it does with records that are none."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulator.alerting.plans import draw
from tests.simulator.alerting.results import QUERY
from tests.simulator.alerting.world import rules_of

from slackwater.delivery.records import DeliveryPosition
from slackwater.model.errors import SupersededError
from slackwater.model.names import UNPREFIXED
from slackwater.primitives.windows import Grid
from slackwater.sessions.delivery import DeliveryConfig, DeliverySession
from slackwater.sessions.effects import CommitRecords, Fail, Skipped
from slackwater.sessions.events import CommitFailed, CommitSucceeded, Received
from slackwater.sessions.requests import Beginnings, OpenTransactions, ReadLatest

PLAN = draw(0)
STABLE = (UNPREFIXED.results(QUERY, "stable"), 0)


def session(placement: int = 3) -> DeliverySession:
    grid = Grid(PLAN.window.slide_us, PLAN.window)
    config = DeliveryConfig(
        "delivery/q", QUERY, 1, rules_of(PLAN), grid.later, UNPREFIXED, placement
    )
    return DeliverySession(config)


def started(of: DeliverySession, stored: dict[bytes, bytes] | None = None) -> list[Any]:
    """Run the start; return its requests."""
    procedure = of.start()
    answer: Any = None
    requests: list[Any] = []
    while True:
        try:
            request = procedure.send(answer)
        except StopIteration:
            return requests
        requests.append(request)
        answer = None
        if isinstance(request, ReadLatest):
            answer = stored or {}
        elif isinstance(request, Beginnings):
            answer = dict.fromkeys(request.logs, 0)


def test_it_fences_before_it_reads_where_to_go_on() -> None:
    """Else the older copy could commit after it was read, and the batch would be there twice."""
    requests = started(session())
    assert [type(each) for each in requests[:2]] == [OpenTransactions, ReadLatest]


def test_the_first_transaction_has_its_placement_number() -> None:
    of = session()
    started(of)
    (commit,) = (each for each in of.step(20_000_000) if isinstance(each, CommitRecords))
    assert b'"placement":3' in commit.records[-1][1]
    assert not of.report().ready
    of.take(CommitSucceeded(1))
    assert of.report().ready


def test_it_stays_down_if_it_was_placed_earlier() -> None:
    with pytest.raises(SupersededError, match="placement 7"):
        started(session(), {b"position": DeliveryPosition(placement=7).encode()})


def test_a_refused_transaction_ends_it() -> None:
    of = session()
    started(of)
    of.step(20_000_000)
    of.take(CommitFailed("fenced"))
    assert [type(each) for each in of.step(1)] == [Fail]


def test_a_record_of_others_is_counted_and_ignored() -> None:
    of = session()
    started(of, {b"alert/x/y": b"{}"})
    of.take(Received(STABLE, 0, b"not a result"))
    skipped = [each for each in of.step(1) if isinstance(each, Skipped)]
    assert [each.log[0] for each in skipped] == ["sw.alerts.q", "sw.results.q.stable"]
