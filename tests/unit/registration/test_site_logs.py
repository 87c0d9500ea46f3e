"""trace-70: what a site keeps for the centre, whatever its own roots have answered."""

from __future__ import annotations

from dataclasses import replace

from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker
from tests.support.uplinks import pieces_of
from tests.unit.machine.test_layout import query

from slackwater.codec.pane_records import encode_merged
from slackwater.codec.state_records import encode_root_state
from slackwater.model.records import Heartbeat, LogPosition, LogState, Position, RootState
from slackwater.model.sites import UplinkSpec
from slackwater.registration.site_logs import kept_at_site
from slackwater.registration.truncation import Truncation
from slackwater.sessions.merger import LAST_RECORDS_MAX

UPLINK = UplinkSpec("north", "centre:9092", (3,))
OF = replace(query("q", "room-1", replicas=2, parts=1), mergers=2, uplink=UPLINK)
MERGED, A, B = ("sw.merged.q.0", 0), ("sw.deltas.q.0", 0), ("sw.deltas.q.0", 2)
LIVE = ("sw.deltas.q.0", 1)
ANSWERED = {MERGED: 150, A: 700, B: 700, LIVE: 5}
"""What the site's roots do not need any more."""


def site(panes: int = 200, behind: tuple[int, int] = (600, 650)) -> MemoryBroker:
    """Return a site's logs; the last pane has these positions behind it."""
    broker = MemoryBroker()
    broker.create_topic("sw.registry")
    broker.create_topic("sw.state.q")
    broker.create_topic("sw.merged.q.0")
    broker.create_topic("sw.deltas.q.0", 4)
    writer = broker.writer(no_failure)
    for number in range(panes):
        (record,) = pieces_of(number * 100, number * 100 + 100, 5)
        at = [LogPosition(n, n, 0, Position(record.end)) for n in behind]
        writer.append(*MERGED, encode_merged(replace(record, positions=tuple(at))))
    for log in (A, B, LIVE):
        for _ in range(800):
            writer.append(*log, b"delta")
    return broker


def beats(*sent: int | None) -> dict[str, Heartbeat]:
    """Return the heartbeats of the two uplinks, with what each knows."""
    names = ("uplink/q.0.a", "uplink/q.0.b")
    return {
        name: Heartbeat(name, 1, 0, 0, -1, ready=True, states={}, detail={"sent.0.0": offset})
        for name, offset in zip(names, sent, strict=False)
        if offset is not None
    }


def test_merged_panes_are_kept_until_an_uplink_says_that_the_centre_has_them() -> None:
    assert kept_at_site(OF, ANSWERED, beats(90), site())[MERGED] == 90
    assert kept_at_site(OF, ANSWERED, beats(90, 120), site())[MERGED] == 120, "whichever knows"
    assert kept_at_site(OF, ANSWERED, beats(190), site())[MERGED] == 200 - LAST_RECORDS_MAX
    assert kept_at_site(OF, {**ANSWERED, MERGED: 7}, beats(90), site())[MERGED] == 7


def test_without_an_uplink_that_knows_nothing_is_deleted() -> None:
    assert MERGED not in kept_at_site(OF, ANSWERED, {}, site())
    silent = Heartbeat("uplink/q.0.a", 1, 0, 0, -1, ready=True, states={}, detail={})
    assert MERGED not in kept_at_site(OF, ANSWERED, {"uplink/q.0.a": silent}, site())


def test_deltas_are_kept_until_they_are_merged() -> None:
    kept = kept_at_site(OF, ANSWERED, beats(90), site())
    assert (kept[A], kept[B], kept[LIVE]) == (600, 650, 5)
    assert {A, B}.isdisjoint(kept_at_site(OF, ANSWERED, beats(90), site(panes=0)))


def test_the_last_panes_stay_for_mergers_that_start() -> None:
    assert kept_at_site(OF, ANSWERED, beats(20), site(panes=20))[MERGED] == 0


def test_what_is_kept_of_each_child_is_what_the_centre_lacks_of_it() -> None:
    broker = site()
    broker.create_topic("sw.merged.r.0", 2)
    broker.create_topic("sw.deltas.r.0", 8)
    writer = broker.writer(no_failure)
    for child, panes in ((0, 100), (1, 200)):
        for number in range(panes):
            (record,) = pieces_of(number * 100, number * 100 + 100, 5)
            at = [LogPosition(n, n, 0, Position(record.end)) for n in (number, number + child)]
            writer.append(
                "sw.merged.r.0", child, encode_merged(replace(record, positions=tuple(at)))
            )
    of = replace(OF, name="r", children=2, uplink=replace(UPLINK, children=(3, 5)))
    deltas = {("sw.deltas.r.0", partition): 700 for partition in (0, 2, 4, 6)}
    answered = {("sw.merged.r.0", child): 150 for child in (0, 1)} | deltas
    detail = {"sent.0.0": 20, "sent.0.1": 90}
    beat = Heartbeat("uplink/r.0.a", 1, 0, 0, -1, ready=True, states={}, detail=detail)
    assert kept_at_site(of, answered, {"uplink/r.0.a": beat}, broker) == {
        ("sw.merged.r.0", 0): 20,
        ("sw.merged.r.0", 1): 90,
        ("sw.deltas.r.0", 0): 99,
        ("sw.deltas.r.0", 2): 99,
        ("sw.deltas.r.0", 4): 199,
        ("sw.deltas.r.0", 6): 200,
    }


def test_truncation_asks_the_uplinks() -> None:
    """A mutant is the same without them: the panes of an hour would be deleted."""
    broker = site()
    logs = tuple(LogState(0, replica, 0, *2 * (_at(700),), 700) for replica in range(2))
    state = RootState("root/q.0", 1, 0, 0, 0, 0, (Position(0),), logs, merged_from=(150,))
    with broker.transaction() as transaction:
        transaction.append("sw.state.q", 0, encode_root_state(state), b"root/q.0")

    class Beats:
        def all(self) -> dict[str, Heartbeat]:
            return beats(90)

    for reading, first in ((Beats(), 90), (None, 0)):
        broker = site()
        with broker.transaction() as transaction:
            transaction.append("sw.state.q", 0, encode_root_state(state), b"root/q.0")
        truncation = Truncation(broker, [OF], reading)
        truncation.step()
        truncation.step()
        assert broker.beginning_offsets([MERGED, A]) == {MERGED: first, A: 600}
    plain = Truncation(broker, [replace(OF, uplink=None)])
    plain.step()
    plain.step()
    assert broker.beginning_offsets([MERGED, A]) == {MERGED: 150, A: 700}


def _at(offset: int) -> LogPosition:
    return LogPosition(offset, offset, 0, Position(0))
