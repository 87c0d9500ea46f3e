"""An uplink alone: whatever is repeated, cut or restarted, the centre has each pane once."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.uplinks import CHILD, PANE, Site, pieces_of

from slackwater.model.limits import NEVER
from slackwater.model.merged import MergedRecord
from slackwater.model.records import Gap
from slackwater.protocols.fargo.uplink import (
    FRESH_US,
    IN_FLIGHT_PANES_MAX,
    QUEUED_CELLS_MAX,
    STALLED_US,
    Duty,
    OtherCopy,
    Uplink,
    cells_of,
)

STEPS = 400


@given(random=st.randoms(use_true_random=False), steps=st.integers(1, STEPS))
def test_the_centre_uses_each_pane_once_and_lacks_none(random: Random, steps: int) -> None:
    site = Site(random)
    site.run(steps)
    site.check()


class _BeginsBehindTheNext(Uplink):
    """Begins one pane too late: at ``whole`` + 1."""

    def centre_has(self, end: int) -> None:
        super().centre_has(end if end == NEVER else end + PANE)


class _PassesByAHole(Uplink):
    """Drops a pane now and then, and goes on."""

    def take(self, offset: int, record: MergedRecord | None) -> None:
        is_lost = record is not None and record.start % (7 * PANE) == 6 * PANE
        super().take(offset, None if is_lost else record)
        self.hole = None


class _TruncatesWhatIsSent(Uplink):
    """Lets the site delete what is read, before the centre has it."""

    @property
    def kept_from(self) -> int:
        return self._next


class _SendsNoEmptyPane(Uplink):
    """Leaves out panes without rows: nothing tells the centre that they are empty."""

    def write(self, panes_max: int = IN_FLIGHT_PANES_MAX) -> list[MergedRecord]:
        records = super().write(panes_max)
        for record in records:
            if not record.pane.ref.rows:
                self.acknowledged()
        return [record for record in records if record.pane.ref.rows]


@pytest.mark.parametrize(
    "mutant",
    [_BeginsBehindTheNext, _PassesByAHole, _TruncatesWhatIsSent, _SendsNoEmptyPane],
)
def test_the_check_finds_an_uplink_that_does_not(mutant: type[Uplink]) -> None:
    found = 0
    for seed in range(40):
        site = Site(Random(seed), lambda offset: mutant(CHILD, 1, offset))
        try:
            site.run(STEPS)
            site.check()
        except (AssertionError, IndexError):
            found += 1
    assert found >= 5, mutant.__name__


def test_a_pane_is_sent_once_for_all_mergers_and_after_the_one_before_it() -> None:
    uplink = Uplink(CHILD, 2, 0)
    first, second = pieces_of(0, 100, 5, 2), pieces_of(100, 200, 5)
    for offset, record in enumerate([first[0], first[0], first[1], *second, first[1], *second]):
        uplink.take(offset, record)
    sent = uplink.write()
    assert [(of.start, of.pane.piece, of.pane.ref.child) for of in sent] == [
        (0, 0, CHILD),
        (0, 1, CHILD),
        (100, 0, CHILD),
    ]
    assert all(len(of.positions) == 2 and of.positions[0].offset == 0 for of in sent)
    assert uplink.kept_from == 0, "nothing has arrived"
    uplink.acknowledged()
    assert uplink.kept_from == 0, "a piece is no pane"
    uplink.acknowledged()
    assert (uplink.has_to, uplink.kept_from) == (100, 3)
    uplink.acknowledged()
    assert (uplink.has_to, uplink.kept_from) == (200, 6)


def test_an_empty_pane_is_sent() -> None:
    uplink = Uplink(CHILD, 1, 0)
    uplink.take(0, *pieces_of(0, 400, 0))
    assert [(of.start, of.end) for of in uplink.write()] == [(0, 400)]


def test_of_two_versions_of_a_pane_the_one_that_is_complete_first_is_sent() -> None:
    uplink, lost = Uplink(CHILD, 1, 0), (Gap("s", 4),)
    one = pieces_of(0, 100, 5, 2, gap=lost, version=7)
    other = pieces_of(0, 100, 5, 2, gap=(Gap("s", 9),), version=8)
    for offset, record in enumerate([other[0], one[0], one[1], other[1]]):
        uplink.take(offset, record)
    sent = uplink.write()
    assert [(of.pane.ref.digest, of.pane.piece, of.gap) for of in sent] == [
        (7, 0, lost),
        (7, 1, lost),
    ]


def test_it_stops_at_a_pane_that_the_site_lacks_and_says_so() -> None:
    uplink = Uplink(CHILD, 1, 0)
    uplink.take(0, *pieces_of(0, 100, 5))
    uplink.take(1, *pieces_of(200, 300, 5))
    assert uplink.hole == 100
    assert not uplink.has_room
    assert [of.start for of in uplink.write()] == [0]


def test_what_has_been_deleted_at_the_site_is_at_the_centre() -> None:
    """The last record at the centre may be an old one, of an uplink that was suspended."""
    uplink = Uplink(CHILD, 1, offset=40)
    uplink.centre_has(100)
    uplink.take(40, *pieces_of(700, 800, 5))
    assert uplink.hole is None
    assert [of.start for of in uplink.write()] == [700]


def test_what_another_copy_reports_is_not_sent_again() -> None:
    uplink = Uplink(CHILD, 1, 0)
    for n in range(4):
        uplink.take(n, *pieces_of(n * 100, n * 100 + 100, 5))
    uplink.centre_has(300)
    assert [of.start for of in uplink.write()] == [300]
    assert uplink.kept_from == 3


def test_a_cut_link_is_buffered_in_the_sites_kafka() -> None:
    uplink, n = Uplink(CHILD, 1, 0), 0
    while uplink.has_room:
        uplink.take(n, *pieces_of(n * 100, n * 100 + 100, 5))
        n += 1
    assert n * cells_of(pieces_of(0, 100, 5)[0]) <= QUEUED_CELLS_MAX + 100
    sent = uplink.write()
    assert len(sent) == IN_FLIGHT_PANES_MAX
    assert uplink.write() == [], "nothing is acknowledged"
    uplink.acknowledged()
    assert len(uplink.write()) == 1


# Which copy sends.


def test_the_first_copy_that_works_sends() -> None:
    now = 10 * STALLED_US
    first, second = Duty(0), Duty(1)
    alive = {0: OtherCopy(now, linked=True)}
    assert first.panes_max({1: OtherCopy(now, linked=True)}, 0, now, has_unsent=True) > 1
    assert second.panes_max(alive, 0, now, has_unsent=True) == 0
    silent = {0: OtherCopy(now - FRESH_US - 1, linked=True)}
    assert second.panes_max(silent, 0, now, has_unsent=True) == IN_FLIGHT_PANES_MAX
    assert second.panes_max({}, 0, now, has_unsent=True) == IN_FLIGHT_PANES_MAX


def test_a_second_copy_tries_one_pane_when_nothing_arrives() -> None:
    duty, now = Duty(1), 10 * STALLED_US

    def most(after_us: int, arrived: int, *, linked: bool = True) -> int:
        at = now + after_us
        return duty.panes_max({0: OtherCopy(at, linked)}, arrived, at, has_unsent=True)

    assert most(0, 100) == 0
    assert most(STALLED_US - 1, 100) == 0
    assert most(STALLED_US, 100) == 1
    assert most(STALLED_US + 1, 200) == 0, "something has arrived"
    assert most(STALLED_US + 2, 200, linked=False) == 1, "the first one says that it is cut off"
